//! The journal of one run: what it has said and done so far, written to the store as it happens.

use std::sync::Arc;

use belay_agent_loop::LoopContext;
use belay_protocol::{
    Checkpoint, Clock, Durability, EventKind, GateId, JoinedRun, Lease, Message, NewEvent, Outbound, RunId, StoreError,
    ThreadStore,
};

use crate::pending_outbound::{OutboundBatch, PendingOutbound};
use crate::tally::Tally;

/// Writes the progress of one run under its lane's lease.
pub struct RunJournal {
    threads: Arc<dyn ThreadStore>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    run: RunId,
    /// How many messages of the context are stored already.
    stored: usize,
    events: Vec<NewEvent>,
    /// Approvals that the next write uses up.
    used: Vec<GateId>,
    /// Runs that end with the next write, since this one has their messages.
    joined: Vec<JoinedRun>,
    /// What the run says with the next write.
    saying: PendingOutbound,
    /// The account of the run's tree, whose totals go with each write.
    tally: Tally,
    keeps: Keeps,
}

/// How much of what happens a journal writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// All of it.
    Everything,
    /// Facts: messages and state are those of the run that started this one.
    Facts,
    /// Nothing: the store knows no such run.
    Nothing,
}

/// What a run has not written when its turn ends.
#[derive(Debug, Default)]
pub struct Remainder {
    /// Messages of the context.
    pub messages: Vec<Arc<Message>>,
    /// Facts.
    pub events: Vec<NewEvent>,
    /// Messages to deliver.
    pub said: Vec<Outbound>,
}

/// What a run's journal hands to the runs that it starts.
#[derive(Clone)]
pub struct JournalSeed {
    threads: Arc<dyn ThreadStore>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    run: RunId,
    tally: Tally,
    keeps: Keeps,
}

impl JournalSeed {
    /// A journal that writes facts under the same run, if that one does, and nothing of a context.
    pub fn grow(&self) -> RunJournal {
        let Self { threads, clock, lease, run, tally, keeps } = self.clone();
        let keeps = if keeps == Keeps::Nothing { keeps } else { Keeps::Facts };
        RunJournal { keeps, ..RunJournal::new(threads, clock, lease, run, tally, 0) }
    }
}

impl RunJournal {
    /// A journal of a run whose context has `stored` messages that are in the store.
    pub fn new(
        threads: Arc<dyn ThreadStore>,
        clock: Arc<dyn Clock>,
        lease: Lease,
        run: RunId,
        tally: Tally,
        stored: usize,
    ) -> Self {
        let (events, used, joined, saying) = (Vec::new(), Vec::new(), Vec::new(), PendingOutbound::default());
        Self { threads, clock, lease, run, stored, events, used, joined, saying, tally, keeps: Keeps::Everything }
    }

    /// The same for work that is no run of the store's: nothing is written, nor by what it starts.
    #[must_use]
    pub fn of_no_run(self) -> Self {
        Self { keeps: Keeps::Nothing, ..self }
    }

    /// What journals of the runs that this one starts are made of.
    pub fn seed(&self) -> JournalSeed {
        JournalSeed {
            threads: self.threads.clone(),
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

    /// Notes a fact, dated now; stored with the next write.
    pub fn note(&mut self, kind: EventKind) {
        self.events.push(NewEvent {
            at: self.clock.now(),
            session: Some(self.lease.session.clone()),
            run_id: Some(self.run),
            kind,
        });
    }

    /// Whether facts were noted that no write has taken.
    pub fn has_facts(&self) -> bool {
        !self.events.is_empty()
    }

    /// With the next write, these approvals allow nothing more.
    pub fn use_up(&mut self, gates: &[GateId]) {
        self.used.extend_from_slice(gates);
    }

    /// With the next write, this is committed to be delivered.
    pub fn say(&mut self, message: Outbound) {
        self.saying.add(OutboundBatch { messages: vec![message], ..OutboundBatch::default() });
    }

    /// Where tools of the run leave what they say: it goes with the next write.
    pub fn saying(&self) -> PendingOutbound {
        self.saying.clone()
    }

    /// What is said with the next write, with its facts noted.
    fn take_said(&mut self) -> Vec<Outbound> {
        let OutboundBatch { messages, facts } = self.saying.take();
        facts.into_iter().for_each(|fact| self.note(fact));
        messages
    }

    /// With the next write, these runs end: their messages are in the context.
    pub fn join(&mut self, joined: &[JoinedRun]) {
        self.joined.extend_from_slice(joined);
    }

    /// Writes what is new in the context, and the facts noted since the last write.
    ///
    /// # Errors
    /// Nothing was written. Messages and facts are tried again with the next write, or with the end of the run.
    ///
    /// # Cancel safety
    /// Dropped midway, the write may or may not happen. The caller is then about to end the run, and the end carries
    /// the same messages; the store appends a run's end only once, but may keep a message twice: so this is never
    /// dropped on purpose.
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
        if let Err(error) = self.threads.checkpoint(&self.lease, checkpoint).await {
            // The results that say so go with the end of the run, and so does what they say was sent.
            self.saying.add(OutboundBatch { messages: outbound, ..OutboundBatch::default() });
            // Nothing is noted between the taking and this: the write has them for itself.
            (self.events, self.used, self.joined) = (events, used, joined);
            return Err(error);
        }
        self.stored = context.messages.len();
        Ok(())
    }

    /// Takes back facts that no write has taken, and that have not come true.
    pub fn retract(&mut self, untrue: impl Fn(&EventKind) -> bool) {
        self.events.retain(|event| !untrue(&event.kind));
    }

    /// Compaction changed the context: its first `stored` messages are in the store, or stand for what is.
    pub fn rebase(&mut self, stored: usize) {
        self.stored = stored;
    }

    /// What is left to write with the end of the run.
    pub fn remainder(&mut self, messages: &[Arc<Message>]) -> Remainder {
        let said = self.take_said();
        // What joins only joins with a write: these have not, and wait for a turn of their own.
        let apart = std::mem::take(&mut self.joined);
        let is_apart = |run: &RunId| apart.iter().any(|joined| joined.run == *run);
        self.retract(|fact| matches!(fact, EventKind::Joined { runs, .. } if runs.iter().any(is_apart)));
        let messages = messages.get(self.stored..).unwrap_or_default().to_vec();
        Remainder { messages, events: std::mem::take(&mut self.events), said }
    }
}
