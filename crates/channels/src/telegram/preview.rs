//! Shows an unfinished answer as a message that is edited while it grows, and that becomes the answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{DeliverError, Preview, ReplyRoute};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tracing::{debug, info};

use super::api::{ApiError, BotApi};
use super::conversation::{Conversation, MessageRef};
use super::deliver::{answered, conversation, failed, send, undelivered};
use super::router::UpdateRouter;
use super::split::{PIECE_MAX_UNITS, Piece, pieces};
use super::target::Sending;
use super::wire::{DeleteMessage, EditMessageText, HTML, NoPreview};

/// Deadline of an edit while the answer grows. Later, the next edit is due anyway.
const CHANGE_DEADLINE: Duration = Duration::from_secs(10);
/// Shortest time between two edits. Telegram: Bots FAQ, "avoid sending more than one message per second" in one chat.
const PACE: Duration = Duration::from_secs(1);

/// The id of a sent message (Bot API, Message).
#[derive(Deserialize)]
struct Sent {
    message_id: i32,
}

#[async_trait]
impl Preview for UpdateRouter {
    async fn begin(&self, route: &ReplyRoute, text: &str) -> Result<Arc<str>, DeliverError> {
        let to = conversation(route)?;
        if to.is_ephemeral() {
            // An ephemeral message is answered within 15 seconds, and once.
            return Err(DeliverError::Refused { detail: "an ephemeral answer has no preview".into() });
        }
        let mut target = self.sending().target(to, answered(route));
        let piece = first(text)?;
        let sent: Sent = send(self.sending(), &mut target, &piece, None, CHANGE_DEADLINE)
            .await
            .map_err(|error| undelivered(&target, error, 0))?;
        Ok(MessageRef::new(to, target.chat, sent.message_id).to_string().into())
    }

    async fn change(&self, route: &ReplyRoute, message: &str, text: &str) -> Result<(), DeliverError> {
        let to = conversation(route)?;
        edit(self.sending(), to, message, &first(text)?, CHANGE_DEADLINE).await.map_err(|error| failed(error, 0))
    }

    async fn discard(&self, route: &ReplyRoute, message: &str) {
        if let Ok(to) = conversation(route) {
            delete(&self.api, to, message).await;
        }
    }

    fn pace(&self) -> Duration {
        PACE
    }

    fn max_chars(&self) -> usize {
        PIECE_MAX_UNITS
    }
}

/// The first piece of a text: as much as one message shows.
fn first(text: &str) -> Result<Piece, DeliverError> {
    let nothing = || DeliverError::Refused { detail: "there is nothing to show".into() };
    pieces(text).into_iter().next().ok_or_else(nothing)
}

/// Replaces the text of a message: as HTML, or as plain text if Telegram cannot parse the HTML. A message that already
/// has this text counts as changed.
///
/// # Errors
/// The message was not changed, or the result is unknown. Repeating the edit is harmless.
pub(super) async fn edit(
    sending: Sending<'_>,
    to: Conversation,
    message: &str,
    piece: &Piece,
    deadline: Duration,
) -> Result<(), ApiError> {
    let Ok(shown) = message.parse::<MessageRef>() else {
        return Err(ApiError::refused(format!("{message:?} is no message of Telegram")));
    };
    let mut mode = Some(HTML);
    loop {
        let text = if mode.is_some() { &piece.html } else { &piece.plain };
        let parameters = EditMessageText {
            chat_id: shown.chat(to),
            message_id: shown.id,
            text,
            parse_mode: mode,
            link_preview_options: NoPreview::new(),
        };
        match sending.api.call::<_, IgnoredAny>("editMessageText", &parameters, deadline).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_modified() => return Ok(()),
            Err(error) if mode.is_some() && error.is_parse_error() => {
                info!(detail = %error, "telegram could not read our formatting; the text is shown plain");
                mode = None;
            }
            Err(error) => {
                sending.learn(shown.chat(to), &error).await;
                return Err(error);
            }
        }
    }
}

/// Deletes a message. Best effort.
pub(super) async fn delete(api: &BotApi, to: Conversation, message: &str) {
    let Ok(shown) = message.parse::<MessageRef>() else { return };
    let parameters = DeleteMessage { chat_id: shown.chat(to), message_id: shown.id };
    if let Err(error) = api.call::<_, IgnoredAny>("deleteMessage", &parameters, CHANGE_DEADLINE).await {
        debug!(detail = %error, "a preview could not be taken away");
    }
}
