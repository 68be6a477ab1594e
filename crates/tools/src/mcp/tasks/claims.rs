//! The tasks that calls wait for. A task belongs to one call, so a server that gives it to a second one is refused.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::RunId;

/// The task of a run at a server, by its name and the server's id. Servers may count their tasks anew in each
/// connection, and each run has its own.
type Task = (RunId, String, String);

/// The claimed tasks. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::mcp) struct Claims(Arc<Mutex<HashSet<Task>>>);

/// The claim of one call; dropping it gives the task free.
pub(super) struct Claim {
    claims: Claims,
    task: Task,
}

impl Claims {
    /// Claims a task of a server; `None`: another call of the run waits for it.
    pub(super) fn claim(&self, run: RunId, server: &str, id: &str) -> Option<Claim> {
        let task = (run, server.to_owned(), id.to_owned());
        self.lock().insert(task.clone()).then(|| Claim { claims: self.clone(), task })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Task>> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.task);
    }
}
