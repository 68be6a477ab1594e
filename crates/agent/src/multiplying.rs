//! What works by itself does not multiply: a job makes no jobs and no routines, nor does a routine, a heartbeat, or a run that
//! another run has started.
//!
//! One list of tools, used twice: whoever works by itself is not offered them, and the gate refuses them whatever settings,
//! hooks, grants and answers of people say, so that no road is left open by which such a call could arrive: a subagent, a step
//! of a plan, a worker, a batch that is taken up after a restart.
//!
//! No tool answers questions to people, shows secrets, or starts daemons; one that came to do so would belong here.

use belay_protocol::{ToolCall, ToolResult, ToolStatus};

use crate::jobs::CREATE_JOB;

/// The tools. `routine` makes routines and changes them.
const MULTIPLY: [&str; 2] = [CREATE_JOB, "routine"];

/// Whether the tool of this name makes work that goes on by itself.
pub(crate) fn multiplies(tool: &str) -> bool {
    MULTIPLY.contains(&tool)
}

/// What becomes of such a call of a run that works by itself.
pub(crate) fn denied(call: &ToolCall) -> ToolResult {
    let text = format!(
        "denied: {} makes work that goes on by itself, and whoever works by itself makes none. Do what is to be done in this \
         run, and say at its end what is left to do.",
        call.name
    );
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), status: ToolStatus::Denied, text }
}
