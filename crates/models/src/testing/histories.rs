//! Random histories, as crashes, edits and misbehaving models can leave them. Every format must make a valid request of
//! them.

use belay_agent_loop::normalise;
use belay_protocol::{Arguments, Message, Picture, ToolCall, ToolStatus};
use serde_json::Value;

use super::{Asked, result};

/// Number of histories in a run of the tests, unless [`HISTORIES_VARIABLE`] is set: about a second without optimisation.
const DEFAULT_HISTORIES: u64 = 1_000;

/// The number of these that are also checked without repair. Most of them must be refused, otherwise the check is
/// useless.
const UNREPAIRED_HISTORIES: u64 = 1_000;

/// The variable that sets another number; see `docs/develop/testing.md`.
const HISTORIES_VARIABLE: &str = "BELAY_HISTORIES";

/// Ids and names of calls and results: only a few, so that they collide.
const IDS: [&str; 6] = ["c1", "c2", "c3", "c 4", "", " "];
const NAMES: [&str; 4] = ["clock", "bad name", "", "\u{7}"];
const TEXTS: [&str; 4] = ["hello", "", " \n", "a \"quoted\" 🕰 line"];
const ARGUMENTS: [&str; 4] = ["{}", r#"{"zone":"UTC"}"#, "{\"cut", "[1]"];

/// A pseudo-random number generator (xorshift, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// The history with this number: up to 12 messages in any order.
fn history(number: u64) -> Vec<Message> {
    // Seeds that differ in one bit must give different histories.
    let mut numbers = Numbers(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..numbers.below(13)).map(|_| message(&mut numbers)).collect()
}

fn message(numbers: &mut Numbers) -> Message {
    let text = numbers.of(&TEXTS);
    let message = match numbers.below(10) {
        0 => Message::system(text),
        1 | 2 => Message::user(text).with_pictures(pictures(numbers)),
        3 => Message::assistant(text),
        4..=6 => {
            let calls = (0..=numbers.below(3)).map(|_| ToolCall {
                id: numbers.of(&IDS).into(),
                name: numbers.of(&NAMES).into(),
                arguments: Arguments::parse(numbers.of(&ARGUMENTS)),
            });
            Message::assistant_calls(text, calls.collect())
        }
        _ => {
            let status = [ToolStatus::Success, ToolStatus::Error, ToolStatus::OutcomeUnknown][numbers.below(3)];
            result(numbers.of(&IDS), numbers.of(&NAMES), status, text).with_pictures(pictures(numbers))
        }
    };
    message.with_untrusted(numbers.below(9) == 0)
}

/// One picture, or none.
fn pictures(numbers: &mut Numbers) -> Vec<Picture> {
    vec![Picture { media_type: "image/png".into(), base64: "UE5H".into() }; numbers.below(8) / 7]
}

/// Serialises each history in a format after normalising it, and checks the body.
///
/// # Panics
/// If a body is refused, with the number of its history.
pub(crate) fn every_history_is_accepted(
    body: impl Fn(&Asked) -> Vec<u8>,
    judge: impl Fn(&Value) -> Result<(), String>,
) {
    let most = std::env::var(HISTORIES_VARIABLE).ok().map_or(DEFAULT_HISTORIES, |most| most.parse().unwrap());
    let mut refused = 0;
    for number in 1..=most.max(UNREPAIRED_HISTORIES) {
        let mut asked = Asked::new("be brief", number % 2 == 0, history(number));
        if number <= UNREPAIRED_HISTORIES {
            refused += u64::from(judge(&serde_json::from_slice(&body(&asked.forgetful())).unwrap()).is_err());
        }
        asked.messages = normalise(&asked.messages).into_owned();
        let body: Value = serde_json::from_slice(&body(&asked)).unwrap();
        if let Err(why) = judge(&body) {
            panic!("history {number}: {why}\n{body:#}");
        }
    }
    assert!(
        refused > UNREPAIRED_HISTORIES / 2,
        "only {refused} of {UNREPAIRED_HISTORIES} are refused as they are: the judge is blind"
    );
}
