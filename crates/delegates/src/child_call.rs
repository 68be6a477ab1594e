//! What calls of `spawn_subagent` and `run_in_worker` have in common: their arguments, and the two facts of the run that each
//! of them starts.

use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_protocol::{CallId, Durability, EventKind, StopReason, Termination, ToolFailure};
use serde_json::{Map, Value, json};

use belay_run::core::RunCore;

/// Characters of the task in the event.
const EVENT_TASK_CHARS: usize = 120;
/// Longest result for the run that has called, in bytes. 32 KiB: about 8000 tokens, a long report.
pub(crate) const MAX_RESULT_BYTES: usize = 32 * 1024;

/// What a call asks for, checked.
pub(crate) struct ChildOrder {
    pub(crate) task: String,
    /// The task, with what the call says about its surroundings.
    pub(crate) message: String,
    /// Most steps.
    pub(crate) max_turns: u32,
    pub(crate) time: Duration,
}

impl ChildOrder {
    /// Reads the arguments, whose shape the gate has checked. What they leave open is the most that the settings allow.
    ///
    /// # Errors
    /// Which argument is wrong; the model reads it.
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

/// Stores that a run of this kind, `subagent` or `worker`, has begun.
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

/// Stores that it has ended, and how.
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
        tracing::error!(%error, kind, "the progress of a child run could not be stored");
        ToolFailure::failed(format!("the {kind}'s progress could not be stored"))
    })
}
