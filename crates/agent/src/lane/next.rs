//! Selects the message of the next turn, and the messages that are answered together with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::store::QueuedInput;
use belay_protocol::{JoinedRun, Message, QueueMode, RunId, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;

use super::accept::instruction;
use super::port::note;
use super::state::{LaneState, Running};
use super::{Lane, QueuedRun};
use crate::mail::LaneNote;
use crate::queue::fits_in;
use crate::turn::{COLLECT, Conversation, Gathered, MergedMessage, SUMMARIZE, TurnJob, TurnSlot, run_turn};
use belay_run::compaction::context_of;
use belay_run::joining::Joining;
use belay_run::prompt::SkillsOrigin;

/// Maximum time to wait for more collected messages, in debounce intervals.
const MOST_DEBOUNCES: u32 = 5;
/// Number of refused parkings after which the next turn waits without a wait permit. 3: mail was on its way each time.
const MOST_REFUSALS: u32 = 3;
/// Pause before a text is read again that the store failed to return.
const READ_RETRY: Duration = Duration::from_secs(1);

impl Lane {
    /// Starts the next turn, if none runs. If there is neither a permit to run nor a wait permit to wait for one, asks
    /// the dispatcher to park the lane.
    pub(super) async fn start_next(&mut self) {
        if !self.state.is_idle() || self.services.draining.is_cancelled() || self.read_again_at.is_some() {
            return;
        }
        if !matches!(self.parking, Parking::No { .. }) {
            return;
        }
        if self.quiet_at().is_some_and(|quiet_at| quiet_at > Instant::now()) {
            return;
        }
        let Some(at) = self.next_at() else {
            self.wait_permit = None;
            return;
        };
        let Some(slot) = self.slot_for(at) else { return self.ask_to_be_parked().await };
        let Some(mut next) = self.queue.remove(at) else { return };
        next.queueing.shortened = false;
        let mut gathered = self.gather(&next);
        if let Err(error) = self.read_texts(&mut next, gathered.as_mut()).await {
            tracing::error!(%error, run = %next.run.id, "a message that waits cannot be read; trying again");
            self.queue.insert(at, next);
            self.read_again_at = Some(Instant::now() + READ_RETRY);
            return;
        }
        self.parking = Parking::No { refused: 0 };
        if self.queue.is_empty() {
            self.individually = false;
        }
        let joining = Joining::new(
            next.run.id,
            self.port.wake.clone(),
            gathered.iter().flat_map(|gathered| &gathered.others).map(|other| other.run.id).collect(),
        );
        let skills = SkillsOrigin::of(self.summary.as_deref(), &self.messages, self.has_skills);
        self.brought = next.history.len();
        let mut history = context_of(self.summary.as_deref(), std::mem::take(&mut self.messages));
        history.append(&mut next.history);
        self.instructions = history.iter().filter_map(|message| instruction(message)).map(str::to_owned).collect();
        let mut own = std::mem::take(&mut next.own);
        if let Some(gathered) = &gathered {
            own = vec![Arc::new(gathered.message())];
        }
        let job = TurnJob {
            services: self.services.clone(),
            run: next.run.clone(),
            request: next.request.over(&self.options),
            lease: self.lease.clone(),
            progress: next.progress.lend(),
            conversation: Conversation { history, own, calibration: self.calibration },
            skills,
            slot: TurnSlot { permit: next.queueing.permit.take().or(slot.permit), ..slot },
            gathered,
            joining: joining.clone(),
        };
        next.run.control.detect_loops(self.loop_detection);
        let span = tracing::info_span!("turn", run = %next.run.id, session = %next.run.session);
        self.turn.spawn(run_turn(job).instrument(span));
        self.state = LaneState::Running(Box::new(Running { waiting: next, joining }));
    }

    /// The instant until which the next message waits for other messages to collect; `None`: it does not wait.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        if !self.state.is_idle() || self.individually {
            return None;
        }
        let mut collected =
            self.queue.iter().filter(|waiting| !waiting.queueing.shortened).take_while(|waiting| collects(waiting));
        // A held message waits for the thaw, which wakes the lane.
        let first = collected.next().filter(|first| !self.is_held(first))?;
        let last = collected.last().unwrap_or(first);
        let debounce = last.queueing.rules.debounce;
        Some((last.queueing.arrived + debounce).min(first.queueing.arrived + debounce * MOST_DEBOUNCES))
    }

    /// Whether a freeze keeps the run of a message from beginning.
    fn is_held(&self, waiting: &QueuedRun) -> bool {
        self.services.run.freezer.holds(&waiting.run.origin).is_some()
    }

    /// The queue position of the oldest waiting message. A message that was to become a line of a digest is only used
    /// if no other is left. A stopped message does not start: this wakes the lane, which ends it. A message that a freeze
    /// holds waits for the thaw.
    fn next_at(&self) -> Option<usize> {
        if !self.queue.iter().all(is_wanted) {
            self.port.wake.notify_one();
        }
        let may_begin = |waiting: &QueuedRun| is_wanted(waiting) && !self.is_held(waiting);
        let at = self.queue.iter().position(|waiting| !waiting.queueing.shortened && may_begin(waiting));
        at.or_else(|| self.queue.iter().rposition(may_begin))
    }

    /// A permit to run this message, or a wait permit to wait for a permit. Messages that may not be parked wait
    /// without a wait permit.
    fn slot_for(&mut self, at: usize) -> Option<TurnSlot> {
        if self.queue.get(at).is_some_and(|next| next.queueing.permit.is_some()) {
            return Some(TurnSlot::default());
        }
        if let Ok(permit) = self.services.permits.clone().try_acquire_owned() {
            return Some(TurnSlot { permit: Some(permit), wait_permit: None });
        }
        let wait_permit =
            self.wait_permit.take().or_else(|| self.services.wait_permits.clone().try_acquire_owned().ok());
        if wait_permit.is_some() || !self.may_be_parked() {
            return Some(TurnSlot { permit: None, wait_permit });
        }
        None
    }

    /// Whether the store has all data of the waiting messages, including their order.
    fn may_be_parked(&self) -> bool {
        let known =
            |waiting: &QueuedRun| !waiting.queueing.shortened && !waiting.began_anew && !waiting.progress.has_begun();
        !matches!(self.parking, Parking::No { refused } if refused >= MOST_REFUSALS)
            && self.queue.iter().all(known)
            && self.queue.iter().is_sorted_by_key(|waiting| waiting.request.accepted_at)
    }

    async fn ask_to_be_parked(&mut self) {
        let Parking::No { refused } = self.parking else { return };
        let (go_on, answer) = oneshot::channel();
        let (session, runs) = (self.lease.session.clone(), self.queue.len());
        self.parking = Parking::Asked { answer, refused };
        note(&self.port.notes, LaneNote::WantsParking { session, runs, go_on }).await;
    }

    /// Reads the texts of the messages of the next turn from the store.
    async fn read_texts(&self, next: &mut QueuedRun, gathered: Option<&mut Gathered>) -> Result<(), StoreError> {
        let others = gathered.as_ref().map_or(&[][..], |gathered| &gathered.others);
        let unread = next.is_unread().then_some(next.run.id);
        let wanted: Vec<RunId> = unread.into_iter().chain(others.iter().map(|other| other.run.id)).collect();
        if !wanted.is_empty() {
            let mut inputs: HashMap<RunId, QueuedInput> = HashMap::new();
            for input in self.services.store.inputs.queued_inputs(&wanted).await? {
                inputs.insert(input.run_id, input);
            }
            let mut of = |run: RunId| {
                inputs.remove(&run).ok_or_else(|| StoreError::NotFound(format!("the message of run {run}")))
            };
            if next.is_unread() {
                let input = of(next.run.id)?;
                next.read(input.message(), input.history);
            }
            if let Some(gathered) = gathered {
                for other in &mut gathered.others {
                    other.message = Arc::new(of(other.run.id)?.message());
                }
                gathered.own = next.own.first().map_or_else(nothing_yet, Arc::clone);
            }
        }
        Ok(())
    }

    /// The messages that are answered together with `next`: the lines of a digest, which come before it, and the
    /// collected messages, which follow it. They stay in the queue until the store has them as a part of that turn.
    fn gather(&mut self, next: &QueuedRun) -> Option<Gathered> {
        if !next.is_plain() {
            return None;
        }
        let joins = |waiting: &&QueuedRun| waiting.is_plain() && waiting.is_akin(next);
        let wanted = || self.queue.iter().filter(|waiting| is_wanted(waiting));
        let shortened: Vec<&QueuedRun> = wanted().filter(|waiting| waiting.queueing.shortened).filter(joins).collect();
        let mut collected: Vec<&QueuedRun> = Vec::new();
        if collects(next) && !self.individually {
            let behind = wanted().filter(|waiting| !waiting.queueing.shortened).take_while(|waiting| collects(waiting));
            collected = behind.collect();
            if !collected.iter().all(joins) {
                // Their replies go to different destinations: until all are answered, each message gets a turn of its
                // own.
                self.individually = true;
                collected.clear();
            }
        }
        let fitting =
            fits_in(std::iter::once(next).chain(collected.iter().copied()).map(|waiting| waiting.queueing.bytes));
        collected.truncate(fitting - 1);
        if shortened.is_empty() && collected.is_empty() {
            return None;
        }
        let at = self.services.clock.now();
        let beside = |how| {
            move |waiting: &QueuedRun| MergedMessage {
                run: waiting.run.clone(),
                message: nothing_yet(), // read together with the other texts
                joined: JoinedRun { run: waiting.run.id, how, at },
            }
        };
        let (lines, whole) = (shortened.into_iter().map(beside(SUMMARIZE)), collected.into_iter().map(beside(COLLECT)));
        Some(Gathered { own: nothing_yet(), others: lines.chain(whole).collect() })
    }

    /// Whether the running turn has taken this message.
    pub(super) fn is_in_flight(&self, run: RunId) -> bool {
        self.state.joining().is_some_and(|joining| joining.has(run))
    }
}

/// A placeholder for a message that is not read from the store yet.
fn nothing_yet() -> Arc<Message> {
    Arc::new(Message::data(""))
}

/// The state of parking a lane.
pub(super) enum Parking {
    /// The lane is not being parked. `refused`: number of times that the dispatcher refused it since the last turn.
    No { refused: u32 },
    /// The lane has asked the dispatcher. It starts no turn until the answer.
    Asked { answer: oneshot::Receiver<()>, refused: u32 },
    /// The lane is parked: its mailbox is closed, and its task ends.
    Parked,
}

impl Parking {
    /// Whether the lane waits for the dispatcher's answer.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self, Self::Asked { .. })
    }
}

/// Waits for the dispatcher's answer; forever, if the lane has not asked.
///
/// # Cancel safety
/// Nothing is lost.
pub(super) async fn may_go_on(parking: &mut Parking) -> Parking {
    let Parking::Asked { answer, refused } = parking else { return std::future::pending().await };
    match answer.await {
        Ok(()) => Parking::No { refused: *refused + 1 },
        Err(_) => Parking::Parked,
    }
}

/// Whether it was not told to stop.
fn is_wanted(waiting: &QueuedRun) -> bool {
    !waiting.run.control.cancel.is_cancelled()
}

/// Whether a message waits for others to be collected with it. A message whose run has begun does not wait.
fn collects(waiting: &QueuedRun) -> bool {
    waiting.queueing.rules.mode == QueueMode::Collect && waiting.progress.attempt == 0
}
