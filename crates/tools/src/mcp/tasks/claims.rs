//! The tasks that calls wait for. A task belongs to one call, so a server that gives it to a second one is refused.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of servers and tasks. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::mcp) struct Claims(Arc<Mutex<HashSet<(String, String)>>>);

/// The claim of one call; dropping it gives the task free.
pub(super) struct Claim {
    claims: Claims,
    task: (String, String),
}

impl Claims {
    /// Claims a task of a server; `None`: another call waits for it.
    pub(super) fn claim(&self, server: &str, id: &str) -> Option<Claim> {
        let task = (server.to_owned(), id.to_owned());
        self.lock().insert(task.clone()).then(|| Claim { claims: self.clone(), task })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(String, String)>> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.task);
    }
}
