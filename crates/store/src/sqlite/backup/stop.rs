//! The interruption of a backup that is being made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, InterruptHandle};

use super::BackupError;

/// Stops a backup from another thread. Clones share the state.
#[derive(Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    /// The connection with a long statement. Locked for an assignment or an interrupt.
    statement: Mutex<Option<InterruptHandle>>,
}

impl Stop {
    /// Stops the backup: it fails with [`BackupError::Stopped`] and leaves nothing. SQLite ignores the interrupt of a
    /// statement that has not begun, so a caller that waits for the end repeats this call.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(statement) = &*self.statement() {
            statement.interrupt();
        }
    }

    /// Whether the backup is stopped.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    /// [`BackupError::Stopped`] if the backup is stopped.
    pub(super) fn check(&self) -> Result<(), BackupError> {
        if self.is_stopped() { Err(BackupError::Stopped) } else { Ok(()) }
    }

    /// Runs long statements of a connection, which [`Stop::stop`] interrupts.
    pub(super) fn interruptible<T, E>(
        &self,
        conn: &Connection,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, BackupError> {
        *self.statement() = Some(conn.get_interrupt_handle());
        // After the assignment: an earlier stop has found no handle.
        let done = self.check().map(|()| run());
        *self.statement() = None;
        self.check()?;
        done
    }

    fn statement(&self) -> MutexGuard<'_, Option<InterruptHandle>> {
        self.shared.statement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
