//! The current state of a run, and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belay_protocol::RunRecord;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::pulse::Pulse;

/// The state of a run: queued, working, paused for an approval, or ended.
#[derive(Debug, Default)]
pub struct RunActivity {
    started: OnceLock<Instant>,
    /// Whether the run waits for approval.
    paused: AtomicBool,
    pulse: Pulse,
    finished: watch::Sender<Option<Arc<RunRecord>>>,
}

impl RunActivity {
    /// Records that work begins, or resumes after a pause.
    pub fn begin(&self) {
        self.started.get_or_init(Instant::now);
        self.pulse.begin();
    }

    /// Records a sign of life.
    pub fn touch(&self) {
        self.pulse.beat(Duration::ZERO);
    }

    /// Records that silence of this length is expected, because something with its own deadline has begun.
    pub(crate) fn quiet_for(&self, time: Duration) {
        self.pulse.beat(time);
    }

    /// Records that nothing with its own deadline is at work any more.
    pub(crate) fn end_quiet(&self) {
        self.pulse.end_quiet();
    }

    /// Time without a sign of life; `None` while the run is queued or paused.
    pub(super) fn silence(&self) -> Option<Duration> {
        self.pulse.silence().filter(|_| !self.is_paused())
    }

    /// Whether a warning about this silence is due: first at `first`, then each time the silence has doubled.
    pub fn warns(&self, silence: Duration, first: Duration) -> bool {
        self.pulse.warns(silence, first)
    }

    /// Time since work began; `None` while the run is queued or paused.
    pub fn working_for(&self) -> Option<Duration> {
        self.started.get().filter(|_| !self.is_paused()).map(Instant::elapsed)
    }

    /// Publishes that the run waits for an approval. Call it after the pause is committed.
    pub fn pause(&self, record: Arc<RunRecord>) {
        self.pulse.stop();
        self.paused.store(true, Ordering::Relaxed);
        self.finished.send_replace(Some(record));
    }

    /// Withdraws the pause: the run resumes.
    pub fn resume(&self) {
        self.finished.send_replace(None);
        self.paused.store(false, Ordering::Relaxed);
    }

    /// Whether work has begun, also while the run is paused.
    pub fn has_begun(&self) -> bool {
        self.started.get().is_some()
    }

    /// Whether the run waits for an approval.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Publishes the end. Call it after the end is committed.
    pub fn finish(&self, record: Arc<RunRecord>) {
        self.finished.send_replace(Some(record));
    }

    /// The end, or the pause, of the run.
    pub fn finished(&self) -> watch::Receiver<Option<Arc<RunRecord>>> {
        self.finished.subscribe()
    }
}
