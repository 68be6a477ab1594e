//! A store that fails or stalls where a test says.

mod plan;

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::store::{KnownInput, QueuedInput, UnfinishedRun};
use belay_protocol::{
    Acceptance, ActedOn, Archive, Aside, BootId, Checkpoint, Claim, Decided, EditOutcome, EditedMessage, Event,
    EventLog, EventQuery, FinishedRun, Found, Gate, GateFilter, GateId, GateState, GateStore, HistoryEntry,
    IdempotencyKey, JobCaps, JobChange, JobChanged, JobCreated, JobFilter, JobId, JobNumbers, JobRecord, JobStore,
    KnownPrincipal, Lease, Message, NewEvent, NewInput, NewJob, NewReservation, NewRoutine, NewRoutineRun, Note,
    NoteStore, OpenedLane, Outbound, Outbox, OutboxId, OutboxRow, OutboxState, PausedRun, Presence, PutRule, Removed,
    ReplyRoute, Retention, RoutineId, RoutineNumbers, RoutinePut, RoutineRecord, RoutineRunEnd, RoutineRunFilter,
    RoutineRunId, RoutineRunRecord, RoutineStore, RunFilter, RunId, RunOptions, RunReader, RunRecord, SearchQuery,
    Secret, SecretVault, SentMessage, Seq, SessionFilter, SessionKey, SessionLifetime, SessionSummary, Settled,
    SpendLedger, Spent, StoreError, ThreadEdit, ThreadId, ThreadStore, ThreadSummary, Together, ToolSwitch,
    ToolSwitches, TranscriptLine, TurnCut, UnixMillis,
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

/// Implements the ports: each operation asks the plan and then the store. A line for each, which names what the plan calls it.
macro_rules! faulty {
    ($($port:ident {
        $($op:ident => $name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*
        $(@watch $follow:ident -> $seen:ty;)?
    })*) => {$(
        #[async_trait]
        impl<S: $port> $port for Faulty<S> {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$answer, StoreError> {
                self.plan.around(StoreOp::$op, $port::$name(&*self.store, $($arg),*)).await
            })*
            $(fn $follow(&self) -> watch::Receiver<$seen> {
                self.store.$follow()
            })?
        }
    )*};
}

faulty! {
    ThreadStore {
        OpenLane => open_lane(session: &SessionKey, lifetime: SessionLifetime, owner: BootId, at: UnixMillis) -> OpenedLane;
        Accept => accept(lease: &Lease, input: NewInput) -> Acceptance;
        Find => find(key: &IdempotencyKey) -> Option<KnownInput>;
        StartRun => start_run(lease: &Lease, run: RunId, at: UnixMillis) -> ();
        StartTogether => start_together(lease: &Lease, together: Together) -> ();
        ReplaceMessage => replace_message(lease: &Lease, edited: EditedMessage) -> ();
        SentMessage => sent_message(session: &SessionKey, message_id: &str) -> Option<SentMessage>;
        Checkpoint => checkpoint(lease: &Lease, checkpoint: Checkpoint) -> ();
        PauseRun => pause_run(lease: &Lease, paused: PausedRun) -> ();
        FinishRuns => finish_runs(lease: &Lease, finished: Vec<FinishedRun>) -> ();
        EditThread => edit_thread(lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> EditOutcome;
        SetOptions => set_options(lease: &Lease, options: RunOptions) -> ();
        SetLoopDetection => set_loop_detection(lease: &Lease, on: bool) -> ();
        Compact => compact(lease: &Lease, keep: u32, summary: String, events: Vec<NewEvent>) -> ();
        Compact => compact_turn(lease: &Lease, cut: TurnCut) -> ();
        NoteActedOn => note_acted_on(acted_on: &ActedOn, at: UnixMillis) -> ();
        ActedOn => acted_on() -> Vec<ActedOn>;
        RecentInputs => recent_inputs() -> Vec<(IdempotencyKey, KnownInput)>;
        QueuedInputs => queued_inputs(runs: &[RunId]) -> Vec<QueuedInput>;
        UnfinishedRuns => unfinished_runs() -> Vec<UnfinishedRun>;
    }
    GateStore {
        Decide => decide(id: GateId, state: GateState, always: bool, by: &str, at: UnixMillis) -> Decided;
        Gate => gate(id: GateId) -> Option<Gate>;
        Gates => gates(filter: GateFilter) -> Vec<Gate>;
        GatesOf => gates_of(run: RunId) -> Vec<Gate>;
        Granted => granted(session: &SessionKey, tool: &str, covers: &str) -> bool;
        ForgetGrants => forget_grants(session: &SessionKey) -> u32;
    }
    SecretVault {
        KeepSecret => keep(session: &SessionKey, name: &str, secret: &Secret, at: UnixMillis) -> ();
        FindSecret => find(session: &SessionKey, name: &str) -> Option<Secret>;
        ForgetSecret => forget(session: &SessionKey, name: &str) -> bool;
        ForgetSecret => forget_all(session: &SessionKey) -> u32;
    }
    RunReader {
        Run => run(id: RunId) -> Option<RunRecord>;
        Runs => runs(filter: RunFilter) -> Vec<RunRecord>;
        Sessions => sessions(filter: SessionFilter) -> Vec<SessionSummary>;
        Session => session(key: &SessionKey) -> Option<SessionSummary>;
        Principals => principals(limit: u32) -> Vec<KnownPrincipal>;
        Presence => presence(place: Option<&ReplyRoute>, since: UnixMillis) -> Presence;
        History => history(session: &SessionKey, after: u64, limit: u32) -> Vec<HistoryEntry>;
        RunMessages => run_messages(id: RunId) -> Vec<Arc<Message>>;
        Ping => ping() -> ();
    }
    Archive {
        Archive => search(query: SearchQuery) -> Vec<Found>;
        Archive => threads(session: &SessionKey) -> Vec<ThreadSummary>;
        Archive => transcript(thread: ThreadId, after: u64, limit: u32) -> Vec<TranscriptLine>;
        Archive => delete_session(lease: &Lease, at: UnixMillis) -> Removed;
        Archive => prune(old: Retention, most: u32) -> Removed;
        Archive => prunable(old: Retention) -> Removed;
        Archive => shrink(pages: u32) -> ();
    }
    EventLog {
        AppendEvents => append(events: Vec<NewEvent>) -> ();
        ReadEvents => read(query: EventQuery) -> Vec<Event>;
        @watch tip -> Seq;
    }
    Outbox {
        Enqueue => enqueue(message: Outbound) -> ();
        Due => due(now: UnixMillis, busy: &[ReplyRoute], limit: u32) -> Vec<OutboxRow>;
        NextDue => next_due() -> Option<UnixMillis>;
        Mark => mark(id: OutboxId, state: OutboxState) -> ();
        SettleInterrupted => settle_interrupted() -> Vec<OutboxRow>;
        @watch committed -> u64;
    }
    NoteStore {
        Remember => remember(session: &SessionKey, key: &str, text: &str, at: UnixMillis) -> ();
        Recall => recall(session: &SessionKey, query: &str, limit: u32) -> Vec<Note>;
    }
    SpendLedger {
        Spent => spent(utc_day: i64) -> Spent;
        SessionSpent => session_spent(session: &SessionKey) -> u64;
        Reserve => reserve(reservation: NewReservation) -> u64;
        Settle => settle(reservation: u64, model: Option<&str>, micro_usd: u64) -> ();
    }
    JobStore {
        CreateJob => create(job: NewJob, caps: JobCaps) -> JobCreated;
        BeginJob => begin_next(caps: JobCaps, at: UnixMillis) -> Option<JobRecord>;
        BeginJobAgain => begin_again(job: JobId, at: UnixMillis) -> JobChanged;
        NoteJob => note_run(job: JobId, attempt: u32, run: RunId) -> ();
        ChangeJob => change(change: JobChange) -> JobChanged;
        NoteJob => park(at: UnixMillis) -> ();
        TakeUpJobs => take_up(boot: BootId, at: UnixMillis) -> Vec<JobRecord>;
        NoteJob => note_progress(job: JobId) -> ();
        ReadJobs => job(id: JobId) -> Option<JobRecord>;
        ReadJobs => jobs(filter: JobFilter) -> Vec<JobRecord>;
        ReadJobs => numbers() -> JobNumbers;
    }
    RoutineStore {
        ChangeRoutine => put(routine: NewRoutine, rule: PutRule) -> RoutinePut;
        ChangeRoutine => enable(routine: RoutineId, on: bool, why: &str, next_at: Option<UnixMillis>, at: UnixMillis) -> Option<RoutineRecord>;
        ChangeRoutine => delete(name: &str, id: Option<RoutineId>) -> bool;
        ReadRoutines => routine(name: &str) -> Option<RoutineRecord>;
        ReadRoutines => routine_at(path: &str) -> Option<RoutineRecord>;
        ReadRoutines => routines() -> Vec<RoutineRecord>;
        ReadRoutines => changes() -> u64;
        DueRoutines => due(now: UnixMillis, limit: u32) -> Vec<RoutineRecord>;
        DueRoutines => next_due() -> Option<UnixMillis>;
        DeferRoutine => defer(routine: RoutineId, aside: Aside) -> ();
        ClaimRoutineRun => claim(routine_run: NewRoutineRun, global: u32) -> Claim;
        MissRoutineRuns => miss(routine: RoutineId, missed: Vec<UnixMillis>, next_at: Option<UnixMillis>, at: UnixMillis) -> ();
        NoteRoutineRun => note_work(routine_run: RoutineRunId, run: Option<RunId>, job: Option<JobId>) -> ();
        SettleRoutineRun => settle(end: RoutineRunEnd) -> Settled;
        ReadRoutineRuns => routine_run(id: RoutineRunId) -> Option<RoutineRunRecord>;
        ReadRoutineRuns => routine_runs(filter: RoutineRunFilter) -> Vec<RoutineRunRecord>;
        ReadRoutineRuns => open_routine_runs() -> Vec<RoutineRunRecord>;
        ReadRoutines => numbers() -> RoutineNumbers;
    }
    ToolSwitches {
        ReadSwitches => switches() -> Vec<ToolSwitch>;
        SwitchTool => switch(switch: ToolSwitch, events: Vec<NewEvent>) -> ();
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
        async fn sessions(&self, _: SessionFilter) -> Result<Vec<SessionSummary>, StoreError> {
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
