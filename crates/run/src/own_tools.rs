//! The agent's own tools: their names, and properties that other modules need to know by name.
//!
//! Autonomous work must not create more autonomous work: jobs, routines, heartbeats, and runs started by other runs
//! create no jobs and no routines, and manage none. One list of tools is used twice. Autonomous runs are not offered these tools, and
//! the effect gate refuses them regardless of settings, hooks, grants and approvals. So no path remains for such a
//! call: a subagent, a step of a plan, a worker, or a batch resumed after a restart.
//!
//! No tool answers questions to people, shows secrets, or starts daemons. A future tool that does so belongs in that
//! list.

pub use belay_protocol::{FIND_TOOLS, SEND_FILE};
use belay_protocol::{ToolCall, ToolResult, ToolStatus};

/// Cancels a job.
pub const CANCEL_JOB: &str = "cancel_job";
/// Emits all declared outputs.
pub const COMPLETE_TASK: &str = "complete_task";
/// Creates a job.
pub const CREATE_JOB: &str = "create_job";
/// Emits one declared output.
pub const EMIT_VALUE: &str = "emit_value";
/// Shows a job.
pub const JOB_STATUS: &str = "job_status";
/// Lists jobs.
pub const LIST_JOBS: &str = "list_jobs";
/// Lists routines.
pub const LIST_ROUTINES: &str = "list_routines";
/// Sends a message to a job.
pub const MESSAGE_JOB: &str = "message_job";
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

/// Own tools that send something to a conversation. They have an external effect.
pub const SENDING_TOOLS: [&str; 2] = [SEND_FILE, SEND_MESSAGE];

/// All own tools except [`SENDING_TOOLS`]. The agent offers them in addition to the
/// configured tools, some of them only to some kinds of run.
pub const OWN_TOOLS: [&str; 14] = [
    CANCEL_JOB,
    COMPLETE_TASK,
    CREATE_JOB,
    EMIT_VALUE,
    FIND_TOOLS,
    JOB_STATUS,
    LIST_JOBS,
    LIST_ROUTINES,
    MESSAGE_JOB,
    PLANNING,
    ROUTINE,
    RUN_IN_WORKER,
    SPAWN_SUBAGENT,
    TERMINATE,
];

/// Tools that create, change or show autonomous work.
const MANAGE_WORK: [&str; 7] = [CANCEL_JOB, CREATE_JOB, JOB_STATUS, LIST_JOBS, LIST_ROUTINES, MESSAGE_JOB, ROUTINE];

/// Whether the tool of this name manages autonomous work. Only the run of a conversation may call it.
pub fn manages_work(tool: &str) -> bool {
    MANAGE_WORK.contains(&tool)
}

/// Whether a call of this tool is itself a run that reports each step. Its silence is judged like the silence of a run.
pub(crate) fn starts_run(tool: &str) -> bool {
    [SPAWN_SUBAGENT, RUN_IN_WORKER].contains(&tool)
}

/// The result for an autonomous run's call that would create work.
pub fn denied(call: &ToolCall) -> ToolResult {
    let text = format!(
        "denied: {} manages autonomous work, which an autonomous run cannot do. Do the work in this run, and state in \
         your final answer what remains to be done.",
        call.name
    );
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), status: ToolStatus::Denied, text }
}
