//! The journal of one run: writes its messages, events and state to the store during the run.

use std::sync::Arc;

use belay_agent_loop::LoopContext;
use belay_protocol::{
    ApprovalId, Checkpoint, Durability, EventKind, JoinedRun, Lease, Message, NewEvent, Outbound, RunId, StoreError,
    TurnCompaction,
};
use tokio_util::sync::CancellationToken;

use crate::deadlines::Deadlines;
use crate::pending_outbound::{OutboundBatch, PendingOutbound};
use crate::store_wait::{Outage, StoreWait};
use crate::tally::Tally;
use crate::unclear_write::{JournalPorts, UnclearWrite};

/// Writes the progress of one run, under its lane's lease.
pub struct RunJournal {
    ports: Arc<JournalPorts>,
    /// The waits for a store that does not answer.
    wait: Box<StoreWait>, // a run waits for its model with it
    lease: Box<Lease>,
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
    /// The last write, if it failed and may have been done. What it contains counts as unwritten.
    unclear: Option<Box<UnclearWrite>>,
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
    /// Nothing more: the next start continues the run from the last write.
    Suspended,
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
    /// A write that may have stored a part of these.
    pub unclear: Option<Box<UnclearWrite>>,
}

impl Remainder {
    /// Removes what the unclear write has stored after all.
    pub fn without_stored(&mut self, unclear: &UnclearWrite) {
        unclear.remove_from(&mut self.messages, &mut self.events, &mut self.said);
    }
}

/// The parts of a run's journal from which the journals of child runs are made.
#[derive(Clone)]
pub struct JournalSeed {
    ports: Arc<JournalPorts>,
    wait: Box<StoreWait>,
    lease: Box<Lease>,
    run: RunId,
    tally: Tally,
    keeps: Keeps,
}

impl JournalSeed {
    /// A journal for a child run. It writes events under the same run id, unless that run's journal writes nothing, and
    /// no context.
    pub fn grow(&self) -> RunJournal {
        let Self { ports, wait, lease, run, tally, keeps } = self.clone();
        let keeps = match keeps {
            Keeps::Nothing | Keeps::Suspended => keeps,
            Keeps::Everything | Keeps::Facts => Keeps::Facts,
        };
        RunJournal { keeps, ..RunJournal::new(ports, *wait, *lease, run, tally, 0) }
    }
}

impl RunJournal {
    /// A journal of a run. The first `stored` messages of its context are in the store.
    pub fn new(
        ports: Arc<JournalPorts>,
        wait: StoreWait,
        lease: Lease,
        run: RunId,
        tally: Tally,
        stored: usize,
    ) -> Self {
        let (events, used, joined, saying) = (Vec::new(), Vec::new(), Vec::new(), PendingOutbound::default());
        Self {
            ports,
            wait: Box::new(wait),
            lease: Box::new(lease),
            run,
            stored,
            events,
            used,
            joined,
            saying,
            tally,
            keeps: Keeps::Everything,
            unclear: None,
        }
    }

    /// The journal of work that is not a run in the store. It writes nothing, and neither do journals made from it.
    #[must_use]
    pub fn of_no_run(self) -> Self {
        Self { keeps: Keeps::Nothing, ..self }
    }

    /// The parts for journals of child runs.
    pub fn seed(&self) -> JournalSeed {
        JournalSeed {
            ports: self.ports.clone(),
            wait: self.wait.clone(),
            lease: self.lease.clone(),
            run: self.run,
            tally: self.tally.clone(),
            keeps: self.keeps,
        }
    }

    /// The same journal for a run that this token stops.
    #[must_use]
    pub(crate) fn stopped_by(self, stop: CancellationToken) -> Self {
        Self { wait: Box::new(self.wait.stopped_by(stop)), ..self }
    }

    /// The waits for a store that does not answer.
    pub fn wait(&self) -> &StoreWait {
        &self.wait
    }

    /// Sets the deadlines of later waits for the store.
    pub fn set_deadlines(&mut self, deadlines: Deadlines) {
        self.wait.set_deadlines(deadlines);
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
            at: self.ports.clock.now(),
            session: Some(self.lease.session.clone()),
            run_id: Some(self.run),
            kind,
        });
    }

    /// Whether it stores the state of the loop. A later attempt at a run without it begins from nothing.
    pub(crate) fn keeps_state(&self) -> bool {
        self.keeps == Keeps::Everything
    }

    /// Writes nothing more, because the next start continues the run from the last write.
    pub(crate) fn suspend(&mut self) {
        self.keeps = Keeps::Suspended;
    }

    /// Whether the next start continues the run from the last write.
    pub fn is_suspended(&self) -> bool {
        self.keeps == Keeps::Suspended
    }

    /// Whether there are unwritten events.
    pub fn has_facts(&self) -> bool {
        !self.events.is_empty()
    }

    /// Marks approvals as used with the next write.
    pub fn use_up(&mut self, approvals: &[ApprovalId]) {
        self.used.extend_from_slice(approvals);
    }

    /// The same for one approval request of several calls, which is marked once.
    pub(crate) fn use_up_once(&mut self, request: ApprovalId) {
        if !self.used.contains(&request) {
            self.used.push(request);
        }
    }

    /// The run.
    pub(crate) fn run(&self) -> RunId {
        self.run
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

    /// Writes the new messages of the context, and the events since the last write. While the store does not answer, the
    /// write is repeated. It is done once, also if the answer to a commit is lost.
    ///
    /// # Errors
    /// Nothing was written, or nobody knows: see [`UnclearWrite`]. Messages and events that the store does not have are
    /// written with the next write, or with the end of the run.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may or may not happen. The caller then ends the run, and the end carries the
    /// same messages. The store appends the end of a run once, but may store a message twice. So no caller drops this
    /// future on purpose.
    pub async fn write(&mut self, context: &LoopContext, durability: Durability) -> Result<(), StoreError> {
        if matches!(self.keeps, Keeps::Nothing | Keeps::Suspended) {
            return Ok(());
        }
        self.settle_unclear(context).await?;
        let messages = match self.keeps {
            Keeps::Everything => context.messages[self.stored..].to_vec(),
            Keeps::Facts | Keeps::Nothing | Keeps::Suspended => Vec::new(),
        };
        // Written anew for a repetition: a copy would cost each step as much as the state itself.
        let keeps = self.keeps;
        let state = || match keeps {
            Keeps::Everything => serde_json::to_value(&context.state).ok(),
            Keeps::Facts | Keeps::Nothing | Keeps::Suspended => None,
        };
        let (usage, cost_micro_usd) = self.tally.spent();
        let outbound = self.take_said();
        let checkpoint = Checkpoint {
            run: self.run,
            messages,
            state: None,
            usage,
            cost_micro_usd,
            events: std::mem::take(&mut self.events),
            used: std::mem::take(&mut self.used),
            joined: std::mem::take(&mut self.joined),
            outbound,
            durability,
        };
        let write = UnclearWrite::new(&self.ports, &self.lease, checkpoint);
        let attempt =
            || self.ports.store.checkpoint(&self.lease, Checkpoint { state: state(), ..write.write().clone() });
        if let Err(error) = self.once(&write, attempt).await {
            let Checkpoint { events, used, joined, outbound, .. } = write.write().clone();
            // The end of the run carries the results that mention these messages, so it must carry the messages too.
            self.saying.add(OutboundBatch { messages: outbound, ..OutboundBatch::default() });
            // The write has exclusive access, so no event was added meanwhile.
            (self.events, self.used, self.joined) = (events, used, joined);
            self.unclear = write.is_open(&error).then(|| Box::new(write));
            return Err(error);
        }
        self.stored = context.messages.len();
        Ok(())
    }

    /// Finds out about an earlier write before the next one, so that nothing is stored twice.
    async fn settle_unclear(&mut self, context: &LoopContext) -> Result<(), StoreError> {
        let Some(unclear) = &self.unclear else { return Ok(()) };
        if self.wait.until_stored(|| unclear.is_done()).await? {
            let Checkpoint { used, joined, .. } = unclear.write();
            let mut said = self.saying.take();
            unclear.remove_from(&mut Vec::new(), &mut self.events, &mut said.messages);
            self.saying.add(said);
            self.used.retain(|id| !used.contains(id));
            self.joined.retain(|run| !joined.contains(run));
            self.stored += unclear.leading(context.messages.get(self.stored..).unwrap_or_default());
        }
        self.unclear = None;
        Ok(())
    }

    /// Stores a compaction of ended turns, see [`JournalStore::compact`](belay_protocol::JournalStore::compact).
    ///
    /// # Errors
    /// See [`Self::write`].
    pub(crate) async fn compact(&self, keep: u32, summary: String, fact: NewEvent) -> Result<(), StoreError> {
        let write = self.compaction(vec![fact]);
        let events = || write.write().events.clone();
        self.once(&write, || self.ports.store.compact(&self.lease, keep, summary.clone(), events())).await
    }

    /// Stores a compaction that includes the running turn, see
    /// [`JournalStore::compact_turn`](belay_protocol::JournalStore::compact_turn).
    ///
    /// # Errors
    /// See [`Self::write`].
    pub(crate) async fn compact_turn(&self, cut: TurnCompaction) -> Result<(), StoreError> {
        let write = self.compaction(cut.events.clone());
        self.once(&write, || self.ports.store.compact_turn(&self.lease, cut.clone())).await
    }

    /// A compaction, as far as its events show whether it was done.
    fn compaction(&self, events: Vec<NewEvent>) -> UnclearWrite {
        let (usage, cost_micro_usd) = self.tally.spent();
        let checkpoint = Checkpoint {
            run: self.run,
            messages: Vec::new(),
            state: None,
            usage,
            cost_micro_usd,
            events,
            used: Vec::new(),
            joined: Vec::new(),
            outbound: Vec::new(),
            durability: Durability::Committed,
        };
        UnclearWrite::new(&self.ports, &self.lease, checkpoint)
    }

    /// Does a write, and repeats it while the store does not answer and the write was not done.
    async fn once<F>(&self, write: &UnclearWrite, attempt: impl Fn() -> F) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let (mut outage, mut done) = (Outage::default(), attempt().await);
        while let Err(error) = done {
            self.wait.again(&mut outage, error).await?;
            done = match write.is_done().await {
                Ok(true) => Ok(()),
                Ok(false) => attempt().await,
                Err(error) => Err(error),
            };
        }
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
        Remainder { messages, events: std::mem::take(&mut self.events), said, unclear: self.unclear.take() }
    }
}
