//! A run that is alive in this process: what dispatcher, lane and watchers share of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use belay_protocol::{
    CallId, ChannelId, Delta, Generation, Heard, Inbound, Partial, ProgressSink, RunEnd, RunId, RunRecord, RunWatch,
    SessionKey, StopReason, Work,
};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chunking::Blocks;
use crate::pulse::Pulse;

/// Fragments kept for a watcher that lags. Then: the watcher misses some, and takes the text from the reply.
const DELTA_CAPACITY: usize = 512;

/// What a run is, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrigin {
    /// What it is.
    pub work: Work,
    /// The channel that its message came through.
    pub channel: ChannelId,
    /// Who sent the message: an id that is stable within the channel.
    pub principal: Arc<str>,
}

impl RunOrigin {
    /// Of the run of a message.
    pub fn of(inbound: &Inbound) -> Self {
        Self { work: inbound.work, channel: inbound.channel.clone(), principal: inbound.principal.id.clone() }
    }
}

/// A run from its acceptance to its end. The token is the one way to stop it.
#[derive(Debug)]
pub struct LiveRun {
    /// Its id.
    pub id: RunId,
    /// The session.
    pub session: SessionKey,
    /// What it is, and whose.
    pub origin: RunOrigin,
    /// Cancelled once, after its cause is set.
    pub cancel: CancellationToken,
    /// Cancelled when the dispatcher has forgotten the run.
    pub gone: CancellationToken,
    cause: OnceLock<StopCause>,
    started: OnceLock<Instant>,
    /// Nobody looks for loops in it.
    loops_off: AtomicBool,
    /// It rests on a question.
    resting: AtomicBool,
    /// When it was last heard of.
    pulse: Pulse,
    /// Ended by a stop: nothing that belongs to the run starts after it.
    pub generation: Generation,
    finished: watch::Sender<Option<Arc<RunRecord>>>,
    deltas: OnceLock<broadcast::Sender<Delta>>,
    /// What the model has said so far in the step it is at. Held for an append, never across an await; fragments are
    /// published under it, so that whoever begins to watch reads every word once.
    partial: Mutex<Partial>,
    /// What is said in pieces, where its channel takes it so. Held for an append, never across an await.
    blocks: OnceLock<Mutex<Blocks>>,
    /// Something was said: for the one task that shows it.
    changed: Notify,
    /// How many model calls have begun whose text is shown.
    calls: AtomicU64,
    /// The last of them of which a person has seen something.
    seen: AtomicU64,
}

/// Why a run was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopCause {
    /// Why the run ends.
    pub reason: StopReason,
    /// Whether the answer to the command tells the person already, so that the run itself says nothing.
    pub told: bool,
    /// The run whose message comes in its place.
    pub by: Option<RunId>,
    /// Seconds since anything was heard of it.
    pub silent_s: Option<u64>,
}

impl StopCause {
    /// A stop for this reason, which the run tells the person itself.
    pub fn of(reason: StopReason) -> Self {
        Self { reason, told: false, by: None, silent_s: None }
    }

    /// The end of a run that was stopped for this.
    pub fn end(&self) -> RunEnd {
        let mut end = RunEnd::of(self.reason);
        if let Some(by) = self.by {
            end = end.with("newer_run", by.to_string());
        }
        match self.silent_s {
            Some(silent_s) => end.with("silent_s", silent_s),
            None => end,
        }
    }
}

impl LiveRun {
    /// A run that nobody has stopped; `want_deltas`: somebody watches it as it goes on.
    pub fn new(id: RunId, session: SessionKey, origin: RunOrigin, want_deltas: bool) -> Arc<Self> {
        let run = Self {
            id,
            session,
            origin,
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
            blocks: OnceLock::new(),
            changed: Notify::new(),
            calls: AtomicU64::new(1), // nobody has seen any
            seen: AtomicU64::new(0),
        };
        if want_deltas {
            run.deltas.get_or_init(|| broadcast::Sender::new(DELTA_CAPACITY));
        }
        Arc::new(run)
    }

    /// Tells the run to stop. Of several causes the first counts.
    pub fn stop(&self, cause: StopCause) {
        let _ = self.cause.set(cause); // a second stop changes nothing
        // In this order: who takes a generation after its end finds the token cancelled.
        self.cancel.cancel();
        self.generation.end();
    }

    /// The reason it was told to stop, once it was.
    pub fn stopped_by(&self) -> Option<StopCause> {
        self.cancel.is_cancelled().then(|| self.cause.get().copied()).flatten()
    }

    /// Switches loop detection for this run, also while it is at work.
    pub fn detect_loops(&self, on: bool) {
        self.loops_off.store(!on, Ordering::Relaxed);
    }

    /// Whether nobody looks for loops.
    pub fn loops_off(&self) -> bool {
        self.loops_off.load(Ordering::Relaxed)
    }

    /// Notes that work has begun, or goes on after a rest.
    pub fn begin(&self) {
        self.started.get_or_init(Instant::now);
        self.pulse.begin();
    }

    /// Notes a sign of life.
    pub fn touch(&self) {
        self.pulse.beat(Duration::ZERO);
    }

    /// Notes that nothing need be heard for so long: something with a deadline of its own has begun.
    pub(crate) fn quiet_for(&self, time: Duration) {
        self.pulse.beat(time);
    }

    /// How long nothing was heard of it; `None` while it is not at work.
    pub fn silent_for(&self) -> Option<Duration> {
        self.pulse.silence().filter(|_| !self.is_resting() && !self.cancel.is_cancelled())
    }

    /// Whether its silence is to be spoken of: once it has lasted `first`, and then each time it has doubled.
    pub fn warns(&self, silence: Duration, first: Duration) -> bool {
        self.pulse.warns(silence, first)
    }

    /// How long ago work has begun; `None` while it waits for its turn, or for a person.
    pub fn at_work_for(&self) -> Option<Duration> {
        self.started.get().filter(|_| !self.is_resting()).map(Instant::elapsed)
    }

    /// Publishes that it rests on a question, after that is committed.
    pub fn rest(&self, record: Arc<RunRecord>) {
        self.pulse.stop();
        self.resting.store(true, Ordering::Relaxed);
        self.finished.send_replace(Some(record));
    }

    /// Takes back that it rests: it goes on.
    pub fn wake(&self) {
        self.finished.send_replace(None);
        self.resting.store(false, Ordering::Relaxed);
    }

    /// Whether it is at work, or was and waits for a person.
    pub fn is_engaged(&self) -> bool {
        self.started.get().is_some()
    }

    /// Whether it waits for a person.
    pub(crate) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// Publishes the end, after it is committed.
    pub fn finish(&self, record: Arc<RunRecord>) {
        self.finished.send_replace(Some(record));
    }

    /// The end, for the dispatcher's waits.
    pub fn finished(&self) -> watch::Receiver<Option<Arc<RunRecord>>> {
        self.finished.subscribe()
    }

    /// A watch over the run; with fragments from now on, or from the first one if the message asked for them.
    pub fn watch(&self, with_deltas: bool) -> RunWatch {
        let partial = self.partial();
        let deltas =
            with_deltas.then(|| self.deltas.get_or_init(|| broadcast::Sender::new(DELTA_CAPACITY)).subscribe());
        let so_far = if with_deltas { partial.clone() } else { Partial::default() };
        RunWatch { run_id: self.id, finished: self.finished(), deltas, so_far }
    }

    /// What the model has said so far in the step it is at.
    pub fn partial(&self) -> MutexGuard<'_, Partial> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model is asked: what was said before in this step is forgotten.
    pub(crate) fn begin_step(&self, step: u32) {
        self.partial().begin(step);
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(mut blocks) = self.blocks() {
            blocks.begin(step);
        }
        self.changed.notify_one();
    }

    /// Publishes what the model says. Whether anybody heard it.
    pub fn say(&self, step: u32, text: &str, reasoning: &str) -> Heard {
        let mut heard = Heard::Nobody;
        let mut partial = self.partial();
        if !reasoning.is_empty() {
            partial.reasoning.push_str(reasoning);
            heard = self.publish(|| Delta::Reasoning { step, text: reasoning.to_owned() });
        }
        if !text.is_empty() {
            partial.text.push_str(text);
            if self.publish(|| Delta::Text { step, text: text.to_owned() }) == Heard::Somebody {
                heard = Heard::Somebody;
            }
            if self.blocks().is_some_and(|mut blocks| blocks.push(text)) {
                heard = Heard::Somebody;
            }
        }
        self.changed.notify_one();
        if self.seen.load(Ordering::Relaxed) == self.calls.load(Ordering::Relaxed) {
            heard = Heard::Somebody;
        }
        heard
    }

    /// The model call that is shown now, for [`Self::was_seen`].
    pub fn call_shown(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A person has seen something of this call: from now on it counts as heard.
    pub fn was_seen(&self, call: u64) {
        self.seen.fetch_max(call, Ordering::Relaxed);
    }

    /// The text of this step is over and is not the answer.
    pub fn end_text(&self) {
        if let Some(mut blocks) = self.blocks() {
            blocks.end_text();
        }
        self.changed.notify_one();
    }

    /// From now on, what is said is cut into pieces too.
    pub fn say_in(&self, blocks: Blocks) {
        let _ = self.blocks.set(Mutex::new(blocks)); // it goes on after a rest, with what it has
    }

    /// What is said in pieces, if anything is.
    pub fn blocks(&self) -> Option<MutexGuard<'_, Blocks>> {
        self.blocks.get().map(|blocks| blocks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something more was said. One task waits; what happens while it does not is not missed.
    pub async fn changed(&self) {
        self.changed.notified().await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_has_seen_counts_as_heard_until_the_next_call() {
        let origin = RunOrigin { work: Work::Chat, channel: "test".into(), principal: "alice".into() };
        let run = LiveRun::new(RunId::new(), "test:alice".into(), origin, false);
        assert_eq!(run.say(0, "nobody looks", ""), Heard::Nobody);
        run.begin_step(1);
        assert_eq!(run.say(1, "one", ""), Heard::Nobody);
        let earlier = run.call_shown();
        run.begin_step(1);
        run.was_seen(earlier);
        assert_eq!(run.say(1, "one", ""), Heard::Nobody, "the call that was seen is not this one");
        run.was_seen(run.call_shown());
        assert_eq!(run.say(1, " two", ""), Heard::Somebody);
        assert_eq!(run.say(1, " three", ""), Heard::Somebody);
        run.begin_step(2);
        assert_eq!(run.say(2, "four", ""), Heard::Nobody);
    }
}
