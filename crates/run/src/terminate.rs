//! `terminate`: the tool with which a model ends its own run. Calls after it in a batch are not executed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::AdmittedCall;
use belay_protocol::{
    Arguments, CallId, Message, MessageBody, RunEnd, StopReason, Tool, ToolContext, ToolOutput, ToolResult, ToolSpec,
    ToolStatus,
};
use serde_json::{Map, Value, json};

use crate::own_tools::TERMINATE;

/// Part of the system prompt for agents that may end their own runs.
pub const TEACHING: &str = "When the request is completed, or when you cannot continue, call the tool `terminate` with \
status `success` or `failure`, and put what the user needs to know into `summary`. It ends the run at once.";

const NOT_EXECUTED: &str = "not executed: the terminate call before it ends the run";

/// Declares the tool. The call itself does nothing: the delegate sees its result and ends the run.
pub struct Terminate(ToolSpec);

impl Default for Terminate {
    fn default() -> Self {
        Self::new()
    }
}

impl Terminate {
    /// The tool as models see it.
    pub fn new() -> Self {
        Self(ToolSpec {
            timeout: Duration::from_secs(1),
            max_output_bytes: 200,
            ..ToolSpec::new(
                TERMINATE,
                "Ends this run: success when the request is completed, failure when you cannot go on. No later call runs.",
                json!({
                    "type": "object",
                    "properties": {
                        "status": { "type": "string", "enum": ["success", "failure"] },
                        "summary": { "type": "string", "description": "the answer, or what is missing" },
                    },
                    "required": ["status"],
                    "additionalProperties": false,
                }),
            )
        })
    }
}

#[async_trait]
impl Tool for Terminate {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        let status = arguments.get("status").and_then(Value::as_str).unwrap_or_default();
        Ok(format!("the run ends with status {status}").into())
    }
}

/// Result of a `terminate` call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminated {
    /// Whether the task was completed.
    pub success: bool,
    /// The model's summary.
    pub summary: Option<String>,
}

impl Terminated {
    /// The end of the run. `step`: the step of the call.
    pub fn end(&self, step: u32) -> RunEnd {
        let reason = if self.success { StopReason::Terminated } else { StopReason::GaveUp };
        RunEnd::of(reason).with("step", step)
    }
}

/// Refuses the calls after the first executable `terminate`. They get their results with the batch.
pub(crate) fn hold_back(calls: &mut [AdmittedCall]) {
    let first = calls.iter().position(|admitted| admitted.refused.is_none() && admitted.call.name == TERMINATE);
    let Some(first) = first else { return };
    for AdmittedCall { call, refused } in &mut calls[first + 1..] {
        let (call_id, name) = (call.id.clone(), call.name.clone());
        *refused = Some(ToolResult { call_id, name, status: ToolStatus::NotExecuted, text: NOT_EXECUTED.into() });
    }
}

/// The result of the first successful `terminate` call in these messages.
pub fn ended(messages: &[Arc<Message>]) -> Option<Terminated> {
    let calls = messages.iter().flat_map(|message| message.tool_calls());
    let call = calls.filter(|call| call.name == TERMINATE).find(|call| succeeded(messages, &call.id))?;
    let Arguments::Object(arguments) = &call.arguments else { return None };
    let word = |key: &str| arguments.get(key).and_then(Value::as_str);
    let summary = word("summary").map(str::trim).filter(|summary| !summary.is_empty()).map(str::to_owned);
    Some(Terminated { success: word("status") == Some("success"), summary })
}

fn succeeded(messages: &[Arc<Message>], call: &CallId) -> bool {
    messages.iter().any(|message| {
        matches!(&message.body, MessageBody::Tool(result)
            if result.call_id == *call && result.status == ToolStatus::Success)
    })
}
