//! Follows one task from its beginning, or from a restart, to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belay_protocol::ToolContext;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::handle::Handle;
use super::look::{Look, Missed, Seen};
use super::requests::Trouble;
use super::state::TaskState;
use crate::mcp::answer::Answer;
use crate::mcp::calls::LiveTask;
use crate::mcp::elicitor::Elicitor;
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;
use crate::mcp::sessions::{Lease, McpSessions};

/// The task of one call.
pub(in crate::mcp) struct Follow<'a> {
    pub(in crate::mcp) server: &'a Server,
    pub(in crate::mcp) sessions: &'a McpSessions,
    pub(in crate::mcp) context: &'a ToolContext,
    pub(in crate::mcp) elicitor: &'a Arc<Elicitor>,
    pub(in crate::mcp) handle: Handle,
    /// Whether the state of the run has the handle.
    pub(in crate::mcp) is_kept: AtomicBool,
}

/// A connection on which the task is polled. If it is dropped while the task lives, the server is told to cancel it.
pub(super) struct Line {
    pub(super) lease: Lease,
    live: LiveTask,
}

impl Follow<'_> {
    /// Follows the task to its end. `begun`: the connection on which it has just begun, and its first state. The handle is
    /// on disk before the server is asked again.
    ///
    /// # Errors
    /// The task has no result. [`ServerError::LostTask`]: nobody knows its end.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is told to cancel the task.
    pub(in crate::mcp) async fn answer(&self, begun: Option<(Lease, TaskState)>) -> Result<Answer, ServerError> {
        let server = self.server.name();
        let Some(_claim) = self.sessions.claims().claim(self.context.run_id, server, &self.handle.id) else {
            return Err(ServerError::LostTask("it is the task of another call".into()));
        };
        let (mut seen, mut line) = (Seen::default(), None);
        if let Some((lease, state)) = begun {
            // Until the store has answered, the handle may be there.
            let live = lease.connection().live_task(&self.handle.id, self.server.is_elsewhere());
            let line = line.insert(Line { lease, live });
            // The task of a program ends with it.
            let is_kept = self.server.is_elsewhere() && self.context.handle.keep(self.handle.kept()).await;
            line.live.set_kept(is_kept);
            self.is_kept.store(is_kept, Ordering::SeqCst);
            debug!(server, run = %self.context.run_id, is_kept, "a call of an mcp server runs as a task");
            if let Some(end) = self.settled(self.take(state, line, &mut seen).await, line, &mut seen) {
                return end;
            }
            sleep(seen.pace.next_pause()).await;
        }
        loop {
            match self.line(&mut line).await {
                Ok(line) => {
                    let looked = self.look(line, &mut seen).await;
                    if let Some(end) = self.settled(looked, line, &mut seen) {
                        return end;
                    }
                }
                Err(trouble) => match Missed::from(Trouble::Server(trouble)) {
                    Missed::Again(trouble) => seen.pace.missed(&trouble)?,
                    Missed::Ended(trouble) | Missed::Refused(trouble) => return Err(trouble),
                },
            }
            sleep(seen.pace.next_pause()).await;
        }
    }

    /// The open connection, or another one.
    async fn line<'l>(&self, line: &'l mut Option<Line>) -> Result<&'l mut Line, ServerError> {
        if let Some(mut closed) = line.take_if(|line| !line.lease.connection().is_open()) {
            closed.live.end(); // nobody is there to be told
        }
        match line {
            Some(line) => Ok(line),
            _ if !self.server.is_elsewhere() => Err(ServerError::LostTask("its program has ended".into())),
            none => {
                let lease = self.sessions.lease(self.server, self.context.run_id, &self.context.generation).await?;
                lease.connection().expect_questions(self.elicitor);
                let live = lease.connection().live_task(&self.handle.id, self.is_kept.load(Ordering::SeqCst));
                Ok(none.insert(Line { lease, live }))
            }
        }
    }

    /// The end of the call, if this is one.
    fn settled(
        &self,
        looked: Result<Look, Missed>,
        line: &mut Line,
        seen: &mut Seen,
    ) -> Option<Result<Answer, ServerError>> {
        match looked {
            Ok(Look::Open) => {
                seen.pace.seen();
                None
            }
            Ok(Look::Ended(answer)) => {
                line.live.end();
                Some(Ok(answer))
            }
            Err(Missed::Ended(trouble)) => {
                line.live.end();
                Some(Err(trouble))
            }
            Err(Missed::Refused(trouble)) => Some(Err(trouble)),
            Err(Missed::Again(trouble)) => {
                warn!(server = self.server.name(), run = %self.context.run_id, trouble = trouble.words(), "a task of an mcp server cannot be asked for");
                seen.pace.missed(&trouble).err().map(Err)
            }
        }
    }
}
