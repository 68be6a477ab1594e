//! A store that fails or stalls where a test says.

mod plan;
mod work;

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::store::{KnownInput, QueuedInput, UnfinishedRun};
use belay_protocol::{
    Acceptance, ActedOn, Archive, BootId, Checkpoint, Decided, EditOutcome, EditedMessage, Event, EventLog, EventQuery,
    FinishedRun, Found, Gate, GateFilter, GateId, GateState, GateStore, HistoryEntry, IdempotencyKey, Lease, Message,
    NewEvent, NewInput, Note, NoteStore, OpenedLane, Outbound, Outbox, OutboxId, OutboxRow, OutboxState, PausedRun,
    Presence, Purpose, Removed, ReplyRoute, Retention, RunFilter, RunId, RunOptions, RunReader, RunRecord, SearchQuery,
    Secret, SecretVault, SentMessage, Seq, SessionKey, SessionSummary, SpendLedger, Spent, StoreError, ThreadEdit,
    ThreadId, ThreadStore, ThreadSummary, Together, TranscriptLine, TurnCut, UnixMillis,
};
use tokio::sync::watch;

pub use self::plan::{Fault, FaultPlan, StoreOp};

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

    async fn start_together(&self, lease: &Lease, together: Together) -> Result<(), StoreError> {
        self.plan.around(StoreOp::StartTogether, self.store.start_together(lease, together)).await
    }

    async fn replace_message(&self, lease: &Lease, edited: EditedMessage) -> Result<(), StoreError> {
        self.plan.around(StoreOp::ReplaceMessage, self.store.replace_message(lease, edited)).await
    }

    async fn sent_message(&self, session: &SessionKey, message_id: &str) -> Result<Option<SentMessage>, StoreError> {
        self.plan.around(StoreOp::SentMessage, self.store.sent_message(session, message_id)).await
    }

    async fn checkpoint(&self, lease: &Lease, checkpoint: Checkpoint) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Checkpoint, self.store.checkpoint(lease, checkpoint)).await
    }

    async fn pause_run(&self, lease: &Lease, paused: PausedRun) -> Result<(), StoreError> {
        self.plan.around(StoreOp::PauseRun, self.store.pause_run(lease, paused)).await
    }

    async fn finish_runs(&self, lease: &Lease, finished: Vec<FinishedRun>) -> Result<(), StoreError> {
        self.plan.around(StoreOp::FinishRuns, self.store.finish_runs(lease, finished)).await
    }

    async fn edit_thread(&self, lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> Result<EditOutcome, StoreError> {
        self.plan.around(StoreOp::EditThread, self.store.edit_thread(lease, edit, at)).await
    }

    async fn set_options(&self, lease: &Lease, options: RunOptions) -> Result<(), StoreError> {
        self.plan.around(StoreOp::SetOptions, self.store.set_options(lease, options)).await
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

    async fn compact_turn(&self, lease: &Lease, cut: TurnCut) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Compact, self.store.compact_turn(lease, cut)).await
    }

    async fn note_acted_on(&self, acted_on: &ActedOn, at: UnixMillis) -> Result<(), StoreError> {
        self.plan.around(StoreOp::NoteActedOn, self.store.note_acted_on(acted_on, at)).await
    }

    async fn acted_on(&self) -> Result<Vec<ActedOn>, StoreError> {
        self.plan.around(StoreOp::ActedOn, self.store.acted_on()).await
    }

    async fn recent_inputs(&self) -> Result<Vec<(IdempotencyKey, KnownInput)>, StoreError> {
        self.plan.around(StoreOp::RecentInputs, self.store.recent_inputs()).await
    }

    async fn queued_inputs(&self, runs: &[RunId]) -> Result<Vec<QueuedInput>, StoreError> {
        self.plan.around(StoreOp::QueuedInputs, self.store.queued_inputs(runs)).await
    }

    async fn unfinished_runs(&self) -> Result<Vec<UnfinishedRun>, StoreError> {
        self.plan.around(StoreOp::UnfinishedRuns, self.store.unfinished_runs()).await
    }
}

#[async_trait]
impl<S: GateStore> GateStore for Faulty<S> {
    async fn decide(
        &self,
        id: GateId,
        state: GateState,
        always: bool,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        self.plan.around(StoreOp::Decide, self.store.decide(id, state, always, by, at)).await
    }

    async fn gate(&self, id: GateId) -> Result<Option<Gate>, StoreError> {
        self.plan.around(StoreOp::Gate, self.store.gate(id)).await
    }

    async fn gates(&self, filter: GateFilter) -> Result<Vec<Gate>, StoreError> {
        self.plan.around(StoreOp::Gates, self.store.gates(filter)).await
    }

    async fn gates_of(&self, run: RunId) -> Result<Vec<Gate>, StoreError> {
        self.plan.around(StoreOp::GatesOf, self.store.gates_of(run)).await
    }

    async fn granted(&self, session: &SessionKey, tool: &str, covers: &str) -> Result<bool, StoreError> {
        self.plan.around(StoreOp::Granted, self.store.granted(session, tool, covers)).await
    }

    async fn forget_grants(&self, session: &SessionKey) -> Result<u32, StoreError> {
        self.plan.around(StoreOp::ForgetGrants, self.store.forget_grants(session)).await
    }
}

#[async_trait]
impl<S: SecretVault> SecretVault for Faulty<S> {
    async fn keep(&self, session: &SessionKey, name: &str, secret: &Secret, at: UnixMillis) -> Result<(), StoreError> {
        self.plan.around(StoreOp::KeepSecret, self.store.keep(session, name, secret, at)).await
    }

    async fn find(&self, session: &SessionKey, name: &str) -> Result<Option<Secret>, StoreError> {
        self.plan.around(StoreOp::FindSecret, self.store.find(session, name)).await
    }

    async fn forget(&self, session: &SessionKey, name: &str) -> Result<bool, StoreError> {
        self.plan.around(StoreOp::ForgetSecret, self.store.forget(session, name)).await
    }

    async fn forget_all(&self, session: &SessionKey) -> Result<u32, StoreError> {
        self.plan.around(StoreOp::ForgetSecret, self.store.forget_all(session)).await
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

    async fn presence(&self, place: Option<&ReplyRoute>, since: UnixMillis) -> Result<Presence, StoreError> {
        self.plan.around(StoreOp::Presence, self.store.presence(place, since)).await
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
impl<S: Archive> Archive for Faulty<S> {
    async fn search(&self, query: SearchQuery) -> Result<Vec<Found>, StoreError> {
        self.plan.around(StoreOp::Archive, self.store.search(query)).await
    }

    async fn threads(&self, session: &SessionKey) -> Result<Vec<ThreadSummary>, StoreError> {
        self.plan.around(StoreOp::Archive, self.store.threads(session)).await
    }

    async fn transcript(&self, thread: ThreadId, after: u64, limit: u32) -> Result<Vec<TranscriptLine>, StoreError> {
        self.plan.around(StoreOp::Archive, self.store.transcript(thread, after, limit)).await
    }

    async fn delete_session(&self, lease: &Lease, at: UnixMillis) -> Result<Removed, StoreError> {
        self.plan.around(StoreOp::Archive, self.store.delete_session(lease, at)).await
    }

    async fn prune(&self, old: Retention, most: u32) -> Result<Removed, StoreError> {
        self.plan.around(StoreOp::Archive, self.store.prune(old, most)).await
    }

    async fn prunable(&self, old: Retention) -> Result<Removed, StoreError> {
        self.plan.around(StoreOp::Archive, self.store.prunable(old)).await
    }

    async fn shrink(&self, pages: u32) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Archive, self.store.shrink(pages)).await
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
    async fn spent(&self, utc_day: i64) -> Result<Spent, StoreError> {
        self.plan.around(StoreOp::Spent, self.store.spent(utc_day)).await
    }

    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError> {
        self.plan.around(StoreOp::SessionSpent, self.store.session_spent(session)).await
    }

    async fn reserve(&self, run: RunId, purpose: Purpose, utc_day: i64, micro_usd: u64) -> Result<u64, StoreError> {
        self.plan.around(StoreOp::Reserve, self.store.reserve(run, purpose, utc_day, micro_usd)).await
    }

    async fn settle(&self, reservation: u64, micro_usd: u64) -> Result<(), StoreError> {
        self.plan.around(StoreOp::Settle, self.store.settle(reservation, micro_usd)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

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

    #[tokio::test]
    async fn a_daemon_that_dies_is_answered_nothing_any_more() {
        for (fault, done) in [(Fault::Die, 1), (Fault::DieAfter, 2)] {
            let store = pings();
            store.plan().nth(2, fault);
            assert!(store.ping().await.is_ok());
            assert!(store.plan().died().now_or_never().is_none());
            assert!(store.ping().now_or_never().is_none());
            assert_eq!(store.plan().died().await, StoreOp::Ping);
            assert!(store.ping().now_or_never().is_none());
            assert_eq!(store.inner().0.load(Ordering::SeqCst), done, "{fault:?}");
        }
    }
}
