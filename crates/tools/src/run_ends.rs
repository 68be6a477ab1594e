//! Ends what a run has started: its processes, those in the background included, and its MCP connections.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{BackgroundProcess, ProcessesOf, RunId, RunProcesses, SessionKey, StillRunning};

use crate::mcp::McpSessions;
use crate::processes::BackgroundProcesses;
use belay_exec::Processes;

/// Ends the processes of a run, including local servers, and its connections to remote servers.
#[derive(Clone)]
pub struct RunEnds {
    processes: Arc<Processes>,
    sessions: Arc<McpSessions>,
    background: Arc<BackgroundProcesses>,
}

impl RunEnds {
    /// Ends the processes and connections of runs in these services.
    pub fn new(processes: Arc<Processes>, sessions: Arc<McpSessions>, background: Arc<BackgroundProcesses>) -> Self {
        Self { processes, sessions, background }
    }
}

#[async_trait]
impl RunProcesses for RunEnds {
    async fn end(&self, run: RunId) {
        self.sessions.cancel_calls(run).await;
        // Concurrently, so that a stop does not wait until a server has closed its connection.
        tokio::join!(self.processes.end(run), self.sessions.end_run(run));
        self.background.run_ended(run).await;
    }

    fn alive(&self, run: RunId) -> Vec<StillRunning> {
        let elsewhere = self.sessions.elsewhere(run).into_iter();
        let connection =
            |server| StillRunning { run_id: run, pid: None, what: format!("mcp server {server}, elsewhere") };
        self.processes.alive(run).into_iter().chain(elsewhere.map(connection)).collect()
    }

    fn stop_background(&self, by: &ProcessesOf) -> usize {
        self.background.stop(by)
    }

    async fn background_ended(&self, by: &ProcessesOf) {
        self.background.stopped(by).await;
    }

    fn background_ending(&self, by: &ProcessesOf) -> Vec<StillRunning> {
        self.background.ending(by)
    }

    fn forget_background(&self, session: &SessionKey) {
        self.background.forget(session);
    }

    fn in_background(&self) -> Vec<BackgroundProcess> {
        self.background.shown()
    }
}
