//! Runs: where one stands, what it used, and its record.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::approval::{Gate, GateKind};
use crate::ids::{GateId, RunId, SessionKey};
use crate::model::Usage;
use crate::run_status::RunStatus;
use crate::stop::StopReason;
use crate::time::UnixMillis;

/// What a run's agent is doing, in the words of agent frameworks; still told after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AgentState {
    /// Nothing yet, or it waits for a person.
    Idle,
    /// It works.
    Running,
    /// It has come to an end: of its own, or because it was stopped.
    Finished,
    /// It has failed.
    Error,
}

impl From<RunStatus> for AgentState {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Accepted | RunStatus::Queued | RunStatus::Paused => Self::Idle,
            RunStatus::Running => Self::Running,
            RunStatus::Completed | RunStatus::Stopped => Self::Finished,
            RunStatus::Failed => Self::Error,
        }
    }
}

/// Writes a status and, beside it, the state that follows from it.
fn with_agent_state<S: Serializer>(status: &RunStatus, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("status", status)?;
    map.serialize_entry("agent_state", &AgentState::from(*status))?;
    map.end()
}

/// A run as the outside sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRecord {
    /// Its id; survives restarts.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// Where it stands. On the wire `agent_state` follows it.
    #[serde(flatten, serialize_with = "with_agent_state")]
    pub status: RunStatus,
    /// Why it ended; `null` while it goes on.
    pub reason: Option<StopReason>,
    /// What was seen when it ended.
    pub evidence: Map<String, Value>,
    /// The answer, or the line that says why there is none; `null` while it goes on.
    pub reply: Option<String>,
    /// What it used.
    pub usage: RunUsage,
    /// What it cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// How often it was taken up, from 1; 0 before it started.
    pub attempt: u32,
    /// When it was committed.
    pub accepted_at: UnixMillis,
    /// When it was first taken up.
    pub started_at: Option<UnixMillis>,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
    /// What it waits for, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
}

/// What a paused run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingFor {
    /// The question: what an answer names.
    pub approval: GateId,
    /// A yes or no, or a secret.
    #[serde(flatten)]
    pub kind: GateKind,
    /// The tool.
    pub tool: String,
    /// What the call would do.
    pub summary: String,
    /// When silence becomes a denial.
    pub expires_at: UnixMillis,
}

impl From<&Gate> for WaitingFor {
    fn from(gate: &Gate) -> Self {
        Self {
            approval: gate.id,
            kind: gate.kind.clone(),
            tool: gate.tool.clone(),
            summary: gate.summary.clone(),
            expires_at: gate.expires_at,
        }
    }
}

/// How a subagent ended, in the words of agent frameworks. The reason beside it says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Termination {
    /// With what it was asked for.
    Goal,
    /// Its steps were used up.
    MaxTurns,
    /// Its time was up.
    Timeout,
    /// It could not go on, gave up, or was ended by a rule or a limit of the whole run.
    Error,
    /// It was stopped together with the run that started it.
    Aborted,
}

impl Termination {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Goal => "GOAL",
            Self::MaxTurns => "MAX_TURNS",
            Self::Timeout => "TIMEOUT",
            Self::Error => "ERROR",
            Self::Aborted => "ABORTED",
        }
    }
}

/// What a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunUsage {
    /// Tokens read.
    pub input: u64,
    /// Tokens generated.
    pub output: u64,
    /// Requests sent to the model, failed ones included.
    pub model_calls: u32,
    /// Tool calls that were executed.
    pub tool_calls: u32,
    /// Of the requests, those whose tokens and cost are estimated, since the provider did not report them, or not all of
    /// them: it broke off, was stopped, or does not count. Absent where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimated_calls: u32,
}

// Serde passes references.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl RunUsage {
    /// Adds what another run has used.
    pub fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.estimated_calls = self.estimated_calls.saturating_add(other.estimated_calls);
    }

    /// Adds one model call of so many requests, of which `estimated` have figures that the provider did not report.
    pub fn add_call(&mut self, attempts: u32, usage: &Usage, estimated: u32) {
        self.model_calls = self.model_calls.saturating_add(attempts);
        self.input = self.input.saturating_add(usage.input);
        self.output = self.output.saturating_add(usage.output);
        self.estimated_calls = self.estimated_calls.saturating_add(estimated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_with_the_state_that_agent_frameworks_know() {
        #[derive(Serialize)]
        struct Row {
            #[serde(flatten, serialize_with = "with_agent_state")]
            status: RunStatus,
            attempt: u32,
        }
        for (status, state) in [
            (RunStatus::Accepted, "IDLE"),
            (RunStatus::Paused, "IDLE"),
            (RunStatus::Running, "RUNNING"),
            (RunStatus::Completed, "FINISHED"),
            (RunStatus::Stopped, "FINISHED"),
            (RunStatus::Failed, "ERROR"),
        ] {
            let row = serde_json::to_value(Row { status, attempt: 1 }).expect("serialises");
            let expected = serde_json::json!({ "status": status.word(), "agent_state": state, "attempt": 1 });
            assert_eq!(row, expected);
        }
    }
}
