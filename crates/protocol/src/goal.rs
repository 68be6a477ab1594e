//! `/goal`: the grammar of a message that asks for work until a check holds, or for something about the goal of its
//! conversation. Pure.
//!
//! `/goal [--attempts N] [--usd X] [--minutes N | --seconds N] TEXT until CHECK [and CHECK …]`. A request of a program is
//! written in the same form ([`GoalRequest::written`]), so that the message alone says what is asked, as with `/plan`.

mod budget;
mod check;
mod words;

use crate::declared::DeclaredOutput;
use serde::{Deserialize, Serialize};

/// The word that a message about a goal begins with.
pub const GOAL_WORD: &str = "/goal";

/// The attempts of a goal that names no number.
pub const GOAL_ATTEMPTS: u32 = 5;

/// Most attempts of a goal. 100: the limits of a run come first for nearly all of them.
pub const GOAL_MAX_ATTEMPTS: u32 = 100;

const USAGE: &str = "/goal TEXT until CHECK works until the check holds. CHECK is a command in backticks (until `make \
test`), or run COMMAND, or outputs NAME:TYPE, or judge \"CRITERION\"; `and` joins several, and all must hold. Before TEXT: \
--attempts N, --usd X, --minutes N or --seconds N. /goal shows the goal here, /goal cancel ends it.";
const NO_UNTIL: &str = "`until CHECK` is missing behind the text.";
const NO_TEXT: &str = "The text before `until` is missing.";
const NO_CHECK: &str =
    "No check is in the last 8 KiB of the goal, and a check may be no longer. `until CHECK` is the end of it.";
const NO_SHELL: &str = "No shell reads the command of a goal: it has no pipes, redirections, wildcards, variables or \
several commands. Write those into a script of the workspace, or as: run sh -c '…'.";
const BUDGET_OF_JOB: &str = "A goal of a job has no --usd, --minutes or --seconds of its own: use the budget of the job. --attempts is \
its own.";
const BAD_BUDGET: &str = "The budget of a goal: --attempts 1 to 100, --usd above 0, --minutes or --seconds at least 1.";

/// Most bytes of the checks of a goal, as they are written. 8 KiB: four criteria of the greatest length. It also bounds the
/// places at which a text is read for them.
const CHECKS_MAX_BYTES: usize = 8 * 1024;

/// A person's question or order about the goal of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalCommand {
    /// Shows it.
    Show,
    /// Ends it.
    Cancel,
}

/// The meaning of a message that begins with [`GOAL_WORD`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoalMessage {
    /// A request, which becomes a run.
    Request(Box<GoalRequest>),
    /// A command about the goal of the conversation. It acts at once.
    Command(GoalCommand),
    /// A request or a command that cannot be read. The text says why.
    Usage(String),
}

/// A request for work until a check holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoalRequest {
    /// The task.
    pub text: String,
    /// When it is done. At least one check; all must hold.
    pub until: GoalCheck,
    /// Its budget.
    pub budget: GoalBudget,
}

/// The checks of a goal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoalCheck {
    /// The words of a command that ends with exit code 0.
    pub command: Option<Vec<String>>,
    /// Outputs that are submitted, each as [`DeclaredOutput::parse`] reads it.
    pub outputs: Vec<String>,
    /// A criterion that a model judges by quotes of the work.
    pub judge: Option<String>,
}

/// The budget of a goal. It never exceeds the limits of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoalBudget {
    /// Attempts. `None`: [`GOAL_ATTEMPTS`].
    pub attempts: Option<u32>,
    /// Millionths of a US dollar.
    pub micro_usd: Option<u64>,
    /// Seconds of work, without waits for a person.
    pub seconds: Option<u64>,
}

impl GoalMessage {
    /// The meaning of a text; `None`: it does not begin with [`GOAL_WORD`].
    pub fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let word = word.split_once('@').map_or(word, |(word, _bot)| word);
        word.eq_ignore_ascii_case(GOAL_WORD).then(|| Self::parse(rest.trim()))
    }

    /// The meaning of the text after [`GOAL_WORD`].
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "" | "show" | "status" => Self::Command(GoalCommand::Show),
            "cancel" | "stop" => Self::Command(GoalCommand::Cancel),
            _ => match GoalRequest::parse(text) {
                Ok(request) => Self::Request(Box::new(request)),
                Err(usage) => Self::Usage(usage),
            },
        }
    }

    /// The request that a text is; `None`: it is none.
    pub fn request(text: &str) -> Option<Box<GoalRequest>> {
        match Self::of(text)? {
            Self::Request(request) => Some(request),
            Self::Command(_) | Self::Usage(_) => None,
        }
    }

    /// Whether the message becomes a run.
    pub fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }
}

impl GoalRequest {
    /// # Errors
    /// The mistake, and the right form.
    fn parse(text: &str) -> Result<Self, String> {
        let (budget, text) = GoalBudget::parse(text)?;
        let mut problem = match text.strip_prefix("until") {
            _ if text.len() > CHECKS_MAX_BYTES => NO_CHECK.to_owned(),
            Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => format!("{NO_TEXT} {USAGE}"),
            _ => format!("{NO_UNTIL} {USAGE}"),
        };
        for (at, word) in text.match_indices("until") {
            let (before, after) = (&text[..at], &text[at + word.len()..]);
            let stands_alone = before.ends_with(char::is_whitespace) && after.starts_with(char::is_whitespace);
            if !stands_alone || after.len() > CHECKS_MAX_BYTES || before.trim().is_empty() {
                continue;
            }
            match GoalCheck::parse(after) {
                Ok(until) => return Ok(Self { text: before.trim().to_owned(), until, budget }),
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }

    /// The message that asks for this.
    ///
    /// # Errors
    /// It cannot be written so that it is read again as the same.
    pub fn written(&self) -> Result<String, String> {
        let message =
            format!("{GOAL_WORD} {}{} until {}", self.budget.written(), self.text.trim(), self.until.written());
        match GoalMessage::of(&message) {
            Some(GoalMessage::Request(read)) if *read == *self => Ok(message),
            Some(GoalMessage::Usage(why)) => Err(why),
            _ => Err("the text or a check of the goal cannot be told apart from another check".to_owned()),
        }
    }

    /// The most attempts.
    pub fn attempts(&self) -> u32 {
        self.budget.attempts.unwrap_or(GOAL_ATTEMPTS)
    }

    /// Checks that a job may work for this.
    ///
    /// # Errors
    /// It has money or time of its own, which would not count.
    pub fn check_for_job(&self) -> Result<(), &'static str> {
        let GoalBudget { attempts: _, micro_usd, seconds } = &self.budget;
        if micro_usd.is_some() || seconds.is_some() { Err(BUDGET_OF_JOB) } else { Ok(()) }
    }

    /// The outputs that the run must submit.
    pub fn outputs(&self) -> Vec<DeclaredOutput> {
        self.until.outputs.iter().filter_map(|text| DeclaredOutput::parse(text).ok()).collect() // read before
    }
}

#[cfg(test)]
mod tests;
