//! The end of a run, for daemons with MCP servers: its processes, and its connections.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{RunId, RunProcesses, StillRunning};

use crate::mcp::sessions::McpSessions;
use belay_exec::Processes;

/// Ends what runs leave behind: their processes, servers among them, and their connections to servers elsewhere.
#[derive(Clone)]
pub struct RunEnds {
    processes: Arc<Processes>,
    sessions: Arc<McpSessions>,
}

impl RunEnds {
    /// The processes of all runs, and their connections.
    pub fn new(processes: Arc<Processes>, sessions: Arc<McpSessions>) -> Self {
        Self { processes, sessions }
    }
}

#[async_trait]
impl RunProcesses for RunEnds {
    async fn end(&self, run: RunId) {
        // Side by side: a stop does not wait until a server has said goodbye.
        tokio::join!(self.processes.end(run), self.sessions.end_run(run));
    }

    fn alive(&self, run: RunId) -> Vec<StillRunning> {
        let elsewhere = self.sessions.elsewhere(run).into_iter();
        let connection =
            |server| StillRunning { run_id: run, pid: None, what: format!("mcp server {server}, elsewhere") };
        self.processes.alive(run).into_iter().chain(elsewhere.map(connection)).collect()
    }
}
