//! The tools of the agent itself: their names, and what the rest of a run must know of a tool by its name.
//!
//! Autonomous work creates no more autonomous work: a job creates no jobs and no routines, nor does a routine, a heartbeat, or a
//! run that another run has started. One list of tools, used twice: autonomous runs are not offered them, and the gate refuses
//! them whatever settings, hooks, grants and answers of people say, so that no path is left by which such a call could arrive: a
//! subagent, a step of a plan, a worker, a batch that is resumed after a restart.
//!
//! No tool answers questions to people, shows secrets, or starts daemons; one that came to do so would belong in that list.

use belay_protocol::{ToolCall, ToolResult, ToolStatus};

/// Hands over all declared outputs.
pub const COMPLETE_TASK: &str = "complete_task";
/// Creates a job.
pub const CREATE_JOB: &str = "create_job";
/// Hands over one declared output.
pub const EMIT_VALUE: &str = "emit_value";
/// Creates a plan.
pub const PLANNING: &str = "planning";
/// Creates and changes routines.
pub const ROUTINE: &str = "routine";
/// Starts a worker.
pub const RUN_IN_WORKER: &str = "run_in_worker";
/// Sends a message before the answer.
pub const SEND_MESSAGE: &str = "send_message";
/// Starts a subagent.
pub const SPAWN_SUBAGENT: &str = "spawn_subagent";
/// Ends the run.
pub const TERMINATE: &str = "terminate";

/// All of them but [`SEND_MESSAGE`], which acts on the world outside of the agent. The agent offers them beside the tools that it
/// is given, some of them to some kinds of run.
pub const OWN_TOOLS: [&str; 8] =
    [COMPLETE_TASK, CREATE_JOB, EMIT_VALUE, PLANNING, ROUTINE, RUN_IN_WORKER, SPAWN_SUBAGENT, TERMINATE];

/// Tools that create autonomous work, or change it.
const CREATE_WORK: [&str; 2] = [CREATE_JOB, ROUTINE];

/// Whether the tool of this name creates autonomous work.
pub fn creates_work(tool: &str) -> bool {
    CREATE_WORK.contains(&tool)
}

/// Whether a call is itself a run that reports each of its steps: its silence means what a run's silence means.
pub(crate) fn starts_run(tool: &str) -> bool {
    [SPAWN_SUBAGENT, RUN_IN_WORKER].contains(&tool)
}

/// The result of a call that would create work, made by an autonomous run.
pub fn denied(call: &ToolCall) -> ToolResult {
    let text = format!(
        "denied: {} creates autonomous work, which an autonomous run cannot do. Do the work in this run, and state in \
         your final answer what remains to be done.",
        call.name
    );
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), status: ToolStatus::Denied, text }
}
