//! `terminate`: the tool by which a model ends its own run. What stands behind it in a batch is not executed.

use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::{AdmittedCall, LoopContext};
use belay_protocol::{
    Arguments, CallId, Effect, Message, MessageBody, RunEnd, StopReason, Tool, ToolContext, ToolOutput, ToolResult,
    ToolSpec, ToolStatus,
};
use serde_json::{Map, Value, json};

/// The tool's name.
pub(crate) const TERMINATE: &str = "terminate";

/// What the system prompt of an agent says that may end its own run.
pub(crate) const TEACHING: &str = "When the request is met, or when you cannot go on, call the tool `terminate`: with \
status `success` or `failure`, and in `summary` what the user is to know. It ends the run at once.";

const NOT_EXECUTED: &str = "not executed: the run was ended by terminate before it";

/// Declares the tool. Calling it does nothing: whoever runs the batch sees its result and ends the run.
pub(crate) struct Terminate(ToolSpec);

impl Terminate {
    pub(crate) fn new() -> Self {
        Self(ToolSpec {
            name: TERMINATE.into(),
            description: "Ends this run. Call it when the request is met (success) or when you cannot proceed \
                          (failure). Calls behind it are not executed."
                .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "status": { "type": "string", "enum": ["success", "failure"] },
                    "summary": { "type": "string", "description": "what the user is to know: the answer, or what is missing" },
                },
                "required": ["status"],
                "additionalProperties": false,
            }),
            effect: Effect::None,
            idempotent: true,
            timeout: Duration::from_secs(1),
            max_output_bytes: 200,
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
        Ok(format!("the run ends with status {status}"))
    }
}

/// How a model ended its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terminated {
    pub(crate) success: bool,
    pub(crate) summary: Option<String>,
}

impl Terminated {
    /// The end that it is. `step`: in which the model called the tool.
    pub(crate) fn end(&self, step: u32) -> RunEnd {
        let reason = if self.success { StopReason::Terminated } else { StopReason::GaveUp };
        RunEnd::of(reason).with("step", step)
    }
}

/// Takes what stands behind the first `terminate` that can run out of a batch.
pub(crate) fn split(calls: &mut Vec<AdmittedCall>) -> Vec<AdmittedCall> {
    let first = calls.iter().position(|admitted| admitted.refused.is_none() && admitted.call.name == TERMINATE);
    first.map(|at| calls.split_off(at + 1)).unwrap_or_default()
}

/// Whether the results in the context, from `from` on, say that the run is ended; the calls behind get their results.
pub(crate) fn settle(
    context: &mut LoopContext,
    from: usize,
    last: Option<&AdmittedCall>,
    behind: Vec<AdmittedCall>,
) -> Option<Terminated> {
    let ended = last.filter(|last| last.call.name == TERMINATE && succeeded(context, from, &last.call.id));
    let text = if ended.is_some() { NOT_EXECUTED } else { "not executed: terminate before it was refused" };
    for AdmittedCall { call, .. } in behind {
        let (call_id, name, status) = (call.id, call.name, ToolStatus::NotExecuted);
        context.push(Message::tool(ToolResult { call_id, name, status, text: text.into() }));
    }
    let Arguments::Object(arguments) = &ended?.call.arguments else { return None };
    let word = |key: &str| arguments.get(key).and_then(Value::as_str);
    let summary = word("summary").map(str::trim).filter(|summary| !summary.is_empty()).map(str::to_owned);
    Some(Terminated { success: word("status") == Some("success"), summary })
}

fn succeeded(context: &LoopContext, from: usize, call: &CallId) -> bool {
    context.messages.iter().skip(from).any(|message| {
        matches!(&message.body, MessageBody::Tool(result)
            if result.call_id == *call && result.status == ToolStatus::Success)
    })
}
