//! The time of a run: its dates and its deadlines.

use std::time::Duration;

use belay_agent_loop::policies::{Action, Observation};
use belay_agent_loop::{LoopContext, Meter};
use belay_protocol::{Finding, RunEnd, StopReason, UnixMillis};
use tokio::time::Instant;

use super::{CallPurpose, RunCore};
use crate::deadlines::{Deadline, Deadlines};

/// A time limit that the parent set for a run.
#[derive(Clone, Debug)]
pub struct OwnTime {
    /// The end of it, with the closing turn.
    pub until: Deadline,
    /// The end of the work.
    pub work: Deadline,
    /// Its length.
    pub time: Duration,
}

/// A clock whose dates never go backwards: the start date plus the elapsed time.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    began: UnixMillis,
    since: Instant,
}

impl RunClock {
    /// A clock that starts now, at this date.
    pub fn starting(began: UnixMillis) -> Self {
        Self { began, since: Instant::now() }
    }

    /// The date according to this clock, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.0).unwrap_or(0).saturating_add(millis(self.since.elapsed()))
    }

    fn instant_of(&self, at_ms: u64) -> Instant {
        let since_began = at_ms.saturating_sub(u64::try_from(self.began.0).unwrap_or(0));
        // A deadline beyond the range of the clock becomes one year from now.
        self.since.checked_add(Duration::from_millis(since_began)).unwrap_or_else(|| self.since + YEAR)
    }
}

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl RunCore {
    /// The time and the usage, for the stop rules.
    pub fn meter(&self) -> Meter {
        Meter { clock_ms: Some(self.clock.now_ms()), totals: self.tally.totals() }
    }

    /// The deadlines of the run. For a closing turn: its own deadline and the parent's.
    pub fn deadlines(&self, context: &LoopContext, purpose: CallPurpose) -> Deadlines {
        let above = self.above.clone();
        let at = |at| Deadline::at(at, &self.waits);
        match purpose.closing() {
            Some(time) => Deadlines { rules: None, own: Some(at(Instant::now() + time)), above },
            None => {
                let rules = self.rules.deadline_ms(&context.state.stops);
                let rules = rules.map(|reading| at(self.clock.instant_of(reading)));
                Deadlines { rules, own: self.own.as_ref().map(|own| own.work.clone()), above }
            }
        }
    }

    /// The time for a closing turn that begins now.
    ///
    /// # Errors
    /// Why there is none, as a word of the evidence.
    pub fn closing_time(&self, context: &LoopContext) -> Result<Duration, &'static str> {
        let above = self.above.as_ref().and_then(|above| above.earliest());
        let until = self.own.as_ref().map(|own| own.until.instant()).into_iter().chain(above).min();
        let most = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.rules.closing_time(&context.state.stops, self.clock.now_ms(), most)
    }

    /// Ends the work so early that a closing turn fits into the run's own time.
    pub fn leave_time_for_closing(&mut self) {
        if let Some(own) = &mut self.own {
            own.work = own.until.earlier(self.rules.held_for_closing(own.time));
        }
    }

    /// Tells the stop rules how long the run, or a run that it has started, has waited for people since the last call of
    /// this function.
    pub fn note_waited(&mut self, context: &mut LoopContext) {
        let total = self.waits.total();
        let waited = total.saturating_sub(std::mem::replace(&mut self.noted, total));
        if !waited.is_zero() {
            // Waiting is no active time, so no rule can apply because of it.
            let _ = context.state.stops.observe(&self.rules, Observation::Paused(millis(waited)));
        }
    }

    /// Whether the deadline of the parent has passed.
    pub fn parent_is_late(&self) -> bool {
        self.above.as_ref().is_some_and(|above| above.is_past())
    }

    /// The end of a run whose deadline passed during a call.
    pub(super) fn late(&self, context: &mut LoopContext) -> RunEnd {
        let verdict = context.state.stops.observe(&self.rules, Observation::Clock(self.clock.now_ms()));
        match verdict.filter(|verdict| verdict.action == Action::Stop) {
            Some(verdict) => verdict.finding.into(),
            None => match self.own.as_ref().filter(|own| own.work.is_past() && self.closing.is_none()) {
                Some(OwnTime { time, .. }) => {
                    Finding::new(StopReason::ActiveTime, "max_time", time.as_secs(), time.as_secs())
                        .with("unit", "s")
                        .into()
                }
                // The deadline of the parent or of the closing turn has passed, not this run's own.
                None => Finding::new(StopReason::ActiveTime, "deadline", 0, 0).into(),
            },
        }
    }
}
