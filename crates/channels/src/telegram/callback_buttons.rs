//! The buttons under an approval request, and the handling of a tap on one.
//!
//! A tap is authenticated like a message: by the id of the person who made it. The agent decides whether this person
//! may answer and whether the request is still open. Telegram then shows the person the agent's answer.

use std::time::Duration;

use belay_protocol::{Ack, ApprovalId, Decision, Question, Refusal};
use serde::de::IgnoredAny;
use tracing::debug;

use super::api::BotApi;
use super::split::pieces;
use super::wire::{AnswerCallbackQuery, Button, CallbackQuery, EditMessageReplyMarkup, Keyboard, Message};

/// Deadline of each call. Short: the webhook's response waits for it, and the person does not wait much longer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Prefix of a button's data.
const PREFIX: &str = "belay";

/// Bot API, answerCallbackQuery, `text`: "0-200 characters".
const TEXT_MAX_CHARS: usize = 200;

const NOT_TAKEN: &str = "Belay cannot take this answer now. Please tap again later.";

/// A tap, which Telegram expects an answer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ButtonPress {
    /// Telegram's id of the tap.
    query: String,
    /// The chat and the message that the button belongs to.
    message: Option<(i64, i32)>,
}

impl ButtonPress {
    pub(super) fn of(query: &CallbackQuery) -> Self {
        let message = query.message.as_ref().map(|message| (message.chat.id, message.message_id));
        let message = message.filter(|(_, id)| *id != 0); // that of an ephemeral message
        Self { query: query.id.clone(), message }
    }
}

/// The message that a tapped button belongs to. `None` if Telegram no longer shows it (Bot API, InaccessibleMessage: its
/// date is always 0).
pub(super) fn message_of(query: &CallbackQuery) -> Option<&Message> {
    query.message.as_ref().filter(|message| message.date != Some(0))
}

/// The buttons of an approval request; `None` for a question that is answered by typing.
pub(super) fn keyboard(question: &Question) -> Option<Keyboard> {
    if !question.decidable {
        return None;
    }
    let always = question.offers_always.then_some(("♾ Always", Decision::Always));
    let buttons = [Some(("✅ Approve", Decision::Approve)), always, Some(("❌ Deny", Decision::Deny))];
    let row = buttons
        .into_iter()
        .flatten()
        .map(|(words, decision)| Button { text: words, callback_data: data(question.approval, decision) });
    Some(Keyboard { inline_keyboard: vec![row.collect()] })
}

/// The data that a button sends back: 44 bytes. Bot API, InlineKeyboardButton, `callback_data`: "1-64 bytes".
fn data(approval: ApprovalId, decision: Decision) -> String {
    let letter = match decision {
        Decision::Approve => 'a',
        Decision::Always => 'y',
        Decision::Deny => 'd',
    };
    format!("{PREFIX}:{letter}:{approval}")
}

/// Parses a button's data into the request and the decision.
pub(super) fn parse(data: &str) -> Option<(ApprovalId, Decision)> {
    let (letter, approval) = data.strip_prefix(PREFIX)?.strip_prefix(':')?.split_once(':')?;
    let decision = match letter {
        "a" => Decision::Approve,
        "y" => Decision::Always,
        "d" => Decision::Deny,
        _ => return None,
    };
    Some((approval.parse().ok()?, decision))
}

/// Tells the person the result of a tap, and removes the buttons if the request is closed. Best effort: failures are
/// logged and do not change the decision.
pub(super) async fn answer(api: &BotApi, press: &ButtonPress, ack: Option<&Ack>) {
    let answer = PressAnswer::of(ack);
    answer_query(api, press, &answer.text, answer.is_alert).await;
    let Some((chat, message_id)) = press.message.filter(|_| answer.is_over) else { return };
    let parameters = EditMessageReplyMarkup { chat_id: chat, message_id };
    if let Err(error) = api.call::<_, IgnoredAny>("editMessageReplyMarkup", &parameters, DEADLINE).await {
        debug!(detail = %error, "the buttons of a question were not taken away");
    }
}

/// Answers a tap with a short notice, or with an alert that the person must close.
pub(super) async fn answer_query(api: &BotApi, press: &ButtonPress, text: &str, is_alert: bool) {
    let parameters = AnswerCallbackQuery { callback_query_id: &press.query, text, show_alert: is_alert };
    if let Err(error) = api.call::<_, IgnoredAny>("answerCallbackQuery", &parameters, DEADLINE).await {
        debug!(detail = %error, "a tap was not answered");
    }
}

/// The answer to a tap, derived from the acknowledgement.
#[derive(Debug, PartialEq, Eq)]
struct PressAnswer {
    text: String,
    is_alert: bool,
    /// Whether the request can no longer be answered.
    is_over: bool,
}

impl PressAnswer {
    fn of(ack: Option<&Ack>) -> Self {
        let (text, is_alert, is_over) = match ack {
            Some(Ack::Command(reply)) => (reply.reply.clone(), false, true),
            Some(Ack::Refused(Refusal::Decided(words) | Refusal::Unknown(words))) => (words.clone(), true, true),
            Some(Ack::Refused(Refusal::Forbidden(words) | Refusal::Invalid(words))) => (words.clone(), true, false),
            _ => (NOT_TAKEN.to_owned(), true, false),
        };
        // Telegram shows only plain text here.
        let text = pieces(&text).first().map(|piece| piece.plain.chars().take(TEXT_MAX_CHARS).collect());
        Self { text: text.unwrap_or_default(), is_alert, is_over }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_protocol::CommandReply;

    use super::*;

    fn question(offers_always: bool, decidable: bool) -> Question {
        Question { approval: ApprovalId::new(), offers_always, decidable }
    }

    #[test]
    fn what_a_button_sends_comes_back_as_its_answer() {
        let question = question(true, true);
        let keyboard = keyboard(&question).expect("buttons");
        let sent: Vec<_> = keyboard.inline_keyboard.concat().into_iter().map(|it| it.callback_data).collect();
        assert!(sent.iter().all(|data| data.len() <= 64), "{sent:?}");
        let answers: Vec<_> = sent.iter().map(|data| parse(data)).collect();
        let of = |decision| Some((question.approval, decision));
        assert_eq!(answers, [of(Decision::Approve), of(Decision::Always), of(Decision::Deny)]);
    }

    #[test]
    fn always_is_a_button_only_where_it_is_offered_and_a_secret_has_none() {
        let words = |question: Question| {
            let rows = keyboard(&question).map(|keyboard| keyboard.inline_keyboard.concat()).unwrap_or_default();
            rows.into_iter().map(|button| button.text).collect::<Vec<_>>()
        };
        assert_eq!(words(question(false, true)), ["✅ Approve", "❌ Deny"]);
        assert_eq!(words(question(true, false)), [""; 0]);
    }

    #[test]
    fn foreign_data_is_no_answer() {
        let approval = ApprovalId::new();
        for data in [
            "",
            "belay",
            "belay:a",
            "belay:x:1",
            "belay:a:1",
            &format!("other:a:{approval}"),
            &format!("belay:A:{approval}"),
        ] {
            assert_eq!(parse(data), None, "{data:?}");
        }
    }

    #[test]
    fn a_tap_is_answered_with_its_result_and_the_buttons_of_a_closed_request_are_removed() {
        let command = |reply: &str| {
            Ack::Command(CommandReply {
                command: "/approve".into(),
                reply: reply.into(),
                resumes: None,
                refused: false,
            })
        };
        let refused = Ack::Refused;
        for (ack, text, is_alert, is_over) in [
            (Some(command("**Approved.**")), "Approved.", false, true),
            (Some(refused(Refusal::Decided("It was denied before.".into()))), "It was denied before.", true, true),
            (Some(refused(Refusal::Unknown("No such question.".into()))), "No such question.", true, true),
            (Some(refused(Refusal::Forbidden("Not yours.".into()))), "Not yours.", true, false),
            (Some(refused(Refusal::Busy { what: "x".into(), retry_after: Duration::ZERO })), NOT_TAKEN, true, false),
            (None, NOT_TAKEN, true, false),
        ] {
            assert_eq!(PressAnswer::of(ack.as_ref()), PressAnswer { text: text.into(), is_alert, is_over }, "{ack:?}");
        }
        assert_eq!(PressAnswer::of(Some(&command(&"é".repeat(900)))).text.chars().count(), TEXT_MAX_CHARS);
    }
}
