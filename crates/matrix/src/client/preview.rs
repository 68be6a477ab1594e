//! Shows an unfinished answer as a message that is edited while it grows, and that becomes the answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{DeliverError, OutboxId, OutboxKey, Preview, ReplyRoute};
use serde_json::Value;

use super::content::{Content, PIECE_MAX_BYTES, mark, pieces};
use super::deliver::{failed, remove};
use super::room::Rooms;

/// Shortest time between two edits. Synapse: `rc_message`, by default one event in 5 s beyond a burst of 10.
const PACE: Duration = Duration::from_secs(5);

/// Sends the first piece of a text. `shown`: the message that it replaces.
async fn show(rooms: &Rooms, route: &ReplyRoute, text: &str, shown: Option<&str>) -> Result<Arc<str>, DeliverError> {
    let first = pieces(text).into_iter().next();
    let text = first.ok_or_else(|| DeliverError::Refused { detail: "there is nothing to show".into() })?;
    let key = OutboxKey::of(OutboxId::new());
    let content = Content { text: &text, reply_to: route.reply_to.as_deref(), mark: mark(key, 0, None) };
    let content: Value = shown.map_or_else(|| content.message(), |shown| content.edit(shown));
    let sent = rooms.post(&route.conversation, "m.room.message", &key.piece(0), &content).await;
    sent.map(|(_, event)| event.into()).map_err(|error| failed(&error, 0))
}

#[async_trait]
impl Preview for Rooms {
    async fn begin(&self, route: &ReplyRoute, text: &str) -> Result<Arc<str>, DeliverError> {
        show(self, route, text, None).await
    }

    async fn change(&self, route: &ReplyRoute, message: &str, text: &str) -> Result<(), DeliverError> {
        show(self, route, text, Some(message)).await.map(|_| ())
    }

    async fn discard(&self, route: &ReplyRoute, message: &str) {
        remove(self, &route.conversation, message).await;
    }

    fn pace(&self) -> Duration {
        PACE
    }

    fn max_chars(&self) -> usize {
        PIECE_MAX_BYTES / 2
    }
}
