//! `/plan`: the grammar of a message that asks for a plan, or for something about the plan of its conversation. Pure.
//!
//! A request may begin with any words, so a command has a form that a request seldom has: one word alone, or a word and
//! the number of a step. `--` before a request of such a form makes it a request.

use belay_text::near::nearest;
use serde::{Deserialize, Serialize};

/// The word that a message about a plan begins with.
pub const PLAN_WORD: &str = "/plan";

/// Asks for a plan that waits for an approval before its first step.
const REVIEW: &str = "review";

/// The words of commands.
const WORDS: [&str; 6] = ["approve", "hold", "cancel", "change", "add", "drop"];

/// Words that are no request when they stand alone: somebody looks for the command that does this.
const OTHER_WORDS: [&str; 14] = [
    "show", "status", "list", "help", "pause", "wait", "resume", "continue", "go", "stop", "yes", "no", "edit",
    "remove",
];

/// What a person asks about the plan of a conversation. Steps are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanCommand {
    /// Shows it.
    Show,
    /// The plan that waits goes on.
    Approve,
    /// No further step begins before an approval.
    Hold,
    /// Ends it.
    Cancel,
    /// Replaces the text of a step.
    Change {
        /// The number of the step.
        step: u64,
        /// Its new text.
        text: String,
    },
    /// Adds a step.
    Add {
        /// The number of the new step. The step that had it, and those after it, move by one.
        step: u64,
        /// Its text.
        text: String,
    },
    /// Leaves a step out.
    Drop {
        /// The number of the step.
        step: u64,
    },
}

/// The meaning of a message that begins with [`PLAN_WORD`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanMessage {
    /// A request, which becomes a run.
    Request(PlanRequest),
    /// A command about the plan of the conversation. It acts at once.
    Command(PlanCommand),
    /// A command with a missing or invalid argument. The text is its usage.
    Usage(&'static str),
}

/// A request for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The request.
    pub text: String,
    /// Whether the plan waits for an approval before its first step.
    pub review: bool,
}

const USAGE: &str = "/plan shows the plan here. /plan TEXT makes one and carries it out; /plan --review TEXT makes one and \
waits for /plan approve. /plan change N TEXT, /plan add N TEXT and /plan drop N change steps that have not begun; \
/plan hold waits before the next step; /plan cancel ends the plan. A request that looks like one of these is written \
after two dashes: /plan -- add 3 pictures.";

impl PlanMessage {
    /// The meaning of a text; `None`: it does not begin with [`PLAN_WORD`].
    pub fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let word = word.split_once('@').map_or(word, |(word, _bot)| word);
        word.eq_ignore_ascii_case(PLAN_WORD).then(|| Self::parse(rest.trim()))
    }

    /// The meaning of the text after [`PLAN_WORD`].
    pub fn parse(text: &str) -> Self {
        if text.is_empty() {
            return Self::Command(PlanCommand::Show);
        }
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        // Keyboards of phones make one long dash of two.
        if let Some(option) = first.strip_prefix("--").or_else(|| first.strip_prefix('—')) {
            let review = option.eq_ignore_ascii_case(REVIEW);
            return match (review || option.is_empty()) && !rest.is_empty() {
                true => Self::Request(PlanRequest { text: rest.to_owned(), review }),
                false => Self::Usage(USAGE),
            };
        }
        let word = first.to_ascii_lowercase();
        let command = match (word.as_str(), rest) {
            ("approve", "") => Some(PlanCommand::Approve),
            ("hold", "") => Some(PlanCommand::Hold),
            ("cancel", "") => Some(PlanCommand::Cancel),
            ("change" | "add" | "drop", "") => None,
            ("change" | "add" | "drop", rest) => match Number::of(rest) {
                Some(number) => number.command(&word),
                None => return Self::request(text),
            },
            (word, "") if OTHER_WORDS.contains(&word) || nearest(word, WORDS).is_some() => None,
            _ => return Self::request(text),
        };
        command.map_or(Self::Usage(USAGE), Self::Command)
    }

    fn request(text: &str) -> Self {
        Self::Request(PlanRequest { text: text.to_owned(), review: false })
    }

    /// Whether the message becomes a run.
    pub fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }
}

/// The number after a word, and the text after it.
struct Number<'a> {
    /// `None`: no step can have it.
    step: Option<u64>,
    text: &'a str,
}

impl<'a> Number<'a> {
    /// `None`: the text does not begin with a number.
    fn of(text: &'a str) -> Option<Self> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let word = word.trim_start_matches('#').trim_end_matches(['.', ':', ',', ')']);
        let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
        let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
        is_number.then(|| Self { step: word.parse().ok(), text: rest.trim() })
    }

    /// The command; `None`: an argument is missing, or one is too much.
    fn command(self, word: &str) -> Option<PlanCommand> {
        let (step, text) = (self.step?, self.text.to_owned());
        match (word, text.is_empty()) {
            ("drop", true) => Some(PlanCommand::Drop { step }),
            ("change", false) => Some(PlanCommand::Change { step, text }),
            ("add", false) => Some(PlanCommand::Add { step, text }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_asks_for_a_plan_or_is_a_command_about_it() {
        use PlanCommand::{Add, Approve, Cancel, Change, Drop, Hold, Show};
        let request = |text: &str, review| Some(PlanMessage::Request(PlanRequest { text: text.into(), review }));
        let command = |command| Some(PlanMessage::Command(command));
        let usage = || Some(PlanMessage::Usage(USAGE));
        for (text, expected) in [
            ("/plan", command(Show)),
            (" /PLAN@MyBot ", command(Show)),
            ("/plan Approve", command(Approve)),
            ("/plan hold", command(Hold)),
            ("/plan cancel", command(Cancel)),
            ("/plan change 2  say\nmore ", command(Change { step: 2, text: "say\nmore".into() })),
            ("/plan change #2: say more", command(Change { step: 2, text: "say more".into() })),
            ("/plan ADD 0 x", command(Add { step: 0, text: "x".into() })),
            ("/plan drop 12", command(Drop { step: 12 })),
            ("/plan drop", usage()),
            ("/plan aprove", usage()),
            ("/plan resume", usage()),
            ("/plan dinner", request("dinner", false)),
            ("/plan drop 2 tables", usage()),
            ("/plan drop -1", usage()),
            ("/plan drop 99999999999999999999", usage()),
            ("/plan change 2", usage()),
            ("/plan --review", usage()),
            ("/plan --slowly tidy", usage()),
            ("/plan --review tidy up", request("tidy up", true)),
            ("/plan —Review tidy up", request("tidy up", true)),
            ("/plan -- drop 2 tables", request("drop 2 tables", false)),
            ("/plan tidy up", request("tidy up", false)),
            ("/plan approve the bills", request("approve the bills", false)),
            ("/plan add a test", request("add a test", false)),
            ("/planning", None),
            ("please /plan", None),
            ("", None),
        ] {
            assert_eq!(PlanMessage::of(text), expected, "{text}");
        }
    }
}
