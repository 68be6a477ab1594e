//! Whether a call is made as a task.

use rmcp::model::ServerCapabilities;
use serde_json::Value;

/// The key of a server's capability `tasks` among the experimental ones. The SDK does not know it where the server says it.
pub(in crate::mcp) const SERVER_TASKS: &str = "belay/tasks";

/// What a tool of 2025-11-25 says about tasks (`execution.taskSupport`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mcp) enum TaskSupport {
    /// It cannot be called as a task.
    Never,
    /// It can.
    Optional,
    /// It can be called only as a task.
    Required,
}

impl TaskSupport {
    /// Reads the description of a tool. An unknown value allows no task.
    pub(in crate::mcp) fn of(tool: &Value) -> Self {
        match tool["execution"]["taskSupport"].as_str() {
            Some("required") => Self::Required,
            Some("optional") => Self::Optional,
            _ => Self::Never,
        }
    }

    /// Whether a call is made as a task. `is_elsewhere`: the server is an address. A program ends with the run and with
    /// the daemon, and its tasks end with it, so there a task would only make the call slower.
    pub(in crate::mcp) fn is_used(self, is_elsewhere: bool) -> bool {
        self == Self::Required || (self == Self::Optional && is_elsewhere)
    }
}

/// Whether the server of 2025-11-25 runs calls of tools as tasks. A client may not ask others for one, whatever their tools
/// say.
pub(in crate::mcp) fn has_server_tasks(can: &ServerCapabilities) -> bool {
    let tasks = can.experimental.as_ref().and_then(|all| all.get(SERVER_TASKS));
    tasks.is_some_and(|tasks| tasks.get("requests").is_some_and(|requests| !requests["tools"]["call"].is_null()))
}
