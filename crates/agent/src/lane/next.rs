//! Which message is answered next, and together with which others.

use std::sync::Arc;

use belay_protocol::{JoinedRun, Place, Purpose, QueueMode, RunId};
use tokio::time::Instant;
use tracing::Instrument;

use super::accept::instruction;
use super::{Lane, Waiting};
use crate::compaction::context_of;
use crate::joining::Joining;
use crate::queue::fits_in;
use crate::turn::{Beside, COLLECT, Gathered, SUMMARIZE, TurnJob, run_turn};

/// How many pauses of the debounce somebody may go on writing before they are answered.
const MOST_DEBOUNCES: u32 = 5;

impl Lane {
    /// Begins the next turn, if none runs.
    pub(super) fn start_next(&mut self) {
        let engaged = !self.turn.is_empty() || self.resting.is_some() || self.compacting.is_some();
        if engaged || self.house.draining.is_cancelled() {
            return;
        }
        if self.quiet_at().is_some_and(|quiet_at| quiet_at > Instant::now()) {
            return;
        }
        let Some(mut next) = self.take_next() else { return };
        let gathered = self.gather(&next);
        if self.queue.is_empty() {
            self.individually = false;
        }
        let joining = Joining::new(
            next.run.id,
            self.port.wake.clone(),
            gathered.iter().flat_map(|gathered| &gathered.others).map(|other| other.run.id).collect(),
        );
        self.brought = next.history.len();
        let mut history = context_of(self.summary.as_deref(), std::mem::take(&mut self.messages));
        history.append(&mut next.history);
        self.instructions = history.iter().filter_map(|message| instruction(message)).map(str::to_owned).collect();
        let mut own = std::mem::take(&mut next.own);
        if let Some(gathered) = &gathered {
            own = vec![Arc::new(gathered.message())];
        }
        let job = TurnJob {
            house: self.house.clone(),
            run: next.run.clone(),
            lease: self.lease.clone(),
            history,
            own,
            state: next.state.take(),
            usage: next.usage,
            cost_micro_usd: next.cost_micro_usd,
            reply_to: next.reply_to.clone(),
            permit: next.permit.take(),
            begun_at: next.begun_at,
            answers: std::mem::take(&mut next.answers),
            purpose: Purpose::of(&next.channel),
            asker: next.asker.clone(),
            channel: next.channel.clone(),
            relayed: next.asker.relayed,
            audience: next.audience(),
            elsewhere: next.asker.place == Place::Operator,
            options: Arc::new(next.options.clone().over(&self.options)),
            gathered,
            joining: joining.clone(),
            calibration: self.calibration,
        };
        next.run.detect_loops(self.loop_detection);
        let span = tracing::info_span!("turn", run = %next.run.id, session = %next.run.session);
        self.turn.spawn(run_turn(job).instrument(span));
        self.joining = Some(joining);
        self.current = Some(next);
    }

    /// Until when the next message waits for others that come with it.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        let engaged = !self.turn.is_empty() || self.resting.is_some() || self.compacting.is_some();
        if engaged || self.individually {
            return None;
        }
        let mut collected =
            self.queue.iter().filter(|waiting| !waiting.shortened).take_while(|waiting| collects(waiting));
        let first = collected.next()?;
        let last = collected.last().unwrap_or(first);
        let debounce = last.rules.debounce;
        Some((last.arrived + debounce).min(first.arrived + debounce * MOST_DEBOUNCES))
    }

    /// The oldest message that waits. One that was to become a line of a digest is the next where no other is left. One that
    /// was stopped does not begin: it ends as such, which the lane is woken for.
    fn take_next(&mut self) -> Option<Waiting> {
        if !self.queue.iter().all(is_wanted) {
            self.port.wake.notify_one();
        }
        let at = self.queue.iter().position(|waiting| !waiting.shortened && is_wanted(waiting));
        let mut next = self.queue.remove(at.or_else(|| self.queue.iter().rposition(is_wanted))?)?;
        next.shortened = false;
        Some(next)
    }

    /// What is answered together with `next`: lines of a digest before it, and what was collected behind it. They stay in
    /// the queue until the store has them as a part of that turn.
    fn gather(&mut self, next: &Waiting) -> Option<Gathered> {
        if !next.is_plain() {
            return None;
        }
        let joins = |waiting: &&Waiting| waiting.is_plain() && waiting.is_akin(next);
        let wanted = || self.queue.iter().filter(|waiting| is_wanted(waiting));
        let shortened: Vec<&Waiting> = wanted().filter(|waiting| waiting.shortened).filter(joins).collect();
        let mut collected: Vec<&Waiting> = Vec::new();
        if collects(next) && !self.individually {
            let behind = wanted().filter(|waiting| !waiting.shortened).take_while(|waiting| collects(waiting));
            collected = behind.collect();
            if !collected.iter().all(joins) {
                // They want their answers in different places: each gets its own, until all are answered.
                self.individually = true;
                collected.clear();
            }
        }
        let fitting = fits_in(std::iter::once(next).chain(collected.iter().copied()).map(Waiting::text));
        collected.truncate(fitting - 1);
        if shortened.is_empty() && collected.is_empty() {
            return None;
        }
        let at = self.house.clock.now();
        let beside = |how| {
            move |waiting: &Waiting| Beside {
                run: waiting.run.clone(),
                message: waiting.message(),
                joined: JoinedRun { run: waiting.run.id, how, at },
            }
        };
        let (lines, whole) = (shortened.into_iter().map(beside(SUMMARIZE)), collected.into_iter().map(beside(COLLECT)));
        Some(Gathered { own: next.message(), others: lines.chain(whole).collect() })
    }

    /// Whether the running turn has this message in hand.
    pub(super) fn is_in_flight(&self, run: RunId) -> bool {
        self.joining.as_ref().is_some_and(|joining| joining.has(run))
    }
}

/// Whether nobody has told it to stop.
fn is_wanted(waiting: &Waiting) -> bool {
    !waiting.run.cancel.is_cancelled()
}

/// Whether a message waits for others to come with it. One that had begun before does not.
fn collects(waiting: &Waiting) -> bool {
    waiting.rules.mode == QueueMode::Collect && waiting.attempt == 0
}
