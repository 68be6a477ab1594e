//! Delivers a message through the connected adapter, piece by piece.

use std::time::Duration;

use belay_channel_kit::split::{Unit, markdown};
use belay_protocol::{DeliverError, LookUp, Outbound};
use tokio::time::Instant;

use crate::config::{AdapterConfig, TextUnit};
use crate::frames::{self, DeliveryResult, ToAdapter};
use crate::link::{Answer, Link};

/// Maximum wait for the result of one piece. Below the 120 s after which a delivery counts as ambiguous.
const PIECE_DEADLINE: Duration = Duration::from_secs(60);

/// Time after which the pieces that are left come in another attempt, which begins behind those that were taken. 50 s: with
/// [`PIECE_DEADLINE`] it is below the same 120 s.
const ATTEMPT_MAX: Duration = Duration::from_secs(50);

/// Maximum wait for the answer to a `look_up`.
const LOOK_UP_DEADLINE: Duration = Duration::from_secs(15);

/// The maximum length of a piece. It comes from the settings and not from the connection, so that a delivery that goes on
/// over another connection counts the same pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextLimit {
    max: Option<usize>,
    unit: Unit,
}

impl TextLimit {
    pub(crate) fn of(config: &AdapterConfig) -> Self {
        let unit = match config.unit {
            TextUnit::Bytes => Unit::Bytes,
            TextUnit::CodePoints => Unit::CodePoints,
            TextUnit::Utf16 => Unit::Utf16,
        };
        Self { max: config.max_text, unit }
    }

    /// The pieces of a text that the platform can show.
    fn pieces(self, text: &str) -> Vec<String> {
        self.max.map_or_else(|| vec![text.to_owned()], |max| markdown::pieces(text, self.unit, max))
    }
}

/// Delivers the pieces that are left.
///
/// # Errors
/// See [`DeliverError`].
///
/// # Cancel safety
/// If the future is dropped, the piece in progress may or may not be shown.
pub(crate) async fn deliver(link: &Link, limit: TextLimit, message: &Outbound) -> Result<(), DeliverError> {
    let retry = |detail: &str, pieces_sent| DeliverError::Retry { after: None, detail: detail.to_owned(), pieces_sent };
    if link.ready().is_none() {
        return Err(retry("no adapter is connected", message.pieces_sent));
    }
    let pieces = limit.pieces(&message.text);
    if message.pieces_sent as usize > pieces.len() {
        let detail = "max_text was changed after a part was delivered".to_owned();
        return Err(DeliverError::Ambiguous { detail, pieces_sent: message.pieces_sent });
    }
    let (begun, last) = (Instant::now(), pieces.len().saturating_sub(1));
    for (number, text) in pieces.into_iter().enumerate().skip(message.pieces_sent as usize) {
        let sent = u32::try_from(number).unwrap_or(u32::MAX);
        if sent > message.pieces_sent && begun.elapsed() > ATTEMPT_MAX {
            let detail = "the other pieces follow".to_owned();
            return Err(DeliverError::Retry { after: Some(Duration::ZERO), detail, pieces_sent: sent });
        }
        let key = message.key().piece(sent);
        let frame = ToAdapter::Deliver {
            key: key.clone(),
            conversation: message.route.conversation.to_string(),
            text,
            reply_to: message.route.reply_to.as_deref().filter(|_| number == 0).map(str::to_owned),
            question: message.question.clone().filter(|_| number == last),
        };
        let Some(asked) = link.ask(&key, &frame) else { return Err(retry("the adapter does not read", sent)) };
        match asked.answer(PIECE_DEADLINE).await {
            Some(Answer::Delivered(delivered)) => {
                let detail = frames::detail(&delivered.detail);
                match delivered.result {
                    DeliveryResult::Sent => {}
                    DeliveryResult::Retry => {
                        let after = delivered.after_ms.map(Duration::from_millis);
                        return Err(DeliverError::Retry { after, detail, pieces_sent: sent });
                    }
                    DeliveryResult::Refused => return Err(DeliverError::Refused { detail }),
                    DeliveryResult::Unknown => return Err(DeliverError::Ambiguous { detail, pieces_sent: sent }),
                }
            }
            Some(Answer::NotWritten) => return Err(retry("the connection of the adapter ended", sent)),
            Some(Answer::Lost | Answer::LookedUp(_)) | None => {
                let detail = "the adapter did not say what became of it".to_owned();
                return Err(DeliverError::Ambiguous { detail, pieces_sent: sent });
            }
        }
    }
    Ok(())
}

/// Asks the adapter for the pieces that its platform has.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub(crate) async fn look_up(link: &Link, limit: TextLimit, message: &Outbound) -> LookUp {
    let Some(ready) = link.ready() else {
        return LookUp::Later { after: None, detail: "no adapter is connected".to_owned() };
    };
    if !ready.look_up {
        return LookUp::Unknown;
    }
    let count = limit.pieces(&message.text).len();
    for number in message.pieces_sent..u32::try_from(count).unwrap_or(u32::MAX) {
        let key = message.key().piece(number);
        let conversation = message.route.conversation.to_string();
        let asked = link.ask(&key, &ToAdapter::LookUp { key: key.clone(), conversation });
        let answer = match asked {
            Some(asked) => asked.answer(LOOK_UP_DEADLINE).await,
            None => None,
        };
        match answer {
            Some(Answer::LookedUp(Some(true))) => {}
            Some(Answer::LookedUp(Some(false))) if number == message.pieces_sent => return LookUp::NotSent,
            Some(Answer::LookedUp(Some(false))) => return LookUp::Sent { pieces: number },
            Some(Answer::LookedUp(None) | Answer::Delivered(_)) => return LookUp::Unknown,
            Some(Answer::NotWritten | Answer::Lost) | None => {
                return LookUp::Later { after: None, detail: "the adapter does not answer".to_owned() };
            }
        }
    }
    LookUp::Sent { pieces: u32::try_from(count).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests;
