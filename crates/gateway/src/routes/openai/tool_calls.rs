//! The calls of the client's tools, as an answer has them.

use belay_protocol::{ApprovalId, ApprovalKind, ClientCall, RunRecord, RunStatus, WaitingFor, client_call_id};
use serde::Serialize;

/// The `finish_reason` of an answer with calls.
pub(super) const TOOL_CALLS: &str = "tool_calls";

/// A call that the client is to carry out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ToolCall"))]
pub(crate) struct ToolCallBody {
    /// Its place, in a stream only.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    /// The id that its result has to name.
    id: String,
    #[serde(rename = "type")]
    #[cfg_attr(test, schemars(extend("enum" = ["function"])))]
    kind: &'static str,
    function: CalledFunction,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CalledFunction {
    name: String,
    /// A JSON object as text.
    arguments: String,
}

impl ToolCallBody {
    /// The calls that a run waits for; `None`: it waits for none.
    pub(super) fn of(run: &RunRecord) -> Option<Vec<Self>> {
        let WaitingFor { approval, kind, .. } = run.waiting_for.as_ref().filter(|_| run.status == RunStatus::Paused)?;
        let ApprovalKind::ClientCalls { calls, .. } = kind else { return None };
        Some(Self::of_request(*approval, calls))
    }

    /// The calls that a request asks the client for.
    pub(super) fn of_request(request: ApprovalId, calls: &[ClientCall]) -> Vec<Self> {
        let body = |(at, call): (usize, &ClientCall)| Self {
            index: None,
            id: client_call_id(request, at),
            kind: "function",
            function: CalledFunction { name: call.name.clone(), arguments: call.arguments.clone() },
        };
        calls.iter().enumerate().map(body).collect()
    }

    /// The id, the name of the tool, and the arguments.
    pub(super) fn parts(&self) -> (&str, &str, &str) {
        (&self.id, &self.function.name, &self.function.arguments)
    }

    /// The calls with their places.
    pub(super) fn indexed(calls: Vec<Self>) -> Vec<Self> {
        calls.into_iter().enumerate().map(|(at, call)| Self { index: Some(at), ..call }).collect()
    }
}
