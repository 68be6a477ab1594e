//! Runs: their status, usage and record.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::approval::{ApprovalKind, ApprovalRequest};
use crate::ids::{ApprovalId, RunId, SessionKey};
use crate::model::Usage;
use crate::run_status::RunStatus;
use crate::sent_file::SentFile;
use crate::stop::StopReason;
use crate::time::UnixMillis;

/// The state of a run's agent, in the terms of agent frameworks. The record keeps it after the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AgentState {
    /// It has not started, or waits for a person.
    Idle,
    /// It is running.
    Running,
    /// It has ended by itself, or was stopped.
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

/// Serialises a status together with the agent state that follows from it.
fn with_agent_state<S: Serializer>(status: &RunStatus, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("status", status)?;
    map.serialize_entry("agent_state", &AgentState::from(*status))?;
    map.end()
}

/// A run, as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunRecord {
    /// Its id; constant over restarts.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionKey,
    /// Its status. The wire form has `agent_state` beside it.
    #[serde(flatten, serialize_with = "with_agent_state")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::StatusFields"))]
    pub status: RunStatus,
    /// The stop reason; `null` while it has not ended.
    pub reason: Option<StopReason>,
    /// The evidence for the stop reason.
    pub evidence: Map<String, Value>,
    /// The answer, or the line that explains why there is none; `null` while it has not ended.
    pub reply: Option<String>,
    /// Its usage.
    pub usage: RunUsage,
    /// Its cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Its attempt, from 1; 0 before it starts.
    pub attempt: u32,
    /// The time of its commit.
    pub accepted_at: UnixMillis,
    /// The time of its first start.
    pub started_at: Option<UnixMillis>,
    /// The time of its end.
    pub ended_at: Option<UnixMillis>,
    /// The approval request that it waits for while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// The files that it has sent so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SentFile>,
}

/// The approval request that a paused run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingFor {
    /// The id of the approval request; an answer names it.
    pub approval: ApprovalId,
    /// A yes or no, or a secret.
    #[serde(flatten)]
    pub kind: ApprovalKind,
    /// The tool.
    pub tool: String,
    /// The effect of the call.
    pub summary: String,
    /// The time at which a missing answer becomes a denial.
    pub expires_at: UnixMillis,
}

impl From<&ApprovalRequest> for WaitingFor {
    fn from(approval: &ApprovalRequest) -> Self {
        Self {
            approval: approval.id,
            kind: approval.kind.clone(),
            tool: approval.tool.clone(),
            summary: approval.summary.clone(),
            expires_at: approval.expires_at,
        }
    }
}

/// The end of a subagent, in the terms of agent frameworks. The stop reason has more detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Termination {
    /// It has produced the requested result.
    Goal,
    /// It has reached its limit of steps.
    MaxTurns,
    /// Its time has run out.
    Timeout,
    /// It has failed, has given up, or was ended by a rule or a limit of the whole run.
    Error,
    /// It was stopped together with the run that started it.
    Aborted,
}

impl Termination {
    /// The name on the wire.
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

/// The usage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunUsage {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Requests to the model, including failed ones.
    pub model_calls: u32,
    /// Tool calls that were executed.
    pub tool_calls: u32,
    /// The requests whose tokens and cost are estimated, since the provider has not reported them, or not completely:
    /// it broke off, was stopped, or does not count. Absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimated_calls: u32,
}

// Serde calls it with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl RunUsage {
    /// Adds the usage of another run.
    pub fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.estimated_calls = self.estimated_calls.saturating_add(other.estimated_calls);
    }

    /// Adds one model call of `attempts` requests. `estimated` is the number of those whose figures the provider has
    /// not reported.
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
