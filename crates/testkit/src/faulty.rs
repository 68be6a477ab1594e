//! A store that fails or stalls where a test says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use belay_protocol::store::KnownInput;
use belay_protocol::{
    Acceptance, BootId, Checkpoint, EditOutcome, Event, EventLog, EventQuery, FinishedRun, HistoryEntry,
    IdempotencyKey, Lease, Message, NewEvent, NewInput, Note, NoteStore, OpenedLane, Outbound, Outbox, OutboxId,
    OutboxRow, OutboxState, ReplyRoute, RunFilter, RunId, RunReader, RunRecord, Seq, SessionKey, SessionSummary,
    SpendLedger, StoreError, ThreadEdit, ThreadStore, UnixMillis,
};
use tokio::sync::watch;

/// Wraps a store, and asks its [`FaultPlan`] before each operation what shall happen. Cheap to clone.
#[derive(Debug)]
pub struct Faulty<S> {
    store: Arc<S>,
    plan: FaultPlan,
}

impl<S> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), plan: self.plan.clone() }
    }
}

impl<S> Faulty<S> {
    /// A store that does what `store` does until the plan says otherwise.
    pub fn new(store: Arc<S>) -> Self {
        Self { store, plan: FaultPlan::default() }
    }

    /// The plan, to be changed at any time.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// The store within, past all faults.
    pub fn inner(&self) -> &Arc<S> {
        &self.store
    }
}

/// The operations of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// [`ThreadStore::open_lane`].
    OpenLane,
    /// [`ThreadStore::accept`].
    Accept,
    /// [`ThreadStore::find`].
    Find,
    /// [`ThreadStore::start_run`].
    StartRun,
    /// [`ThreadStore::checkpoint`].
    Checkpoint,
    /// [`ThreadStore::finish_runs`].
    FinishRuns,
    /// [`ThreadStore::edit_thread`].
    EditThread,
    /// [`ThreadStore::set_loop_detection`].
    SetLoopDetection,
    /// [`ThreadStore::compact`].
    Compact,
    /// [`ThreadStore::unfinished_sessions`].
    UnfinishedSessions,
    /// [`RunReader::run`].
    Run,
    /// [`RunReader::runs`].
    Runs,
    /// [`RunReader::sessions`].
    Sessions,
    /// [`RunReader::session`].
    Session,
    /// [`RunReader::history`].
    History,
    /// [`RunReader::run_messages`].
    RunMessages,
    /// [`RunReader::ping`].
    Ping,
    /// [`EventLog::append`].
    AppendEvents,
    /// [`EventLog::read`].
    ReadEvents,
    /// [`Outbox::enqueue`].
    Enqueue,
    /// [`Outbox::due`].
    Due,
    /// [`Outbox::next_due`].
    NextDue,
    /// [`Outbox::mark`].
    Mark,
    /// [`Outbox::settle_interrupted`].
    SettleInterrupted,
    /// [`NoteStore::remember`].
    Remember,
    /// [`NoteStore::recall`].
    Recall,
    /// [`SpendLedger::spent`].
    Spent,
    /// [`SpendLedger::session_spent`].
    SessionSpent,
    /// [`SpendLedger::reserve`].
    Reserve,
    /// [`SpendLedger::settle`].
    Settle,
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with [`StoreError::Unavailable`] and has done nothing.
    Fail,
    /// It does its work, and the answer is lost: the caller sees [`StoreError::Unavailable`].
    LoseAnswer,
    /// It waits for [`FaultPlan::release`], then does its work.
    Stall,
}

/// Which operations go wrong. Clones share it, so that a test changes it while the store is in use.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    asked: AtomicU64,
    released: watch::Sender<u64>,
}

#[derive(Debug)]
struct Rule {
    /// None: any.
    op: Option<StoreOp>,
    fault: Fault,
    /// Matching operations that pass before the fault.
    passing: u64,
    /// Whether it strikes once, or from then on always.
    once: bool,
}

impl FaultPlan {
    /// The `nth` operation from now on, from 1, whatever it is.
    pub fn nth(&self, nth: u64, fault: Fault) {
        self.add(Rule { op: None, fault, passing: nth.saturating_sub(1), once: true });
    }

    /// The `nth` operation of that kind from now on, from 1.
    pub fn nth_of(&self, op: StoreOp, nth: u64, fault: Fault) {
        self.add(Rule { op: Some(op), fault, passing: nth.saturating_sub(1), once: true });
    }

    /// Every operation of that kind.
    pub fn every(&self, op: StoreOp, fault: Fault) {
        self.add(Rule { op: Some(op), fault, passing: 0, once: false });
    }

    /// Every operation.
    pub fn all(&self, fault: Fault) {
        self.add(Rule { op: None, fault, passing: 0, once: false });
    }

    /// No further faults. What stalls goes on stalling until it is released.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// Lets everything go on that stalls now.
    pub fn release(&self) {
        self.0.released.send_modify(|times| *times += 1);
    }

    /// Operations asked for so far, failed ones included; the number for [`FaultPlan::nth`] in a second run.
    pub fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::SeqCst)
    }

    fn add(&self, rule: Rule) {
        self.rules().push(rule);
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of this operation. Of several rules that strike, the first added wins; all of them count it.
    fn next(&self, op: StoreOp) -> Option<Fault> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let mut fault = None;
        self.rules().retain_mut(|rule| {
            if rule.op.is_some_and(|wanted| wanted != op) {
                return true;
            }
            if rule.passing > 0 {
                rule.passing -= 1;
                return true;
            }
            fault.get_or_insert(rule.fault);
            !rule.once
        });
        fault
    }

    async fn around<T>(&self, op: StoreOp, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut released = self.0.released.subscribe();
        match self.next(op) {
            None => work.await,
            Some(Fault::Fail) => Err(injected(op)),
            Some(Fault::LoseAnswer) => work.await.and(Err(injected(op))),
            Some(Fault::Stall) => {
                released.changed().await.map_err(|_| injected(op))?;
                work.await
            }
        }
    }
}

fn injected(op: StoreOp) -> StoreError {
    StoreError::Unavailable(format!("injected fault at {op:?}"))
}

#[async_trait]
impl<S: ThreadStore> ThreadStore for Faulty<S> {
    async fn open_lane(&self, session: &SessionKey, owner: BootId, at: UnixMillis) -> Result<OpenedLane, StoreError> {
        self.plan.around(StoreOp::OpenLane, self.store.open_lane(session, owner, at)).await
    }

    async fn accept(&self, lease: &Lease, input: NewInput) -> Result<Acceptance, StoreError> {
        self.plan.around(StoreOp::Accept, self.store.accept(lease, input)).await
    }

    async fn find(&self, key: &IdempotencyKey) -> Result<Option<KnownInput>, StoreError> {
        self.plan.around(StoreOp::Find, self.store.find(key)).await
    }

    async fn start_run(&self, lease: &Lease, run: RunId, at: UnixMillis) -> Result<(), StoreError> {
        self.plan.around(StoreOp::StartRun, self.store.start_run(lease, run, at)).await
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Checkpoint, self.store.checkpoint(lease, checkpoint)).await
    }

    async fn finish_runs(&self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError> {
        self.plan.around(StoreOp::FinishRuns, self.store.finish_runs(lease, finished)).await
    }

    async fn edit_thread(&self, lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> Result<EditOutcome, StoreError> {
        self.plan.around(StoreOp::EditThread, self.store.edit_thread(lease, edit, at)).await
    }

    async fn set_loop_detection(&self, lease: &Lease, on: bool) -> Result<(), StoreError> {
        self.plan.around(StoreOp::SetLoopDetection, self.store.set_loop_detection(lease, on)).await
    }

    async fn compact(
        &self,
        lease: &Lease,
        keep: u32,
        summary: String,
        events: Vec<NewEvent>,
    ) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Compact, self.store.compact(lease, keep, summary, events)).await
    }

    async fn unfinished_sessions(&self) -> Result<Vec<SessionKey>, StoreError> {
        self.plan.around(StoreOp::UnfinishedSessions, self.store.unfinished_sessions()).await
    }
}

#[async_trait]
impl<S: RunReader> RunReader for Faulty<S> {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.plan.around(StoreOp::Run, self.store.run(id)).await
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        self.plan.around(StoreOp::Runs, self.store.runs(filter)).await
    }

    async fn sessions(&self, limit: u32) -> Result<Vec<SessionSummary>, StoreError> {
        self.plan.around(StoreOp::Sessions, self.store.sessions(limit)).await
    }

    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError> {
        self.plan.around(StoreOp::Session, self.store.session(key)).await
    }

    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        self.plan.around(StoreOp::History, self.store.history(session, after, limit)).await
    }

    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        self.plan.around(StoreOp::RunMessages, self.store.run_messages(id)).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Ping, self.store.ping()).await
    }
}

#[async_trait]
impl<S: EventLog> EventLog for Faulty<S> {
    async fn append(&self, events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.plan.around(StoreOp::AppendEvents, self.store.append(events)).await
    }

    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        self.plan.around(StoreOp::ReadEvents, self.store.read(query)).await
    }

    fn tip(&self) -> watch::Receiver<Seq> {
        self.store.tip()
    }
}

#[async_trait]
impl<S: Outbox> Outbox for Faulty<S> {
    async fn enqueue(&self, message: Outbound) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Enqueue, self.store.enqueue(message)).await
    }

    async fn due(&self, now: UnixMillis, busy: &[ReplyRoute], limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        self.plan.around(StoreOp::Due, self.store.due(now, busy, limit)).await
    }

    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError> {
        self.plan.around(StoreOp::NextDue, self.store.next_due()).await
    }

    async fn mark(&self, id: OutboxId, state: OutboxState) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Mark, self.store.mark(id, state)).await
    }

    async fn settle_interrupted(&self) -> Result<Vec<OutboxRow>, StoreError> {
        self.plan.around(StoreOp::SettleInterrupted, self.store.settle_interrupted()).await
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.store.committed()
    }
}

#[async_trait]
impl<S: NoteStore> NoteStore for Faulty<S> {
    async fn remember(&self, session: &SessionKey, key: &str, text: &str, at: UnixMillis) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Remember, self.store.remember(session, key, text, at)).await
    }

    async fn recall(&self, session: &SessionKey, query: &str, limit: u32) -> Result<Vec<Note>, StoreError> {
        self.plan.around(StoreOp::Recall, self.store.recall(session, query, limit)).await
    }
}

#[async_trait]
impl<S: SpendLedger> SpendLedger for Faulty<S> {
    async fn spent(&self, utc_day: i64) -> Result<u64, StoreError> {
        self.plan.around(StoreOp::Spent, self.store.spent(utc_day)).await
    }

    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError> {
        self.plan.around(StoreOp::SessionSpent, self.store.session_spent(session)).await
    }

    async fn reserve(&self, run: RunId, utc_day: i64, micro_usd: u64) -> Result<u64, StoreError> {
        self.plan.around(StoreOp::Reserve, self.store.reserve(run, utc_day, micro_usd)).await
    }

    async fn settle(&self, reservation: u64, micro_usd: u64) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Settle, self.store.settle(reservation, micro_usd)).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// A store whose only operation is a ping.
    struct Pings(AtomicU64);

    #[async_trait]
    impl RunReader for Pings {
        async fn run(&self, _: RunId) -> Result<Option<RunRecord>, StoreError> {
            Ok(None)
        }
        async fn runs(&self, _: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
            Ok(Vec::new())
        }
        async fn sessions(&self, _: u32) -> Result<Vec<SessionSummary>, StoreError> {
            Ok(Vec::new())
        }
        async fn history(&self, _: &SessionKey, _: u64, _: u32) -> Result<Vec<HistoryEntry>, StoreError> {
            Ok(Vec::new())
        }
        async fn run_messages(&self, _: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
            Ok(Vec::new())
        }
        async fn ping(&self) -> Result<(), StoreError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    fn pings() -> Faulty<Pings> {
        Faulty::new(Arc::new(Pings(AtomicU64::new(0))))
    }

    async fn outcomes(store: &Faulty<Pings>, times: usize) -> Vec<bool> {
        let mut outcomes = Vec::new();
        for _ in 0..times {
            outcomes.push(store.ping().await.is_ok());
        }
        outcomes
    }

    #[tokio::test]
    async fn the_nth_operation_fails_and_the_next_one_works() {
        let store = pings();
        store.plan().nth(2, Fault::Fail);
        assert_eq!(outcomes(&store, 3).await, [true, false, true]);
        assert_eq!(store.inner().0.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_lost_answer_means_that_the_work_was_done() {
        let store = pings();
        store.plan().nth_of(StoreOp::Ping, 1, Fault::LoseAnswer);
        assert_eq!(outcomes(&store, 2).await, [false, true]);
        assert_eq!(store.inner().0.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn every_operation_of_a_kind_fails_until_the_plan_is_cleared() {
        let store = pings();
        store.plan().every(StoreOp::Ping, Fault::Fail);
        store.plan().every(StoreOp::Runs, Fault::Stall);
        assert_eq!(outcomes(&store, 2).await, [false, false]);
        store.plan().clear();
        assert_eq!(outcomes(&store, 1).await, [true]);
        assert_eq!(store.plan().asked(), 3);
    }

    #[tokio::test]
    async fn a_stalled_operation_waits_for_its_release() {
        let store = pings();
        store.plan().nth(1, Fault::Stall);
        let mut ping = store.ping();
        assert!((&mut ping).now_or_never().is_none(), "it stalls");
        store.plan().release();
        assert!(ping.await.is_ok());
    }
}
