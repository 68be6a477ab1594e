//! Signals: the first SIGINT or SIGTERM begins the drain, the second ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::StreamExt;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook_tokio::{Handle, Signals};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::exit::Exit;
use crate::output::note;

/// The signals of this process. SIGHUP keeps its usual effect: `nohup` and terminals rely on it.
pub(crate) struct SignalWatch {
    signals: Signals,
    handle: Handle,
}

impl SignalWatch {
    /// Takes the signals from now on. Call it before anything slow, so that an early Ctrl-C is not lost.
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub(crate) fn install() -> io::Result<Self> {
        survive_file_size_limit()?;
        let signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        Ok(Self { signals, handle })
    }

    /// What ends [`SignalWatch::watch`].
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Cancels `root` at the first signal, ends the process at the second. Ends when its [`Handle`] is closed.
    ///
    /// Exiting at once is safe: what was accepted is committed, and an unfinished run is taken up again at the next
    /// start.
    pub(crate) async fn watch(mut self, root: CancellationToken) {
        let mut seen = 0u32;
        while let Some(signal) = self.signals.next().await {
            seen += 1;
            if seen > 1 {
                note("ended at once");
                std::process::exit(Exit::Interrupted as i32);
            }
            info!(signal, "signal received, draining");
            root.cancel();
        }
    }
}

/// Makes a write beyond the limit of file sizes (`RLIMIT_FSIZE`, `LimitFSIZE=`) an error of that write, as on a full disk;
/// by default the kernel ends the process without a word.
///
/// A handler that does nothing rather than an ignored signal: programs that are started inherit the latter, while exec
/// resets the former. Source: signal(7), "Signal dispositions"; setrlimit(2), `RLIMIT_FSIZE`.
fn survive_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(|_| ())
}
