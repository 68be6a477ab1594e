//! Shared by calls of `spawn_subagent` and `run_in_worker`: their arguments, and the events at the start and the end
//! of the run that a call starts.

use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_protocol::{CallId, Durability, EventKind, StopReason, Termination, ToolFailure};
use serde_json::{Map, Value, json};

use belay_run::core::RunCore;

/// Characters of the task in the event.
const EVENT_TASK_CHARS: usize = 120;
/// Longest result for the calling run, in bytes. 32 KiB: about 8000 tokens, a long report.
pub(crate) const MAX_RESULT_BYTES: usize = 32 * 1024;

/// The checked arguments of a call.
pub(crate) struct ChildOrder {
    pub(crate) task: String,
    /// The task, with the context that the call passes.
    pub(crate) message: String,
    /// Most steps.
    pub(crate) max_turns: u32,
    pub(crate) time: Duration,
}

impl ChildOrder {
    /// Reads the arguments. The gate has checked their schema. A missing limit is the highest that the settings
    /// permit.
    ///
    /// # Errors
    /// The name of the invalid argument, for the model.
    pub(crate) fn read(arguments: &Map<String, Value>, max_turns: u32, max_time_s: u64) -> Result<Self, String> {
        let text =
            |key: &str| arguments.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let number = |key: &str, most: u64| arguments.get(key).and_then(Value::as_u64).unwrap_or(most).clamp(1, most);
        let task = text("task").ok_or("task: expected a text that is not blank")?.to_owned();
        let message = match text("context") {
            Some(context) => format!("{task}\n\nContext:\n{context}"),
            None => task.clone(),
        };
        let turns = number("max_turns", u64::from(max_turns));
        Ok(Self {
            task,
            message,
            max_turns: u32::try_from(turns).unwrap_or(max_turns),
            time: Duration::from_secs(number("max_time_s", max_time_s)),
        })
    }
}

/// The schema of an argument that lowers a limit.
pub(crate) fn limit_schema(what: &str, most: u64) -> Value {
    json!({
        "type": "integer", "minimum": 1, "maximum": most, "description": format!("maximum {what}; default {most}"),
    })
}

/// Stores the event at the start of a run of this kind, `subagent` or `worker`.
pub(crate) async fn note_start(
    core: &mut RunCore,
    context: &LoopContext,
    kind: &str,
    call: &CallId,
    task: &str,
) -> Result<(), ToolFailure> {
    let task = task.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EVENT_TASK_CHARS).collect();
    core.journal.note(EventKind::SubagentStarted { call_id: call.clone(), task, depth: core.tree.depth() });
    write(core, context, kind).await
}

/// Stores the event at the end of such a run.
pub(crate) async fn note_end(
    core: &mut RunCore,
    context: &LoopContext,
    kind: &str,
    call: &CallId,
    (termination, reason, turns): (Termination, StopReason, u32),
) -> Result<(), ToolFailure> {
    core.journal.note(EventKind::SubagentEnded { call_id: call.clone(), termination, reason, turns });
    write(core, context, kind).await
}

async fn write(core: &mut RunCore, context: &LoopContext, kind: &str) -> Result<(), ToolFailure> {
    core.journal.write(context, Durability::Relaxed).await.map_err(|error| {
        belay_run::log_failure!(error, error, %error, kind, "the progress of a child run could not be stored");
        ToolFailure::failed(format!("the {kind}'s progress could not be stored"))
    })
}
