//! Stops a run and records the cause.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belay_protocol::{FreezeId, Generation, RunEnd, RunId, StopReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Stops a run. The token is the only way to stop it.
#[derive(Debug, Default)]
pub struct RunControl {
    /// Cancelled once, after the cause is set.
    pub cancel: CancellationToken,
    /// Ended by a stop: no process of the run starts after it.
    pub generation: Generation,
    cause: OnceLock<StopCause>,
    /// The time of the first stop.
    stopped: OnceLock<Instant>,
    /// Loop detection is disabled for the run.
    loops_off: AtomicBool,
}

/// The cause of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopCause {
    /// The stop reason of the run.
    pub reason: StopReason,
    /// Whether the answer to the command informs the person already. If it does, the run sends no reply.
    pub told: bool,
    /// The run whose message replaces this one.
    pub by: Option<RunId>,
    /// Seconds for which the run was silent.
    pub silent_s: Option<u64>,
    /// The freeze that stops it.
    pub freeze: Option<FreezeId>,
    /// Whether another node continues the run: it has no end here.
    pub hand_over: bool,
}

impl StopCause {
    /// A cause with this reason. The run reports the stop to the person itself.
    pub fn of(reason: StopReason) -> Self {
        Self { reason, told: false, by: None, silent_s: None, freeze: None, hand_over: false }
    }

    /// The end of a run that was stopped for this cause.
    pub fn end(&self) -> RunEnd {
        let mut end = RunEnd::of(self.reason);
        if let Some(by) = self.by {
            end = end.with("newer_run", by.to_string());
        }
        if let Some(freeze) = self.freeze {
            end = end.with("freeze", freeze.to_string());
        }
        match self.silent_s {
            Some(silent_s) => end.with("silent_s", silent_s),
            None => end,
        }
    }
}

impl RunControl {
    /// Tells the run to stop. If it is stopped several times, the first cause counts.
    pub fn stop(&self, cause: StopCause) {
        let _ = self.cause.set(cause); // a second stop changes nothing
        self.stopped.get_or_init(Instant::now);
        // The order matters: a reader that takes a generation after its end finds the token cancelled.
        self.cancel.cancel();
        self.generation.end();
    }

    /// Why the run was told to stop; `None` while nobody has stopped it.
    pub fn stopped_by(&self) -> Option<StopCause> {
        self.cancel.is_cancelled().then(|| self.cause.get().copied()).flatten()
    }

    /// The time since the first stop; `None` while nobody has stopped it.
    pub fn since_stop(&self) -> Option<Duration> {
        self.stopped.get().map(Instant::elapsed)
    }

    /// Enables or disables loop detection for this run, also while it works.
    pub fn detect_loops(&self, on: bool) {
        self.loops_off.store(!on, Ordering::Relaxed);
    }

    /// Whether loop detection is disabled.
    pub fn loops_off(&self) -> bool {
        self.loops_off.load(Ordering::Relaxed)
    }
}
