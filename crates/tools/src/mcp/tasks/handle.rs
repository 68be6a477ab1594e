//! What a call keeps of its task.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::state::{MAX_ID, TaskState};
use crate::mcp::connection::Connection;
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;

/// Longest time that a task may take. One hour, as of the longest call: longer work belongs in a job.
pub(in crate::mcp) const TASK_LIMIT: Duration = Duration::from_secs(3600);

/// The handle of a call that runs as a task. Only the call that has got it uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::mcp) struct Handle {
    server: String,
    tool: String,
    /// The server's name of the task.
    pub(super) id: String,
    /// How long the task may take.
    limit_ms: u64,
}

impl Handle {
    /// The handle of a task that a server has begun for a call on this connection.
    ///
    /// # Errors
    /// The server gave it an id that cannot be kept. It is told to cancel the task.
    pub(in crate::mcp) fn of(
        server: &Server,
        tool: &str,
        task: &TaskState,
        connection: &Connection,
    ) -> Result<Self, ServerError> {
        if task.id.len() > MAX_ID {
            drop(connection.live_task(&task.id, false));
            return Err(ServerError::LostTask(format!("the id of the task is longer than {MAX_ID} bytes")));
        }
        // What the server forgets need not be waited for; a call without a task has this time too.
        let limit = task.ttl.unwrap_or(TASK_LIMIT).max(server.timeout()).min(TASK_LIMIT);
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Ok(Self { server: server.name().to_owned(), tool: tool.to_owned(), id: task.id.clone(), limit_ms })
    }

    /// The handle that an earlier attempt at a call has kept.
    ///
    /// # Errors
    /// It is not a handle of this tool of this server.
    pub(in crate::mcp) fn found(server: &Server, tool: &str, kept: &Value) -> Result<Self, ServerError> {
        let handle: Option<Self> = serde_json::from_value(kept.clone()).ok();
        let is_ours = |handle: &Self| handle.server == server.name() && handle.tool == tool;
        handle.filter(is_ours).ok_or_else(|| ServerError::LostTask("its task was begun at another server".into()))
    }

    /// The form in which it is kept.
    pub(super) fn kept(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// How long the task may take; the time begins anew after a restart.
    pub(in crate::mcp) fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms).min(TASK_LIMIT)
    }
}
