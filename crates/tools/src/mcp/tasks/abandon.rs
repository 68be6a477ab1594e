//! Cancels the task of a call that never continues, because its run has ended otherwise.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Generation, RunId};
use serde_json::json;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::handle::Handle;
use super::requests::{Wait, ask};
use crate::mcp::server::Server;
use crate::mcp::sessions::McpSessions;

/// How long the server is tried. 10 s: longer than a connection and a request take. A shutdown leaves it a second. What is not
/// cancelled ends with the time for which the server keeps it.
const LIMIT: Duration = Duration::from_secs(10);

/// Cancels a task, on a connection of its own. A server that is away, or has forgotten the task, is logged.
///
/// # Cancel safety
/// If the future is dropped, the task may go on at the server.
pub(in crate::mcp) async fn abandon(server: &Server, sessions: &McpSessions, handle: &Handle) {
    let name = server.name();
    // A new run id for this connection only.
    let (run, generation) = (RunId::new(), Generation::default());
    let cancelled = async {
        let connection = match Box::pin(sessions.connect(server, run, &generation, Arc::default())).await {
            Ok(connection) => connection,
            Err(trouble) => return Err(trouble.to_string()),
        };
        let answer = ask(&connection, "tasks/cancel", json!({ "taskId": handle.id }), Wait::Short).await;
        connection.end().await;
        answer.map(drop).map_err(|trouble| trouble.words())
    };
    match timeout(LIMIT, cancelled).await {
        Ok(Ok(())) => debug!(server = name, "the task of a call that never continues was cancelled"),
        // The server may have ended the task already.
        Ok(Err(why)) => {
            debug!(server = name, detail = why, "the task of a call that never continues could not be cancelled")
        }
        Err(_late) => warn!(server = name, "the task of a call that never continues could not be cancelled in time"),
    }
}
