//! Deadlines that move while a run of the tree waits for a person.
//!
//! A wait of a run also counts for the runs above it, because they wait for that run. It does not count for the runs
//! beside it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::pending;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use crate::live::LiveRun;
use crate::person_wait::PersonWait;

/// How often a deadline that a wait holds up is looked at again.
const LOOK: Duration = Duration::from_secs(1);

/// The waits of one run of a tree, and of those that it has started.
#[derive(Clone, Debug)]
pub struct WaitClock(Waits);

#[derive(Clone, Debug)]
enum Waits {
    Root(Arc<LiveRun>),
    Child(Arc<ChildWaits>),
    Alone(Arc<PersonWait>),
}

#[derive(Debug)]
struct ChildWaits {
    own: PersonWait,
    above: WaitClock,
}

/// A wait for a person. Dropping it ends the wait.
#[derive(Debug)]
pub struct OpenWait(WaitClock);

impl WaitClock {
    /// The waits of a run at the root of its tree.
    pub(crate) fn root(live: Arc<LiveRun>) -> Self {
        Self(Waits::Root(live))
    }

    /// The waits of a run that is no part of a tree here, such as that of a worker.
    pub fn alone() -> Self {
        Self(Waits::Alone(Arc::default()))
    }

    /// The waits of a run that this one starts.
    pub(crate) fn child(&self) -> Self {
        Self(Waits::Child(Arc::new(ChildWaits { own: PersonWait::default(), above: self.clone() })))
    }

    /// Begins a wait of this run and of the runs above it.
    pub fn begin(&self) -> OpenWait {
        self.each(PersonWait::begin);
        OpenWait(self.clone())
    }

    /// The time that was waited so far.
    pub fn total(&self) -> Duration {
        self.own().total()
    }

    /// Whether the run, or a run that it has started, waits at this moment.
    pub fn is_open(&self) -> bool {
        self.own().is_open()
    }

    fn own(&self) -> &PersonWait {
        match &self.0 {
            Waits::Root(live) => &live.waits,
            Waits::Child(waits) => &waits.own,
            Waits::Alone(waits) => waits,
        }
    }

    /// Waits for the beginning or the end of a wait of the run, or of one that it has started, from the moment on at
    /// which the future is enabled.
    pub fn changed(&self) -> Notified<'_> {
        self.own().changed()
    }

    fn each(&self, change: fn(&PersonWait)) {
        let mut clock = self;
        loop {
            change(clock.own());
            match &clock.0 {
                Waits::Root(_) | Waits::Alone(_) => return,
                Waits::Child(waits) => clock = &waits.above,
            }
        }
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        self.0.each(PersonWait::end);
    }
}

/// An instant that moves while a run waits for a person.
#[derive(Clone, Debug)]
pub struct Deadline {
    at: Instant,
    /// The time that had been waited when it was set.
    waited: Duration,
    clock: WaitClock,
}

impl Deadline {
    /// This instant, later by the time that this clock counts from now on.
    pub fn at(at: Instant, clock: &WaitClock) -> Self {
        Self { at, waited: clock.total(), clock: clock.clone() }
    }

    /// The same deadline, earlier by this time.
    pub(crate) fn earlier(&self, by: Duration) -> Self {
        Self { at: self.at.checked_sub(by).unwrap_or(self.at), ..self.clone() }
    }

    /// The instant, as far as it is known now.
    pub fn instant(&self) -> Instant {
        self.at + self.clock.total().saturating_sub(self.waited)
    }

    /// Whether it has passed.
    pub fn is_past(&self) -> bool {
        self.instant() <= Instant::now()
    }

    /// Waits until it has passed.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn passed(&self) {
        while !self.is_past() {
            sleep_until(self.next_look()).await;
        }
    }

    /// When to look again: while a wait holds it up, not more often than each [`LOOK`].
    fn next_look(&self) -> Instant {
        match self.clock.is_open() {
            true => self.instant().max(Instant::now() + LOOK),
            false => self.instant(),
        }
    }
}

/// The deadlines of a run: of its stop rules, its own, and those of the runs above it.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    pub(crate) rules: Option<Deadline>,
    pub(crate) own: Option<Deadline>,
    pub(crate) above: Option<Arc<Self>>,
}

impl Deadlines {
    /// The earliest of them, as far as it is known now.
    pub fn earliest(&self) -> Option<Instant> {
        let above = self.above.as_ref().and_then(|above| above.earliest());
        [&self.rules, &self.own].into_iter().flatten().map(Deadline::instant).chain(above).min()
    }

    /// Whether one of them has passed.
    pub fn is_past(&self) -> bool {
        self.earliest().is_some_and(|earliest| earliest <= Instant::now())
    }

    /// Waits until one of them has passed. Without a deadline it never returns.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn passed(&self) {
        while let Some(earliest) = self.earliest() {
            if earliest <= Instant::now() {
                return;
            }
            let held = if self.is_held_up() { Instant::now() + LOOK } else { earliest };
            sleep_until(earliest.max(held)).await;
        }
        pending().await
    }

    fn is_held_up(&self) -> bool {
        [&self.rules, &self.own].into_iter().flatten().any(|deadline| deadline.clock.is_open())
            || self.above.as_ref().is_some_and(|above| above.is_held_up())
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{RunId, Work};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::live::RunOrigin;

    const SECOND: Duration = Duration::from_secs(1);

    fn root() -> WaitClock {
        let origin = RunOrigin { work: Work::Chat, source: None, channel: "test".into(), principal: "ann".into() };
        WaitClock::root(LiveRun::new(RunId::new(), "s".into(), origin, false))
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_moves_the_deadlines_of_its_run_and_of_those_above_and_of_no_other() {
        let root = root();
        let (one, other) = (root.child(), root.child());
        let until = Instant::now() + 10 * SECOND;
        let deadlines = [&root, &one, &other].map(|clock| Deadline::at(until, clock));
        let wait = one.child().begin();
        sleep(60 * SECOND).await;
        assert_eq!(deadlines.each_ref().map(Deadline::is_past), [false, false, true]);
        drop(wait);
        sleep(9 * SECOND).await;
        assert_eq!(deadlines.each_ref().map(Deadline::is_past), [false, false, true]);
        sleep(SECOND).await;
        assert_eq!(deadlines.each_ref().map(Deadline::is_past), [true; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_of_the_deadline_returns_after_the_wait_and_what_was_left() {
        let root = root();
        let child = root.child();
        let own = Some(Deadline::at(Instant::now() + 10 * SECOND, &root));
        let above = Arc::new(Deadlines { own, ..Deadlines::default() });
        let deadlines = Deadlines { above: Some(above), ..Deadlines::default() };
        let began = Instant::now();
        let wait = child.begin();
        assert!(timeout(100 * SECOND, deadlines.passed()).await.is_err());
        drop(wait);
        deadlines.passed().await;
        assert_eq!(began.elapsed(), 110 * SECOND);
        assert!(deadlines.is_past() && timeout(SECOND, Deadlines::default().passed()).await.is_err());
    }
}
