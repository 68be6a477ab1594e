//! The health of tools over all runs: reports of tools that fail repeatedly, and the store of disabled tools.
//!
//! A *subject* is the unit that can be disabled: a tool, by its name, or an MCP server with all its tools, as
//! `mcp:NAME`. Names of tools have no colon.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::event::NewEvent;
use crate::ids::RunId;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// The prefix of subjects that are MCP servers.
pub const SERVER_PREFIX: &str = "mcp:";

/// The maximum length of a failure's quote, in characters.
pub const FAULT_QUOTE_CHARS: usize = 120;

/// The section `[tools.health]`. It is in this crate since the crate of the tools reads it and that of runs applies it,
/// and neither imports the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolHealthConfig {
    /// The failures in a row after which a tool is reported; at most [`MOST_FAILURES`]. 0: never.
    pub report_after: u32,
    /// The period of these failures, in seconds. 0: unlimited.
    #[serde(skip)]
    pub within_s: u64,
    /// The minimum number of different runs among them.
    #[serde(skip)]
    pub runs: u32,
    /// Further rules for failing tools.
    pub rules: Vec<ToolHealthRule>,
}

/// The table `[[tools.health.rules]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolHealthRule {
    /// Patterns of names: of tools (`web_*`), or of servers (`mcp:*`).
    pub tools: Vec<String>,
    /// The failures in a row; 1 to [`MOST_FAILURES`].
    pub failures: u32,
    /// The period of these failures, in seconds. 0: unlimited.
    #[serde(default = "hour")]
    pub within_s: u64,
    /// The minimum number of different runs among them; 1 to [`MOST_RUNS`].
    #[serde(default = "two")]
    pub runs: u32,
    /// The action of the rule.
    pub action: ToolHealthAction,
    /// The time for which a tool is disabled before one call is let through, in seconds; at most [`LONGEST_OFF_S`]. 0:
    /// until somebody enables it.
    #[serde(default = "hour")]
    pub for_s: u64,
}

/// The upper limit for numbers of failures. 100: the times and runs of this many failures are kept.
pub const MOST_FAILURES: u32 = 100;
/// The upper limit for numbers of runs.
pub const MOST_RUNS: u32 = 20;
/// The maximum time for which a rule disables a tool, in seconds. A day: by then the operator or the remote side has
/// noticed.
pub const LONGEST_OFF_S: u64 = 86_400;
/// The maximum period of counted failures, in seconds: a week.
pub const LONGEST_WITHIN_S: u64 = 604_800;

fn hour() -> u64 {
    3600
}

fn two() -> u32 {
    2
}

impl Default for ToolHealthConfig {
    /// An hour and two runs, as for a rule that does not say: one looping run cannot condemn a tool.
    fn default() -> Self {
        Self { report_after: 5, within_s: hour(), runs: two(), rules: Vec::new() }
    }
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolHealthAction {
    /// The tool is reported.
    Report,
    /// The tool is reported and disabled.
    Disable,
}

/// The kind of a tool's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The tool has reported it, or the remote side has answered with an error or an invalid message.
    Failed,
    /// The tool has exceeded its timeout.
    TimedOut,
    /// The tool has crashed.
    Crashed,
}

impl FaultKind {
    /// The name on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Crashed => "crashed",
        }
    }

    /// The failure, as the end of a sentence about the tool.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolFault {
    /// The time.
    pub at: UnixMillis,
    /// The run of the call.
    pub run_id: RunId,
    /// The kind.
    pub kind: FaultKind,
    /// Twelve hex digits: the same for failures whose texts differ in numbers only.
    pub fingerprint: String,
    /// The beginning of the result, after hooks and without values of sensitive arguments: at most
    /// [`FAULT_QUOTE_CHARS`] characters. Often untrusted content.
    pub quote: String,
}

/// The state of a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// There is nothing to report.
    #[default]
    Ok,
    /// It was reported and has not succeeded since.
    Failing,
    /// It is disabled.
    Off,
    /// It is disabled, and the next call is let through or is running.
    Trial,
    /// It is an MCP server that has not answered since the start of the daemon. Its tools are offered when it does.
    Starting,
    /// It is an MCP server that did not start, or whose tools cannot be listed.
    LeftOut,
    /// It is an MCP server at which a person has to log in.
    NeedsLogin,
}

impl ToolState {
    /// The name on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::Off => "off",
            Self::Trial => "trial",
            Self::Starting => "starting",
            Self::LeftOut => "left_out",
            Self::NeedsLogin => "needs_login",
        }
    }
}

/// The health of a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolHealth {
    /// Its name; `mcp:NAME` for a server.
    pub name: String,
    /// The description that the model reads.
    pub description: String,
    /// The revision of MCP that a server has spoken last; absent for tools, and before the server was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Its state.
    pub state: ToolState,
    /// Its calls since this start of the daemon. Refused and stopped calls are not part of it.
    pub calls: u64,
    /// Those of them that have failed.
    pub failed: u64,
    /// The failures in a row since this start of the daemon, or those for which it was disabled.
    pub failures: u32,
    /// The number of different runs among them, if known.
    pub runs: u32,
    /// The time of the first one, or the time at which it was disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<UnixMillis>,
    /// The time until which it is disabled; absent: until somebody enables it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
    /// The actor that disabled it: `rule`, or a person, whose name only operators see.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub actor: String,
    /// The reason for which it is disabled, or for which its server is left out or needs a login: only operators see the latter two.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The newest failures, oldest first. They may belong to anybody's work: only operators see them, and the list is
    /// empty for others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last: Vec<ToolFault>,
}

impl ToolHealth {
    /// The same without the data that only operators may see.
    pub fn for_everybody(mut self) -> Self {
        self.last.clear();
        if self.actor != BY_RULE {
            self.actor.clear();
        }
        // The cause may have paths of this machine, and words of the server.
        match self.state {
            ToolState::LeftOut => self.detail = "cannot be used".into(),
            ToolState::NeedsLogin => self.detail = "needs a login by an operator".into(),
            _ => {}
        }
        self
    }
}

/// A request about tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolRequest {
    /// List all tools.
    List,
    /// Disable a subject until it is enabled; operators only.
    Disable {
        /// The subject.
        name: String,
        /// The reason, which models read.
        detail: String,
    },
    /// Enable a subject; operators only.
    Enable(String),
}

/// The stored switch of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSwitch {
    /// The subject.
    pub name: String,
    /// Raised with each change. Of two writes the one with the higher revision counts, in any order.
    pub revision: u64,
    /// The reason for which it is disabled; `None`: it is enabled.
    pub off: Option<ToolOff>,
}

/// The reason for which a subject is disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOff {
    /// The time at which it was disabled.
    pub since: UnixMillis,
    /// The time from which one call is let through; `None`: never automatically.
    pub until: Option<UnixMillis>,
    /// The time between, in seconds; doubled if that call fails. 0: none.
    pub for_s: u64,
    /// The actor: `rule`, or a person.
    pub actor: String,
    /// The reason, as the end of a sentence.
    pub detail: String,
    /// The failures in a row.
    pub failures: u32,
    /// The number of different runs among them.
    pub runs: u32,
}

/// The actor of changes by a rule of the configuration.
pub const BY_RULE: &str = "rule";

/// Keeps the switches of subjects.
#[async_trait]
pub trait ToolSwitches: Send + Sync {
    /// All stored switches, by name.
    ///
    /// # Errors
    /// The store fails.
    async fn switches(&self) -> Result<Vec<ToolSwitch>, StoreError>;

    /// Writes a switch and its events. Committed. `false`: the revision is not higher than the stored one, and neither the
    /// switch nor the events are written.
    ///
    /// # Errors
    /// The store fails. The switch may have been written all the same.
    ///
    /// # Cancel safety
    /// If the future is dropped, the switch is written completely or not at all.
    async fn switch(&self, switch: ToolSwitch, events: Vec<NewEvent>) -> Result<bool, StoreError>;
}
