//! How tools get on over all runs: what is told of one that fails again and again, and what keeps one switched off.
//!
//! A *subject* is what can be switched off: a tool, by its name, or an MCP server with all its tools, as `mcp:NAME`. No name of
//! a tool has a colon.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::event::NewEvent;
use crate::ids::RunId;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Stands before the name of an MCP server that is a subject.
pub const SERVER_PREFIX: &str = "mcp:";

/// Longest quote of a failure, in characters.
pub const FAULT_QUOTE_CHARS: usize = 120;

/// The section `[tools.health]`. It is here since the section belongs to the tools, and is acted on by the agent, and neither
/// knows the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolHealthConfig {
    /// Failures in a row after which a tool is reported; at most [`MOST_FAILURES`]. 0: none is.
    pub report_after: u32,
    /// Seconds within which they lie. 0: however long ago they were.
    pub within_s: u64,
    /// How many different runs they are of, at least; 1 to [`MOST_RUNS`].
    pub runs: u32,
    /// What else becomes of tools that fail.
    pub rules: Vec<ToolHealthRule>,
}

/// `[[tools.health.rules]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolHealthRule {
    /// Patterns of names: of tools (`web_*`), or of servers (`mcp:*`).
    pub tools: Vec<String>,
    /// Failures in a row; 1 to [`MOST_FAILURES`].
    pub failures: u32,
    /// Seconds within which they lie. 0: however long ago they were.
    #[serde(default = "hour")]
    pub within_s: u64,
    /// How many different runs they are of, at least; 1 to [`MOST_RUNS`].
    #[serde(default = "two")]
    pub runs: u32,
    /// What happens.
    pub action: ToolHealthAction,
    /// Seconds that a tool is switched off for, before one call is let through; at most [`LONGEST_OFF_S`]. 0: until somebody
    /// switches it on.
    #[serde(default = "hour")]
    pub for_s: u64,
}

/// Upper end of the numbers of failures. 100: of so many, the times and the runs are kept.
pub const MOST_FAILURES: u32 = 100;
/// Upper end of the numbers of runs.
pub const MOST_RUNS: u32 = 20;
/// Longest time that a tool is switched off by a rule, in seconds. A day: by then somebody has looked, or the other side has.
pub const LONGEST_OFF_S: u64 = 86_400;
/// Longest time within which failures are counted, in seconds. A week.
pub const LONGEST_WITHIN_S: u64 = 604_800;

fn hour() -> u64 {
    3600
}

fn two() -> u32 {
    2
}

impl Default for ToolHealthConfig {
    fn default() -> Self {
        Self { report_after: 5, within_s: hour(), runs: two(), rules: Vec::new() }
    }
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolHealthAction {
    /// The tool is reported.
    Report,
    /// The tool is reported, and switched off.
    Disable,
}

/// In which way a tool has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It said so itself, or the other side answered with an error or with what cannot be read.
    Failed,
    /// It gave no result within its time.
    TimedOut,
    /// It crashed.
    Crashed,
}

impl FaultKind {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Crashed => "crashed",
        }
    }

    /// What it did, as the end of a sentence about it.
    pub fn told(self) -> &'static str {
        match self {
            Self::Failed => "it said that it had failed",
            Self::TimedOut => "it gave no result in time",
            Self::Crashed => "it crashed",
        }
    }
}

/// One failure, as evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolFault {
    /// When.
    pub at: UnixMillis,
    /// The run that had called.
    pub run_id: RunId,
    /// In which way.
    pub kind: FaultKind,
    /// Twelve hex digits, the same for failures in the same words but for their numbers.
    pub fingerprint: String,
    /// How the result begins, as hooks have left it, without values of sensitive arguments: at most [`FAULT_QUOTE_CHARS`]
    /// characters, often words of the outside.
    pub quote: String,
}

/// How a subject stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// There is nothing to report.
    #[default]
    Ok,
    /// It was reported, and has not succeeded since.
    Failing,
    /// It is switched off.
    Off,
    /// It is switched off, and the next call is let through, or one is under way.
    Trial,
}

impl ToolState {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::Off => "off",
            Self::Trial => "trial",
        }
    }
}

/// A subject, and how it gets on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolHealth {
    /// Its name; `mcp:NAME` for a server.
    pub name: String,
    /// What it is for, as the model reads it.
    pub description: String,
    /// How it stands.
    pub state: ToolState,
    /// Failures in a row since this start of the daemon, or those that it was switched off for.
    pub failures: u32,
    /// Of how many different runs they are, as far as that is known.
    pub runs: u32,
    /// When the first of them was, or when it was switched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<UnixMillis>,
    /// Until when it is switched off; absent where that is until somebody switches it on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
    /// Who switched it off: `rule`, or a person, whom operators alone are shown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub actor: String,
    /// Why it is switched off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The newest failures, oldest first. They may be of anybody's work: for operators alone, and empty for others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last: Vec<ToolFault>,
}

impl ToolHealth {
    /// The same without what is for operators alone.
    pub fn for_everybody(mut self) -> Self {
        self.last.clear();
        if self.actor != BY_RULE {
            self.actor.clear();
        }
        self
    }
}

/// What is asked about tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolRequest {
    /// All of them.
    List,
    /// Switch one off until it is switched on; operators only.
    Disable {
        /// Which.
        name: String,
        /// Why; models read it.
        detail: String,
    },
    /// Switch one on; operators only.
    Enable(String),
}

/// How a subject is switched, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSwitch {
    /// Which.
    pub name: String,
    /// Rises with every change: of two that are written, the higher one counts, in whatever order they come.
    pub revision: u64,
    /// Why it is off; `None`: it is on.
    pub off: Option<ToolOff>,
}

/// Why a subject is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOff {
    /// Since when.
    pub since: UnixMillis,
    /// From when on one call is let through; `None`: never by itself.
    pub until: Option<UnixMillis>,
    /// The span between, in seconds; doubled when that call fails. 0: none.
    pub for_s: u64,
    /// Who: `rule`, or a person.
    pub actor: String,
    /// Why, as the end of a sentence.
    pub detail: String,
    /// Failures in a row.
    pub failures: u32,
    /// Of how many different runs they were.
    pub runs: u32,
}

/// Who by: a rule of the configuration.
pub const BY_RULE: &str = "rule";

/// Keeps what is switched off.
#[async_trait]
pub trait ToolSwitches: Send + Sync {
    /// All that were ever written, by name.
    ///
    /// # Errors
    /// The store does not answer.
    async fn switches(&self) -> Result<Vec<ToolSwitch>, StoreError>;

    /// Writes one, with what is told of it. Committed. One whose revision is not higher than the stored one changes nothing,
    /// and what is told of it is not stored either.
    ///
    /// # Errors
    /// The store does not answer; it may have been written all the same.
    ///
    /// # Cancel safety
    /// Dropped midway, it is written whole or not at all.
    async fn switch(&self, switch: ToolSwitch, events: Vec<NewEvent>) -> Result<(), StoreError>;
}
