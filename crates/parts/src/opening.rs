//! What every command that opens a store shares: limits, blocking calls, and failures.

use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_settings::Settings;
use belay_store::{OpenError, PostgresLimits};

use crate::failures::BESIDE;

/// The directory of the files of messages, beside the database.
const FILES: &str = "attachments";

/// The directory of the files of messages of this database.
pub fn message_files(database: &Path) -> PathBuf {
    database.parent().map_or_else(|| PathBuf::from(FILES), |beside| beside.join(FILES))
}

/// The limits of the connections to PostgreSQL in the settings.
pub fn postgres_limits(settings: &Settings) -> PostgresLimits {
    PostgresLimits {
        connections: settings.store.connections,
        statement: Duration::from_secs(settings.store.statement_timeout_s),
        lock: settings.store.lock_timeout(),
    }
}

/// Opens a store for a command, which does not wait for a server that is away.
///
/// # Errors
/// The store cannot be opened, by [`refuse_store`].
pub async fn opened<T: Send + 'static>(
    open: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, Failure> {
    blocking(open).await?.map_err(|error| refuse_store(&error))
}

/// Runs a call that opens a store on a thread for blocking work.
///
/// # Errors
/// The call has panicked (70).
pub(crate) async fn blocking<T: Send + 'static>(
    open: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<Result<T, OpenError>, Failure> {
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|broken| Failure::new(Exit::Internal, format!("the store could not be opened: {broken}")))
}

/// The failure of a store that cannot be opened.
pub fn refuse_store(error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::Locked { .. } | OpenError::NodeName { .. } | OpenError::OlderNodes { .. } => Exit::Busy,
        OpenError::Newer { .. }
        | OpenError::TooOld { .. }
        | OpenError::Unreleased
        | OpenError::InterruptedRestore { .. }
        | OpenError::ForeignLog { .. }
        | OpenError::Unfinished
        | OpenError::PostgresUnreleased { .. }
        | OpenError::PostgresForeign { .. }
        | OpenError::PostgresIncomplete { .. }
        | OpenError::PostgresUnlogged { .. }
        | OpenError::PostgresEmptied { .. } => Exit::Refused,
        OpenError::Io { .. } | OpenError::Damaged { .. } | OpenError::Database(_) | OpenError::Snapshot(_) => {
            Exit::OutOfReach
        }
    };
    let failure = Failure::new(exit, words(error));
    match error {
        // The words name the setting; without it, the place comes from the environment.
        OpenError::Locked { .. } => failure.next(BESIDE),
        _ => failure,
    }
}
