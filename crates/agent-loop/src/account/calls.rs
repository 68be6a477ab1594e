//! The newest calls of a run with their results, as the account of a strike reads them.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{Arguments, CallId, Message, MessageBody, ToolCall, ToolResult, ToolStatus};

use crate::policies::tool_loops::Outline;

/// Calls that are read. 64: more than any rule compares.
const MAX_CALLS: usize = 64;

/// A tool call with its result.
#[derive(Clone, Copy, Debug)]
pub struct SeenCall<'a> {
    /// The tool's name as the model gave it.
    pub name: &'a str,
    /// The arguments.
    pub arguments: &'a Arguments,
    /// The text of the result. `None`: the call was not executed, or has no result yet.
    pub result: Option<&'a str>,
    /// Whether the call failed.
    pub failed: bool,
    /// Whether the result contains untrusted content.
    pub untrusted: bool,
    /// The step of the call, from 1; 0: unknown.
    pub step: u32,
    /// Its identity and its role.
    pub outline: Outline,
}

/// The newest calls of a run, newest first. `iteration`: the step of the newest assistant message.
pub(crate) fn newest<'a>(
    messages: &'a [Arc<Message>],
    iteration: u32,
    outline: impl Fn(&ToolCall) -> Outline,
) -> Vec<SeenCall<'a>> {
    let mut calls = Vec::new();
    let mut results: HashMap<&CallId, (&ToolResult, bool)> = HashMap::new();
    let mut step = iteration;
    for message in messages.iter().rev() {
        match &message.body {
            MessageBody::Tool(result) => {
                results.insert(&result.call_id, (result, message.untrusted));
            }
            // The messages before the first step belong to earlier runs.
            MessageBody::Assistant { .. } if step == 0 || calls.len() >= MAX_CALLS => break,
            MessageBody::Assistant { tool_calls, .. } => {
                calls.extend(tool_calls.iter().rev().map(|call| {
                    let result = results.remove(&call.id);
                    let executed = result.filter(|(result, _)| was_executed(result.status));
                    SeenCall {
                        name: &call.name,
                        arguments: &call.arguments,
                        result: executed.map(|(result, _)| result.text.as_str()),
                        failed: executed.is_some_and(|(result, _)| result.status.is_failure()),
                        untrusted: executed.is_some_and(|(_, untrusted)| untrusted),
                        step,
                        outline: outline(call),
                    }
                }));
                results.clear();
                step -= 1;
            }
            _ => {}
        }
    }
    calls
}

fn was_executed(status: ToolStatus) -> bool {
    !matches!(status, ToolStatus::NotExecuted | ToolStatus::Cancelled)
}
