//! Tool results as JSON, and errors as sentences that say what to do next. A model reads both.

use belay_protocol::{RunRecord, RunStatus};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::ApiError;

/// The answer to a failed call.
#[derive(Debug)]
pub(super) struct CallFailure {
    what: String,
    next: Option<&'static str>,
}

impl CallFailure {
    /// Invalid arguments.
    pub(super) fn wrong(what: impl Into<String>) -> Self {
        Self { what: what.into(), next: Some("Look at the tool's schema and call it again.") }
    }

    /// Unknown tool; `names` lists the known ones.
    pub(super) fn no_tool(name: &str, names: &str) -> Self {
        Self { what: format!("there is no tool named {name:?}; there are {names}"), next: None }
    }

    /// The call was cancelled. Nobody reads this, but each call needs an answer.
    pub(super) fn cancelled() -> Self {
        Self { what: "the call was cancelled".into(), next: None }
    }

    /// The limit of waiting calls is reached.
    pub(super) fn too_many_wait() -> Self {
        Self {
            what: "too many calls are already waiting for runs".into(),
            next: Some("Leave wait_ms out and ask run_status later."),
        }
    }

    /// The text of the answer.
    pub(super) fn text(&self) -> String {
        match self.next {
            Some(next) => format!("{}. {next}", self.what.trim_end_matches('.')),
            None => self.what.clone(),
        }
    }
}

impl From<ApiError> for CallFailure {
    fn from(error: ApiError) -> Self {
        let next = match error.code.word() {
            "busy" | "store" | "unavailable" => Some("Try again in a few seconds."),
            "conflict" => Some("Use a new idempotency_key for another message."),
            "not_found" => Some("list_sessions lists the conversations."),
            "forbidden" => Some("A person with the operator's rights has to do this."),
            "shutting_down" => Some("It accepts messages again after its next start."),
            "invalid" => Some("Look at the tool's schema and call it again."),
            _ => None,
        };
        Self { what: error.message.into_owned(), next }
    }
}

/// The result of a call.
pub(super) fn tool_result(answer: Result<Value, CallFailure>) -> CallToolResult {
    match answer {
        Ok(value) => CallToolResult::structured(value),
        Err(failure) => CallToolResult::error(vec![ContentBlock::text(failure.text())]),
    }
}

/// A value in JSON.
pub(super) fn json_of(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default() // our own records have string keys only
}

/// The current state of a run, with the next possible action.
pub(super) fn run(record: &RunRecord) -> Value {
    let mut value = json_of(record);
    if let Some(next) = next_step(record.status) {
        value["next"] = json!(next);
    }
    value
}

/// The possible action for a run of that status; `None`: the run is over.
pub(super) fn next_step(status: RunStatus) -> Option<&'static str> {
    match status {
        RunStatus::Accepted | RunStatus::Queued | RunStatus::Running => {
            Some("It is still running: ask run_status for its reply (wait_ms waits for it), or end it with stop_run.")
        }
        RunStatus::Paused => Some(
            "It is paused until a person answers the question in waiting_for (`belay approvals` shows it); ask \
             run_status later, or end it with stop_run.",
        ),
        RunStatus::Completed | RunStatus::Stopped | RunStatus::Failed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_sentence_and_the_next_step_another() {
        for (failure, text) in [
            (CallFailure::wrong("limit: must be 1"), "limit: must be 1. Look at the tool's schema and call it again."),
            (
                CallFailure::from(ApiError::not_found("no such run.")),
                "no such run. list_sessions lists the conversations.",
            ),
            (CallFailure::from(ApiError::internal()), "an internal error occurred in Belay; see the log"),
        ] {
            assert_eq!(failure.text(), text);
        }
    }

    #[test]
    fn only_a_run_that_is_over_has_no_next_step() {
        use RunStatus::*;
        for status in [Accepted, Queued, Running, Paused, Completed, Stopped, Failed] {
            assert_eq!(next_step(status).is_none(), status.is_end(), "{status:?}");
        }
    }
}
