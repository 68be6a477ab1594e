//! A run that is alive in this process: what dispatcher, lane and watchers share of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use belay_agent_loop::policies::chanting::Chanting;
use belay_protocol::{
    CallId, Delta, DeltaSink, Generation, Heard, Partial, ProgressSink, RunEnd, RunId, RunRecord, RunWatch, SessionKey,
    StopReason,
};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pulse::Pulse;

/// Fragments kept for a watcher that lags. Then: the watcher misses some, and takes the text from the reply.
const DELTA_CAPACITY: usize = 512;

/// A run from its acceptance to its end. The token is the one way to stop it.
#[derive(Debug)]
pub(crate) struct LiveRun {
    pub(crate) id: RunId,
    pub(crate) session: SessionKey,
    /// Cancelled once, after its cause is set.
    pub(crate) cancel: CancellationToken,
    /// Cancelled when the dispatcher has forgotten the run.
    pub(crate) gone: CancellationToken,
    cause: OnceLock<StopCause>,
    started: OnceLock<Instant>,
    /// Nobody looks for loops in it.
    loops_off: AtomicBool,
    /// It rests on a question.
    resting: AtomicBool,
    /// When it was last heard of.
    pulse: Pulse,
    /// Ended by a stop: nothing that belongs to the run starts after it.
    pub(crate) generation: Generation,
    finished: watch::Sender<Option<Arc<RunRecord>>>,
    deltas: OnceLock<broadcast::Sender<Delta>>,
    /// What the model has said so far in the step it is at. Held for an append, never across an await; fragments are
    /// published under it, so that whoever begins to watch reads every word once.
    partial: Mutex<Partial>,
}

/// Why a run was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StopCause {
    pub(crate) reason: StopReason,
    /// Whether the answer to the command tells the person already, so that the run itself says nothing.
    pub(crate) told: bool,
    /// The run whose message comes in its place.
    pub(crate) by: Option<RunId>,
    /// Seconds since anything was heard of it.
    pub(crate) silent_s: Option<u64>,
}

impl StopCause {
    /// A stop for this reason, which the run tells the person itself.
    pub(crate) fn of(reason: StopReason) -> Self {
        Self { reason, told: false, by: None, silent_s: None }
    }

    /// The end of a run that was stopped for this.
    pub(crate) fn end(&self) -> RunEnd {
        let mut end = RunEnd::of(self.reason);
        if let Some(by) = self.by {
            end = end.with("by", by.to_string());
        }
        match self.silent_s {
            Some(silent_s) => end.with("silent_s", silent_s),
            None => end,
        }
    }
}

impl LiveRun {
    pub(crate) fn new(id: RunId, session: SessionKey, want_deltas: bool) -> Arc<Self> {
        let run = Self {
            id,
            session,
            cancel: CancellationToken::new(),
            gone: CancellationToken::new(),
            cause: OnceLock::new(),
            started: OnceLock::new(),
            loops_off: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            pulse: Pulse::default(),
            generation: Generation::default(),
            finished: watch::Sender::new(None),
            deltas: OnceLock::new(),
            partial: Mutex::default(),
        };
        if want_deltas {
            run.deltas.get_or_init(|| broadcast::Sender::new(DELTA_CAPACITY));
        }
        Arc::new(run)
    }

    /// Tells the run to stop. Of several causes the first counts.
    pub(crate) fn stop(&self, cause: StopCause) {
        let _ = self.cause.set(cause); // a second stop changes nothing
        // In this order: who takes a generation after its end finds the token cancelled.
        self.cancel.cancel();
        self.generation.end();
    }

    /// The reason it was told to stop, once it was.
    pub(crate) fn stopped_by(&self) -> Option<StopCause> {
        self.cancel.is_cancelled().then(|| self.cause.get().copied()).flatten()
    }

    /// Switches loop detection for this run, also while it is at work.
    pub(crate) fn detect_loops(&self, on: bool) {
        self.loops_off.store(!on, Ordering::Relaxed);
    }

    /// Whether nobody looks for loops.
    pub(crate) fn loops_off(&self) -> bool {
        self.loops_off.load(Ordering::Relaxed)
    }

    /// Notes that work has begun, or goes on after a rest.
    pub(crate) fn begin(&self) {
        self.started.get_or_init(Instant::now);
        self.pulse.begin();
    }

    /// Notes a sign of life.
    pub(crate) fn touch(&self) {
        self.pulse.beat(Duration::ZERO);
    }

    /// Notes that nothing need be heard for so long: something with a deadline of its own has begun.
    pub(crate) fn quiet_for(&self, time: Duration) {
        self.pulse.beat(time);
    }

    /// How long nothing was heard of it; `None` while it is not at work.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        self.pulse.silence().filter(|_| !self.is_resting() && !self.cancel.is_cancelled())
    }

    /// Whether its silence is to be spoken of: once it has lasted `first`, and then each time it has doubled.
    pub(crate) fn warns(&self, silence: Duration, first: Duration) -> bool {
        self.pulse.warns(silence, first)
    }

    /// How long ago work has begun; `None` while it waits for its turn, or for a person.
    pub(crate) fn at_work_for(&self) -> Option<Duration> {
        self.started.get().filter(|_| !self.is_resting()).map(Instant::elapsed)
    }

    /// Publishes that it rests on a question, after that is committed.
    pub(crate) fn rest(&self, record: Arc<RunRecord>) {
        self.pulse.stop();
        self.resting.store(true, Ordering::Relaxed);
        self.finished.send_replace(Some(record));
    }

    /// Takes back that it rests: it goes on.
    pub(crate) fn wake(&self) {
        self.finished.send_replace(None);
        self.resting.store(false, Ordering::Relaxed);
    }

    /// Whether it is at work, or was and waits for a person.
    pub(crate) fn is_engaged(&self) -> bool {
        self.started.get().is_some()
    }

    /// Whether it waits for a person.
    pub(crate) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// Publishes the end, after it is committed.
    pub(crate) fn finish(&self, record: Arc<RunRecord>) {
        self.finished.send_replace(Some(record));
    }

    /// The end, for the dispatcher's waits.
    pub(crate) fn finished(&self) -> watch::Receiver<Option<Arc<RunRecord>>> {
        self.finished.subscribe()
    }

    /// A watch over the run; with fragments from now on, or from the first one if the message asked for them.
    pub(crate) fn watch(&self, with_deltas: bool) -> RunWatch {
        let partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        let deltas =
            with_deltas.then(|| self.deltas.get_or_init(|| broadcast::Sender::new(DELTA_CAPACITY)).subscribe());
        let so_far = if with_deltas { partial.clone() } else { Partial::default() };
        RunWatch { run_id: self.id, finished: self.finished(), deltas, so_far }
    }

    /// What the model has said so far in the step it is at.
    pub(crate) fn partial(&self) -> std::sync::MutexGuard<'_, Partial> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, make: impl FnOnce() -> Delta) -> Heard {
        match self.deltas.get() {
            Some(deltas) if deltas.receiver_count() > 0 && deltas.send(make()).is_ok() => Heard::Somebody,
            _ => Heard::Nobody,
        }
    }
}

impl ProgressSink for LiveRun {
    fn progress(&self, call: &CallId, text: &str) {
        self.touch();
        self.publish(|| Delta::Tool { call_id: call.clone(), text: text.to_owned() });
    }
}

/// Publishes the fragments of one step to whoever watches the run, and hears whether the text goes in circles.
pub(crate) struct LiveSink<'a> {
    run: &'a LiveRun,
    step: u32,
    /// Where the text is watched, and what is cancelled when it repeats itself.
    chanting: Option<(&'a mut Chanting, &'a CancellationToken)>,
    /// What was streamed, where nobody is shown anything: another run asked, or it is an aside.
    unseen: Option<String>,
}

impl<'a> LiveSink<'a> {
    pub(crate) fn new(
        run: &'a LiveRun,
        step: u32,
        chanting: Option<(&'a mut Chanting, &'a CancellationToken)>,
    ) -> Self {
        Self { run, step, chanting, unseen: None }
    }

    /// The same, shown to whoever watches: what was said before in this step is forgotten.
    pub(crate) fn shown(&mut self) {
        self.run.partial().begin(self.step);
    }

    /// The same, showing nobody anything.
    pub(crate) fn silent(&mut self) {
        self.unseen = Some(String::new());
    }

    /// The text that has been streamed.
    pub(crate) fn said(self) -> String {
        self.unseen.unwrap_or_else(|| self.run.partial().text.clone())
    }
}

impl DeltaSink for LiveSink<'_> {
    fn text(&mut self, piece: &str) -> Heard {
        self.run.touch();
        if let Some((chanting, cut)) = &mut self.chanting
            && chanting.text(piece)
        {
            cut.cancel();
        }
        if let Some(unseen) = &mut self.unseen {
            unseen.push_str(piece);
            return Heard::Nobody;
        }
        let mut partial = self.run.partial();
        partial.text.push_str(piece);
        self.run.publish(|| Delta::Text { step: self.step, text: piece.to_owned() })
    }

    fn reasoning(&mut self, piece: &str) -> Heard {
        self.run.touch();
        if self.unseen.is_some() {
            return Heard::Nobody;
        }
        let mut partial = self.run.partial();
        partial.reasoning.push_str(piece);
        self.run.publish(|| Delta::Reasoning { step: self.step, text: piece.to_owned() })
    }
}
