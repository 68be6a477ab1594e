//! A start in progress: the signals that end it before the daemon is ready.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use belay_parts::DatabaseWait;
use belay_program::signals::SignalWatch;
use signal_hook_tokio::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::running::Ended;

/// A start in progress. Its signals are watched from the beginning.
pub(crate) struct Starting {
    /// Cancelled by a signal.
    pub(super) root: CancellationToken,
    /// The task that watches the signals.
    pub(super) tasks: JoinSet<Ended>,
    pub(super) signals_end: Handle,
    /// Set while another program has the terminal of the prompt.
    pub(super) lent: Arc<AtomicBool>,
    /// The requests to reload the settings; `None`: they were taken.
    pub(super) reloads: Option<mpsc::Receiver<()>>,
    /// How the start waits for the database.
    pub(super) wait: DatabaseWait,
}

impl Starting {
    /// Begins to watch the signals. `at_prompt`: the log is in a file. To be called within the runtime.
    pub(crate) fn begin(mut signals: SignalWatch, at_prompt: bool) -> Self {
        let (signals_end, lent, reloads) = (signals.handle(), signals.lent(), signals.reloads());
        let (root, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let ends = root.clone();
        tasks.spawn(async move {
            signals.watch(ends).await;
            Ended::Signals
        });
        Self { root, tasks, signals_end, lent, reloads, wait: DatabaseWait::new(at_prompt) }
    }
}
