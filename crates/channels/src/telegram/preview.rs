//! An answer on its way: a message that is edited while it grows, and that becomes the answer in the end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{DeliverError, Preview, ReplyRoute};
use frankenstein::ParseMode;
use frankenstein::methods::{DeleteMessageParams, EditMessageTextParams};
use frankenstein::types::LinkPreviewOptions;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tracing::{debug, info};

use super::api::{ApiError, BotApi};
use super::conversation::Conversation;
use super::deliver::{conversation, failed, send};
use super::router::UpdateRouter;
use super::split::{PIECE_MAX_UNITS, Piece, pieces};

/// Deadline of a change while the answer grows. A later one is of no use: the next is on its way.
const CHANGE_DEADLINE: Duration = Duration::from_secs(10);
/// Shortest time between two changes. Telegram: Bots FAQ, "avoid sending more than one message per second" in one chat.
const PACE: Duration = Duration::from_secs(1);

/// Bot API, Message: the part that names it.
#[derive(Deserialize)]
struct Sent {
    message_id: i32,
}

#[async_trait]
impl Preview for UpdateRouter {
    async fn begin(&self, route: &ReplyRoute, text: &str) -> Result<Arc<str>, DeliverError> {
        let to = conversation(route)?;
        let answered = route.reply_to.as_deref().and_then(|id| id.parse().ok());
        let piece = first(text)?;
        let sent: Sent =
            send(&self.api, to, answered, &piece, None, CHANGE_DEADLINE).await.map_err(|error| failed(error, 0))?;
        Ok(sent.message_id.to_string().into())
    }

    async fn change(&self, route: &ReplyRoute, message: &str, text: &str) -> Result<(), DeliverError> {
        let to = conversation(route)?;
        edit(&self.api, to, message, &first(text)?, CHANGE_DEADLINE).await.map_err(|error| failed(error, 0))
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

/// As much of a text as one message shows.
fn first(text: &str) -> Result<Piece, DeliverError> {
    let nothing = || DeliverError::Refused { detail: "there is nothing to show".into() };
    pieces(text).into_iter().next().ok_or_else(nothing)
}

/// Changes what a message says: as HTML, and as plain text where Telegram cannot read the HTML. What says so already is
/// changed.
///
/// # Errors
/// It was not changed, or nobody knows. Doing it again does no harm.
pub(super) async fn edit(
    api: &BotApi,
    to: Conversation,
    message: &str,
    piece: &Piece,
    deadline: Duration,
) -> Result<(), ApiError> {
    let Ok(message_id) = message.parse::<i32>() else {
        return Err(ApiError::refused(format!("{message:?} is no message of Telegram")));
    };
    let mut mode = Some(ParseMode::Html);
    loop {
        let text = if mode.is_some() { &piece.html } else { &piece.plain };
        let parameters = EditMessageTextParams::builder()
            .chat_id(to.chat)
            .message_id(message_id)
            .text(text)
            .maybe_parse_mode(mode)
            .link_preview_options(LinkPreviewOptions::DISABLED)
            .build();
        match api.call::<_, IgnoredAny>("editMessageText", &parameters, deadline).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_modified() => return Ok(()),
            Err(error) if mode.is_some() && error.is_parse_error() => {
                info!(%error, "telegram could not read our formatting; the text is shown plain");
                mode = None;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Takes a message away, if that can be done.
pub(super) async fn delete(api: &BotApi, to: Conversation, message: &str) {
    let Ok(message_id) = message.parse::<i32>() else { return };
    let parameters = DeleteMessageParams::builder().chat_id(to.chat).message_id(message_id).build();
    if let Err(error) = api.call::<_, IgnoredAny>("deleteMessage", &parameters, CHANGE_DEADLINE).await {
        debug!(%error, "a preview could not be taken away");
    }
}
