//! Sends replies, notices and typing indicators to Telegram.

use std::future::Future;
use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::{BlobStore, DeliverError, Outbound, ReplyRoute};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::api::ApiError;
use super::conversation::{Conversation, MessageRef};
use super::split::{Piece, pieces, with_caption};
use super::target::{Sending, Target};
use super::wire::{HTML, Keyboard, NoPreview, SendChatAction, SendMessage};
use super::{callback_buttons, files, preview};
use crate::short_ids::with_short_id;

/// Deadline of a message. Telegram answers within a second; a slow connection needs longer.
const SEND_DEADLINE: Duration = Duration::from_secs(30);

/// Deadline of a typing indicator. Later, the indicator is stale.
const TYPING_DEADLINE: Duration = Duration::from_secs(4);

/// How often the typing indicator is renewed. Telegram: sendChatAction, "5 seconds or less".
const TYPING_EVERY: Duration = Duration::from_secs(4);

/// Sends a reply, piece by piece, beginning with the first piece that Telegram has not accepted. The first piece
/// replaces the text of the preview message. If Telegram refuses that, the piece is sent as a new message and the
/// preview is deleted. The last piece of an approval request has its buttons. A file is sent with the first piece as
/// its caption.
pub(super) async fn deliver(
    sending: Sending<'_>,
    blobs: Option<&dyn BlobStore>,
    message: &Outbound,
) -> Result<(), DeliverError> {
    let to = conversation(&message.route)?;
    let mut target = sending.target(to, answered(&message.route));
    let pieces = match &message.file {
        None => pieces(&with_short_id(message)),
        Some(file) => {
            let pieces = with_caption(&message.text);
            if message.pieces_sent == 0 {
                let blobs = blobs.ok_or_else(|| DeliverError::Refused { detail: "this bot sends no files".into() })?;
                files::send(sending, blobs, &mut target, file, pieces.first()).await?;
            }
            pieces
        }
    };
    // The first message has a file, and its caption with it.
    let sent = message.pieces_sent.max(u32::from(message.file.is_some()));
    let keyboard = message.question.as_ref().and_then(callback_buttons::keyboard);
    for (number, piece) in (0..).zip(&pieces).skip(sent as usize) {
        crash_point!("outbox.before-piece");
        if number > 0 {
            target.next();
        }
        let preview = message.preview.as_deref().filter(|_| number == 0);
        if let Some(preview) = preview
            && replace(sending, to, preview, piece).await?
        {
            continue;
        }
        target.follow(sending.moves.current(target.chat));
        let buttons = keyboard.as_ref().filter(|_| number as usize + 1 == pieces.len());
        send::<IgnoredAny>(sending, &mut target, piece, buttons, SEND_DEADLINE)
            .await
            .map_err(|error| undelivered(&target, error, number))?;
        if let Some(preview) = preview {
            preview::delete(sending.api, to, preview).await;
        }
    }
    Ok(())
}

/// The message on the platform that a message of this route answers.
pub(super) fn answered(route: &ReplyRoute) -> Option<MessageRef> {
    route.reply_to.as_deref().and_then(|id| id.parse().ok())
}

/// Replaces the text of a message by a piece. Returns `false` if that is impossible.
async fn replace(sending: Sending<'_>, to: Conversation, message: &str, piece: &Piece) -> Result<bool, DeliverError> {
    if message.parse::<MessageRef>().is_ok_and(|shown| shown.chat(to) != sending.moves.current(to.chat)) {
        return Ok(false); // the group has moved since: the answer belongs there
    }
    let Err(error) = preview::edit(sending, to, message, piece, SEND_DEADLINE).await else { return Ok(true) };
    match failed(error, 0) {
        DeliverError::Refused { detail } => {
            info!(detail, "a preview cannot become the answer, which is sent as a message of its own");
            Ok(false)
        }
        // The same edit is harmless when it is repeated, so an unknown result is retried.
        DeliverError::Ambiguous { detail, pieces_sent } => {
            Err(DeliverError::Retry { after: None, detail, pieces_sent })
        }
        error @ DeliverError::Retry { .. } => Err(error),
    }
}

/// Parses the conversation that a route names.
pub(super) fn conversation(route: &ReplyRoute) -> Result<Conversation, DeliverError> {
    let unknown = |_| DeliverError::Refused { detail: format!("{:?} is no Telegram conversation", route.conversation) };
    route.conversation.parse().map_err(unknown)
}

/// Sends a plain line, as a reply to a message if there is one.
pub(super) async fn notice(
    sending: Sending<'_>,
    conversation: Conversation,
    answered: Option<MessageRef>,
    text: &str,
    deadline: Duration,
) -> Result<(), ApiError> {
    let mut target = sending.target(conversation, answered).plain();
    let line = Piece { html: String::new(), plain: text.to_owned() };
    send::<IgnoredAny>(sending, &mut target, &line, None, deadline).await.map(|_| ())
}

/// Sends one piece: as HTML, or as plain text if Telegram cannot parse the HTML. Changes the target as Telegram demands.
pub(super) async fn send<R: DeserializeOwned>(
    sending: Sending<'_>,
    target: &mut Target,
    piece: &Piece,
    buttons: Option<&Keyboard>,
    deadline: Duration,
) -> Result<R, ApiError> {
    loop {
        let parameters = parameters(target, piece, buttons);
        match sending.api.call("sendMessage", &parameters, deadline).await {
            Ok(sent) => return Ok(sent),
            Err(error) if sending.amend(target, &error).await => {}
            Err(error) => return Err(error),
        }
    }
}

fn parameters<'a>(target: &Target, piece: &'a Piece, reply_markup: Option<&'a Keyboard>) -> SendMessage<'a> {
    SendMessage {
        chat_id: target.chat,
        message_thread_id: target.thread(),
        direct_messages_topic_id: target.direct_topic(),
        ephemeral_message_parameters: target.ephemeral(),
        text: if target.is_html { &piece.html } else { &piece.plain },
        parse_mode: target.is_html.then_some(HTML),
        link_preview_options: NoPreview::new(),
        reply_parameters: target.reply_parameters(),
        reply_markup,
    }
}

/// Converts a failed call to a delivery error. Where the operator can help, the error has the place and the remedy.
pub(super) fn undelivered(target: &Target, error: ApiError, pieces_sent: u32) -> DeliverError {
    match target.explained(&error) {
        Some(detail) => DeliverError::Refused { detail },
        None => failed(error, pieces_sent),
    }
}

/// Converts a failed call to a delivery error.
pub(super) fn failed(error: ApiError, pieces_sent: u32) -> DeliverError {
    let detail = error.to_string();
    match error {
        ApiError::Flood(after) => DeliverError::Retry { after: Some(after), detail, pieces_sent },
        ApiError::NotSent(_) | ApiError::Server { .. } => DeliverError::Retry { after: None, detail, pieces_sent },
        // The operator may replace the token, so the message is retried.
        error if error.is_auth() => DeliverError::Retry { after: None, detail, pieces_sent },
        ApiError::NoAnswer(_) => DeliverError::Ambiguous { detail, pieces_sent },
        ApiError::Refused { .. } => DeliverError::Refused { detail },
    }
}

/// Shows "typing…" until the run ends. In a conversation of ephemeral messages nothing is shown: the whole group would see
/// it.
pub(super) async fn typing(sending: Sending<'_>, conversation: Conversation, run: CancellationToken) {
    if conversation.is_ephemeral() {
        return;
    }
    let show = async || {
        let target = sending.target(conversation, None);
        let parameters = SendChatAction { chat_id: target.chat, message_thread_id: target.thread(), action: "typing" };
        let shown = sending.api.call::<_, IgnoredAny>("sendChatAction", &parameters, TYPING_DEADLINE).await;
        if let Err(error) = &shown {
            sending.learn(target.chat, error).await;
        }
        shown.map(|_| ())
    };
    let _ = run.run_until_cancelled(renew(show)).await; // cancellation is the normal end
}

/// Renews an indicator repeatedly, until Telegram refuses it: its chat or topic is gone. Another failed renewal waits for
/// the next one; after a 429 the delay is as long as Telegram says.
async fn renew<F: Future<Output = Result<(), ApiError>>>(show: impl Fn() -> F) {
    loop {
        let pause = match show().await {
            Err(ApiError::Flood(after)) => after.max(TYPING_EVERY),
            Err(error @ ApiError::Refused { migrate_to: None, .. }) if !error.is_auth() => {
                return debug!(detail = %error, "typing indicator refused");
            }
            Err(error) => {
                debug!(detail = %error, "typing indicator not shown");
                TYPING_EVERY
            }
            Ok(()) => TYPING_EVERY,
        };
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn typing_is_renewed_every_four_seconds_and_pauses_for_a_429() {
        let begun = Instant::now();
        let shown = RefCell::new(Vec::new());
        let show = async || {
            shown.borrow_mut().push(begun.elapsed().as_secs());
            match shown.borrow().len() {
                2 => Err(ApiError::Flood(Duration::from_secs(11))),
                3 => Err(ApiError::NoAnswer("away".into())),
                _ => Ok(()),
            }
        };
        let _ = timeout(Duration::from_secs(24), renew(show)).await;
        assert_eq!(*shown.borrow(), [0, 4, 15, 19, 23]);
    }

    #[test]
    fn each_failure_says_whether_to_try_again() {
        let refused =
            |code, description: &str| ApiError::Refused { code, description: description.into(), migrate_to: None };
        for (error, expected) in [
            (ApiError::Flood(Duration::from_secs(17)), "again after 17 s"),
            (ApiError::NotSent("x".into()), "again"),
            (ApiError::Server { code: 502, description: "x".into() }, "again"),
            (refused(401, "Unauthorized"), "again"),
            (ApiError::NoAnswer("x".into()), "ambiguous"),
            (refused(403, "bot was blocked by the user"), "never"),
            (refused(400, "chat not found"), "never"),
        ] {
            let words = format!("{error}");
            let seen = match failed(error, 3) {
                DeliverError::Retry { after: Some(after), pieces_sent: 3, .. } => {
                    format!("again after {} s", after.as_secs())
                }
                DeliverError::Retry { after: None, pieces_sent: 3, .. } => "again".into(),
                DeliverError::Ambiguous { pieces_sent: 3, .. } => "ambiguous".into(),
                DeliverError::Refused { .. } => "never".into(),
                other => format!("{other:?}"),
            };
            assert_eq!(seen, expected, "{words}");
        }
    }
}
