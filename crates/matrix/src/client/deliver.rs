//! Sends answers, questions and files.
//!
//! Each event has a transaction id of its own: the key of the delivery, the piece, and the kind. So a repeated request
//! is the same event, also after a crash, and an unknown result is no problem.

use std::time::Duration;

use belay_protocol::{DeliverError, Outbound, OutboxId, OutboxKey, Question};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::api::ApiError;
use super::content::{Content, mark, pieces, reaction};
use super::room::Rooms;
use crate::config::is_room;

/// How long the typing indicator is shown, and how often it is renewed.
const TYPING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// Sends an answer, piece by piece, beginning with the first one that the server has not accepted. The first piece
/// replaces the preview. The last piece of a question has the reactions that answer it.
pub(crate) async fn deliver(rooms: &Rooms, message: &Outbound) -> Result<(), DeliverError> {
    let conversation = &*message.route.conversation;
    if !is_room(conversation) {
        return Err(DeliverError::Refused { detail: format!("{conversation:?} is not a room of Matrix") });
    }
    let key = message.key();
    let mut texts = pieces(&message.text);
    if texts.is_empty() && message.file.is_some() {
        texts.push(String::new());
    }
    let address = match &message.file {
        Some(file) if message.pieces_sent == 0 => Some((file, rooms.upload(file).await?)),
        _ => None,
    };
    for (number, text) in (0..).zip(&texts).skip(message.pieces_sent as usize) {
        let is_last = number as usize + 1 == texts.len();
        let question = message.question.as_ref().filter(|question| is_last && question.decidable);
        let reply_to = message.route.reply_to.as_deref().filter(|_| number == 0);
        let content = Content { text, reply_to, mark: mark(key, number, question) };
        // The reactions to an edited message do not show what its edit is about.
        let preview = message.preview.as_deref().filter(|_| number == 0 && question.is_none());
        let (content, kind) = match (&address, preview) {
            (Some((file, address)), _) if number == 0 => (content.file(file, address), "file"),
            (_, Some(preview)) => (content.edit(preview), "edit"),
            _ => (content.message(), "message"),
        };
        let transaction = format!("{}-{kind}", key.piece(number));
        let sent = rooms.post(conversation, "m.room.message", &transaction, &content).await;
        let (room, event) = sent.map_err(|error| failed(&error, number))?;
        if let Some(question) = question {
            if let Some(preview) = message.preview.as_deref() {
                remove(rooms, conversation, preview).await;
            }
            offer(rooms, &room, &event, &key.piece(number), question).await;
        }
    }
    Ok(())
}

/// Reacts to a question with the answers that people may tap. Best effort: they can also write.
async fn offer(rooms: &Rooms, room: &str, event: &str, key: &str, question: &Question) {
    let keys = [("✅", true), ("♾️", question.offers_always), ("❌", true)];
    for (at, (emoji, _)) in keys.iter().enumerate().filter(|(_, (_, is_offered))| *is_offered) {
        let transaction = format!("{key}-reaction-{at}");
        let sent = rooms.api.put_event(room, "m.reaction", &transaction, &reaction(event, emoji)).await;
        if let Err(error) = sent {
            debug!(detail = %error, "an answer was not offered as a reaction");
        }
    }
}

/// Sends a line of Belay's own. Best effort.
pub(crate) async fn notice(rooms: &Rooms, conversation: &str, transaction: &str, line: &str) -> Result<(), ApiError> {
    let line = rooms.parts.texts.checked(&crate::NAME.into(), line.to_owned()).await;
    let content = Content { text: &line, reply_to: None, mark: mark(OutboxKey::of(OutboxId::new()), 0, None) };
    rooms.post(conversation, "m.room.message", transaction, &content.message()).await.map(|_| ())
}

/// Converts a failed request to a delivery error.
pub(crate) fn failed(error: &ApiError, pieces_sent: u32) -> DeliverError {
    let detail = error.to_string();
    match error {
        ApiError::Limited(after) => DeliverError::Retry { after: Some(*after), detail, pieces_sent },
        ApiError::NotSent(_) => DeliverError::Retry { after: None, detail, pieces_sent },
        // The operator may replace the token, so the message is retried.
        error if error.is_auth() => DeliverError::Retry { after: None, detail, pieces_sent },
        ApiError::NoAnswer(_) | ApiError::TooLarge(_) | ApiError::Server(_) => {
            DeliverError::Ambiguous { detail, pieces_sent }
        }
        ApiError::Refused { status: 403, .. } => {
            let remedy = "Belay is not in the room, or may not write there: invite it again, or give it the right";
            DeliverError::Refused { detail: format!("{remedy} ({detail})") }
        }
        ApiError::Refused { .. } | ApiError::Crowded => DeliverError::Refused { detail },
    }
}

/// Shows the typing indicator until the run ends.
pub(crate) async fn typing(rooms: &Rooms, conversation: &str, run: CancellationToken) {
    let (Some(me), room) = (rooms.me.get(), rooms.people.current(conversation)) else { return };
    let shown = run.run_until_cancelled(async {
        while rooms.api.typing(&room, &me.user, Some(TYPING.0)).await.is_ok() {
            sleep(TYPING.1).await;
        }
    });
    if shown.await.is_none() {
        let _ = rooms.api.typing(&room, &me.user, None).await; // best effort: it ends by itself
    }
}

/// Removes an event. Best effort.
pub(crate) async fn remove(rooms: &Rooms, conversation: &str, event: &str) {
    let room = rooms.people.current(conversation);
    let transaction = format!("{}-redaction", OutboxId::new().as_uuid().simple());
    if let Err(error) = rooms.api.redact(&room, event, &transaction).await {
        debug!(detail = %error, "a preview could not be taken away");
    }
}
