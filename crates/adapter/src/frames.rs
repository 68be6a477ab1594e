//! The frames on the wire: each of them is a text, and a JSON object with a `type`.
//!
//! An unknown field is ignored, and an unknown `type` is answered with an `error` frame: an adapter may be newer than Belay.

mod to_adapter;

use belay_protocol::Decision;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use self::to_adapter::ToAdapter;

/// The version of the protocol, in `hello`. A change that an adapter must know of raises it.
pub(crate) const PROTOCOL: u32 = 1;

/// The maximum length of a text, in bytes.
pub(crate) const TEXT_MAX: usize = 64 * 1024;

/// The maximum length of a text of the adapter in the log and for people, in characters.
const DETAIL_MAX: usize = 300;

/// A frame of the adapter.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum FromAdapter {
    /// The first one.
    Ready(Ready),
    /// A person has written.
    Message(Said),
    /// A person has changed an earlier message.
    Edit(Said),
    /// A person has answered a question by a button.
    Decide(Decide),
    /// Everything before this frame was read up to here.
    Cursor { value: String },
    /// The result of a `deliver`.
    Delivered(Delivered),
    /// The answer to a `look_up`.
    LookedUp(LookedUp),
}

/// The abilities of the adapter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ready {
    /// Whether the adapter answers `look_up`.
    pub look_up: bool,
}

/// A message of a person.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Said {
    /// The platform's id of the message. A repetition has the same one.
    pub id: String,
    pub sender: Sender,
    /// The conversation; absent: the private one of the sender.
    #[serde(default)]
    pub conversation: Option<String>,
    pub text: String,
    /// In a conversation of several people: whether the message is for Belay.
    #[serde(default)]
    pub addressed: bool,
    /// Whether a program wrote the text.
    #[serde(default)]
    pub bot: bool,
    /// Whether the person has passed on a text that somebody else wrote.
    #[serde(default)]
    pub forwarded: bool,
    /// The message that it replies to.
    #[serde(default)]
    pub reply_to: Option<Quoted>,
}

/// A person.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Sender {
    /// The platform's id, which the person cannot choose.
    pub id: String,
    #[serde(default)]
    pub name: Option<String>,
}

/// A message that another one replies to.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Quoted {
    pub text: String,
    /// Whether Belay wrote it.
    #[serde(default)]
    pub own: bool,
    #[serde(default)]
    pub name: Option<String>,
}

/// The answer to a question by a button.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Decide {
    /// The id of the tap, which its `ack` repeats.
    pub id: String,
    pub sender: Sender,
    #[serde(default)]
    pub conversation: Option<String>,
    /// `approval` of the question.
    pub approval: String,
    pub decision: Decision,
}

/// The result of a delivery.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Delivered {
    pub key: String,
    pub result: DeliveryResult,
    #[serde(default)]
    pub after_ms: Option<u64>,
    #[serde(default)]
    pub detail: String,
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeliveryResult {
    /// The platform has it.
    Sent,
    /// The platform does not have it now. It is delivered again.
    Retry,
    /// The platform never takes it.
    Refused,
    /// Nobody can know. Also any word that Belay does not know.
    #[serde(other)]
    Unknown,
}

/// Whether the platform has a piece.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LookedUp {
    pub key: String,
    /// Absent or null: nobody can know.
    #[serde(default)]
    pub sent: Option<bool>,
}

/// Reads a frame.
///
/// # Errors
/// The mistake in it on one line of at most 300 characters, for the author of the adapter.
pub(crate) fn read(text: &str) -> Result<FromAdapter, String> {
    let wrong = |error: String| detail(&error);
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(format!("the frame is no JSON: {error}")))?;
    let kind = value["type"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(value).map_err(|error| wrong(format!("frame of type \"{kind}\": {error}")))
}

/// A text of an adapter for the log and for people: on one line, with escapes for hidden characters, cut to 300
/// characters.
pub(crate) fn detail(text: &str) -> String {
    let begin: String = text.chars().take(DETAIL_MAX).collect(); // an escape is longer than its character
    belay_text::escaped_line(&begin).chars().take(DETAIL_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_an_adapter_are_one_short_line() {
        for (text, shown) in [
            ("channel is full", "channel is full".to_owned()),
            ("a\nb\u{1b}[31m\u{202e}", "a\\nb\\u{1b}[31m\\u{202e}".to_owned()),
            (&"x".repeat(1_000), "x".repeat(DETAIL_MAX)),
            (&"\n".repeat(1_000), "\\n".repeat(DETAIL_MAX / 2)),
        ] {
            assert_eq!(detail(text), shown);
        }
        let error = read(&format!(r#"{{"type":"a\n{}"}}"#, "x".repeat(1_000))).expect_err("no such type");
        assert!(error.chars().count() <= DETAIL_MAX && !error.contains('\n'), "{error}");
    }
}
