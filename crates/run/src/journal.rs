//! The journal of one run: writes its messages, events and state to the store during the run.

use std::sync::Arc;

use belay_agent_loop::LoopContext;
use belay_protocol::{
    ApprovalId, Checkpoint, Clock, Durability, EventKind, JoinedRun, JournalStore, Lease, Message, NewEvent, Outbound,
    RunId, StoreError,
};

use crate::pending_outbound::{OutboundBatch, PendingOutbound};
use crate::tally::Tally;

/// Writes the progress of one run, under its lane's lease.
pub struct RunJournal {
    store: Arc<dyn JournalStore>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    run: RunId,
    /// Number of messages of the context that are in the store.
    stored: usize,
    events: Vec<NewEvent>,
    /// Approvals that the next write marks as used.
    used: Vec<ApprovalId>,
    /// Runs that end with the next write, because their messages have joined this run.
    joined: Vec<JoinedRun>,
    /// Messages to send that the next write commits.
    saying: PendingOutbound,
    /// The account of the run tree. Each write stores its totals.
    tally: Tally,
    keeps: Keeps,
}

/// Scope of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// Messages, state and events.
    Everything,
    /// Events only: the run that started this one stores messages and state.
    Facts,
    /// Nothing: the run is not in the store.
    Nothing,
}

/// Unwritten data of a run whose turn ends.
#[derive(Debug, Default)]
pub struct Remainder {
    /// Messages of the context.
    pub messages: Vec<Arc<Message>>,
    /// Events.
    pub events: Vec<NewEvent>,
    /// Messages to deliver.
    pub said: Vec<Outbound>,
}

/// The parts of a run's journal from which the journals of child runs are made.
#[derive(Clone)]
pub struct JournalSeed {
    store: Arc<dyn JournalStore>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    run: RunId,
    tally: Tally,
    keeps: Keeps,
}

impl JournalSeed {
    /// A journal for a child run. It writes events under the same run id, unless that run's journal writes nothing, and
    /// no context.
    pub fn grow(&self) -> RunJournal {
        let Self { store, clock, lease, run, tally, keeps } = self.clone();
        let keeps = if keeps == Keeps::Nothing { keeps } else { Keeps::Facts };
        RunJournal { keeps, ..RunJournal::new(store, clock, lease, run, tally, 0) }
    }
}

impl RunJournal {
    /// A journal of a run. The first `stored` messages of its context are in the store.
    pub fn new(
        store: Arc<dyn JournalStore>,
        clock: Arc<dyn Clock>,
        lease: Lease,
        run: RunId,
        tally: Tally,
        stored: usize,
    ) -> Self {
        let (events, used, joined, saying) = (Vec::new(), Vec::new(), Vec::new(), PendingOutbound::default());
        Self { store, clock, lease, run, stored, events, used, joined, saying, tally, keeps: Keeps::Everything }
    }

    /// The journal of work that is not a run in the store. It writes nothing, and neither do journals made from it.
    #[must_use]
    pub fn of_no_run(self) -> Self {
        Self { keeps: Keeps::Nothing, ..self }
    }

    /// The parts for journals of child runs.
    pub fn seed(&self) -> JournalSeed {
        JournalSeed {
            store: self.store.clone(),
            clock: self.clock.clone(),
            lease: self.lease.clone(),
            run: self.run,
            tally: self.tally.clone(),
            keeps: self.keeps,
        }
    }

    /// The account of the run's tree.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The lane's lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Records an event with the current date; the next write stores it.
    pub fn note(&mut self, kind: EventKind) {
        self.events.push(NewEvent {
            at: self.clock.now(),
            session: Some(self.lease.session.clone()),
            run_id: Some(self.run),
            kind,
        });
    }

    /// Whether there are unwritten events.
    pub fn has_facts(&self) -> bool {
        !self.events.is_empty()
    }

    /// Marks approvals as used with the next write.
    pub fn use_up(&mut self, approvals: &[ApprovalId]) {
        self.used.extend_from_slice(approvals);
    }

    /// Commits a message for delivery with the next write.
    pub fn say(&mut self, message: Outbound) {
        self.saying.add(OutboundBatch { messages: vec![message], ..OutboundBatch::default() });
    }

    /// The queue for messages that tools of the run send; the next write commits them.
    pub fn saying(&self) -> PendingOutbound {
        self.saying.clone()
    }

    /// Takes the messages of the next write and records their events.
    fn take_said(&mut self) -> Vec<Outbound> {
        let OutboundBatch { messages, facts } = self.saying.take();
        facts.into_iter().for_each(|fact| self.note(fact));
        messages
    }

    /// Ends these runs with the next write. Their messages are in the context.
    pub fn join(&mut self, joined: &[JoinedRun]) {
        self.joined.extend_from_slice(joined);
    }

    /// Writes the new messages of the context, and the events since the last write.
    ///
    /// # Errors
    /// Nothing was written. Messages and events are written with the next write, or with the end of the run.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may or may not happen. The caller then ends the run, and the end carries the
    /// same messages. The store appends the end of a run once, but may store a message twice. So no caller drops this
    /// future on purpose.
    pub async fn write(&mut self, context: &LoopContext, durability: Durability) -> Result<(), StoreError> {
        let (messages, state) = match self.keeps {
            Keeps::Everything => (context.messages[self.stored..].to_vec(), serde_json::to_value(&context.state).ok()),
            Keeps::Facts => (Vec::new(), None),
            Keeps::Nothing => return Ok(()),
        };
        let (usage, cost_micro_usd) = self.tally.spent();
        let outbound = self.take_said();
        let (events, used, joined) =
            (std::mem::take(&mut self.events), std::mem::take(&mut self.used), std::mem::take(&mut self.joined));
        let checkpoint = Checkpoint {
            run: self.run,
            messages,
            state,
            usage,
            cost_micro_usd,
            events: events.clone(),
            used: used.clone(),
            joined: joined.clone(),
            outbound: outbound.clone(),
            durability,
        };
        if let Err(error) = self.store.checkpoint(&self.lease, checkpoint).await {
            // The end of the run carries the results that mention these messages, so it must carry the messages too.
            self.saying.add(OutboundBatch { messages: outbound, ..OutboundBatch::default() });
            // The write has exclusive access, so no event was added meanwhile.
            (self.events, self.used, self.joined) = (events, used, joined);
            return Err(error);
        }
        self.stored = context.messages.len();
        Ok(())
    }

    /// Removes unwritten events that did not come true.
    pub fn retract(&mut self, untrue: impl Fn(&EventKind) -> bool) {
        self.events.retain(|event| !untrue(&event.kind));
    }

    /// Adapts to a compacted context: its first `stored` messages are in the store, or replace stored ones.
    pub fn rebase(&mut self, stored: usize) {
        self.stored = stored;
    }

    /// Takes the data that the end of the run has to write.
    pub fn remainder(&mut self, messages: &[Arc<Message>]) -> Remainder {
        let said = self.take_said();
        // A message joins a run only with a write. These have not joined, and wait for a turn of their own.
        let apart = std::mem::take(&mut self.joined);
        let is_apart = |run: &RunId| apart.iter().any(|joined| joined.run == *run);
        self.retract(|fact| matches!(fact, EventKind::Joined { runs, .. } if runs.iter().any(is_apart)));
        let messages = messages.get(self.stored..).unwrap_or_default().to_vec();
        Remainder { messages, events: std::mem::take(&mut self.events), said }
    }
}
