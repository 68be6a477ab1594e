//! A store that fails or stalls at chosen operations.

mod plan;

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::store::{Claimed, KeyClaim, LastTurn, QueuedInput, UnfinishedRun};
use belay_protocol::{
    Acceptance, ActedOn, ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalState, ApprovalStore, Archive, Asker,
    Authority, BootId, CallCharge, ChannelId, Checkpoint, ChildQuestion, ChildQuestionStore, Claim, ClientCallStore,
    ClientNote, ClientResult, CollectedStart, Conversation, ConversationReader, ConversationSummary, Cursor, Cursors,
    Decided, Deferral, DispatcherStore, EditOutcome, EditedMessage, Event, EventLog, EventQuery, FinishedRun,
    Forgotten, Found, Freeze, FreezeStore, HeldJobs, HistoryEntry, IdPrefix, IdempotencyKey, InputReader, JobAttempts,
    JobCaps, JobChange, JobChanged, JobCreated, JobFilter, JobId, JobNumbers, JobProgress, JobReader, JobRecord,
    JobStore, JournalStore, KnownInput, KnownPrincipal, LaneClaim, LaneStore, Lease, MemoryOwner, Message, NewEvent,
    NewInput, NewJob, NewNote, NewReservation, NewRoutine, NewRoutineRun, Note, NoteArchive, NoteFilter, NoteSelection,
    NoteStore, Opening, Outbound, Outbox, OutboxId, OutboxRow, OutboxState, PairedPerson, PausedRun, PendingPairing,
    PeopleStore, Presence, PrincipalFilter, PromptNotes, Provenance, PutRule, Remembered, Removed, ReplyRoute,
    Retention, RoutineId, RoutineNumbers, RoutinePut, RoutineReader, RoutineRecord, RoutineRunEnd, RoutineRunFilter,
    RoutineRunId, RoutineRunRecord, RoutineRunStore, RoutineSchedule, RoutineStore, RunFilter, RunId, RunOptions,
    RunReader, RunRecord, RunStore, RunsIn, SaidQuery, SearchQuery, SecondYes, Secret, SecretVault, SentMessage, Seq,
    SessionChange, SessionFilter, SessionKey, SessionLifetime, SessionReader, SessionSummary, Settled, SignIn,
    SignInStore, SkillSnapshot, SkillStore, SpendLedger, Spent, StoreError, StoreHealth, ThreadEdit, ThreadId,
    ThreadSummary, TitleStore, ToolSwitch, ToolSwitches, TranscriptLine, TurnCompaction, UnixMillis, Untitled,
    WorkLease,
};
use tokio::sync::watch;

pub use self::plan::{Fault, FaultPlan};

/// Wraps a store. Before each operation it asks its [`FaultPlan`] for a fault. Cheap to clone.
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
    /// A store that behaves like `store` until the plan has a fault.
    pub fn new(store: Arc<S>) -> Self {
        Self { store, plan: FaultPlan::default() }
    }

    /// The plan. It may be changed at any time.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// The wrapped store, without faults.
    pub fn inner(&self) -> &Arc<S> {
        &self.store
    }
}

/// Implements the ports from a list of their methods: each method asks the plan and then calls the store. The name
/// before `=>` is the [`StoreOp`] of the method.
macro_rules! faulty {
    ($($port:ident {
        $($op:ident => $name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*
        $(@watch $follow:ident -> $seen:ty;)?
        $(@now $quick:ident($quick_arg:ident: $quick_kind:ty) -> $quick_answer:ty;)?
    })*) => {
        /// The operations of a store, one for each method of its ports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StoreOp {$($(
            #[doc = concat!("[`", stringify!($port), "::", stringify!($name), "`]")]
            $op,
        )*)*}
        $(
        #[async_trait]
        impl<S: $port> $port for Faulty<S> {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$answer, StoreError> {
                self.plan.around(StoreOp::$op, $port::$name(&*self.store, $($arg),*)).await
            })*
            $(fn $follow(&self) -> watch::Receiver<$seen> {
                self.store.$follow()
            })?
            $(fn $quick(&self, $quick_arg: $quick_kind) -> $quick_answer {
                self.store.$quick($quick_arg)
            })?
        }
    )*};
}

faulty! {
    LaneStore {
        OpenLane => open_lane(session: &SessionKey, lifetime: SessionLifetime, claim: LaneClaim, at: UnixMillis) -> Opening;
        Accept => accept(lease: &Lease, input: NewInput) -> Acceptance;
        ReplaceMessage => replace_message(lease: &Lease, edited: EditedMessage) -> Option<Arc<Provenance>>;
        SentMessage => sent_message(session: &SessionKey, message_id: &str) -> Option<SentMessage>;
        EditThread => edit_thread(lease: &Lease, edit: ThreadEdit, at: UnixMillis) -> EditOutcome;
        SetOptions => set_options(lease: &Lease, options: RunOptions) -> ();
        SetLoopDetection => set_loop_detection(lease: &Lease, on: bool) -> ();
        ReleaseLane => release_lane(lease: &Lease) -> ();
    }
    RunStore {
        StartRun => start_run(lease: &Lease, run: RunId, at: UnixMillis) -> ();
        StartTogether => start_together(lease: &Lease, together: CollectedStart) -> ();
        SuspendRun => suspend_run(lease: &Lease, run: RunId) -> ();
        PauseRun => pause_run(lease: &Lease, paused: PausedRun) -> ();
        FinishRuns => finish_runs(lease: &Lease, finished: Vec<FinishedRun>) -> ();
    }
    JournalStore {
        Checkpoint => checkpoint(lease: &Lease, checkpoint: Checkpoint) -> ();
        Compact => compact(lease: &Lease, keep: u32, summary: String, events: Vec<NewEvent>) -> ();
        CompactTurn => compact_turn(lease: &Lease, cut: TurnCompaction) -> ();
    }
    InputReader {
        Find => find(key: &IdempotencyKey) -> Option<KnownInput>;
        QueuedInputs => queued_inputs(runs: &[RunId]) -> Vec<QueuedInput>;
        LastTurn => last_turn(session: &SessionKey) -> Option<LastTurn>;
    }
    DispatcherStore {
        ClaimKey => claim_key(claim: KeyClaim) -> Claimed;
        ReleaseKey => release_key(key: &IdempotencyKey, owner: BootId) -> ();
        NoteActedOn => note_acted_on(acted_on: &ActedOn, at: UnixMillis) -> ();
        ActedOn => acted_on() -> Vec<ActedOn>;
        RecentInputs => recent_inputs() -> Vec<(IdempotencyKey, KnownInput)>;
        UnfinishedRuns => unfinished_runs() -> Vec<UnfinishedRun>;
    }
    ApprovalStore {
        Decide => decide(id: ApprovalId, state: ApprovalState, always: Option<Authority>, by: &str, at: UnixMillis) -> Decided;
        FirstYes => first_yes(id: ApprovalId, second: SecondYes, expires_at: UnixMillis, question: Option<Outbound>) -> Decided;
        Remind => remind(id: ApprovalId, reminder: Outbound, at: UnixMillis) -> bool;
        ApprovalRequest => approval(id: ApprovalId) -> Option<ApprovalRequest>;
        Approvals => approvals(filter: ApprovalFilter) -> Vec<ApprovalRequest>;
        ApprovalsOf => approvals_of(run: RunId) -> Vec<ApprovalRequest>;
        Granted => granted(session: &SessionKey, tool: &str, covers: &str, work_for: &Asker) -> bool;
        ForgetGrants => forget_grants(session: &SessionKey) -> u32;
    }
    ChildQuestionStore {
        AskInPlace => ask_in_place(lease: &Lease, question: ChildQuestion) -> ();
        AnswerForm => answer_form(id: ApprovalId, answers: serde_json::Map<String, serde_json::Value>, by: &str, at: UnixMillis) -> Decided;
        Withdraw => withdraw(id: ApprovalId, at: UnixMillis) -> bool;
    }
    ClientCallStore {
        AnswerClientCalls => answer_client_calls(id: ApprovalId, results: Vec<ClientResult>, options: RunOptions, by: &str, at: UnixMillis) -> Decided;
    }
    SecretVault {
        KeepSecret => keep(session: &SessionKey, name: &str, secret: &Secret, at: UnixMillis) -> ();
        FindSecret => find(session: &SessionKey, name: &str) -> Option<Secret>;
        ForgetSecret => forget(session: &SessionKey, name: &str) -> bool;
        ForgetSecrets => forget_all(session: &SessionKey) -> u32;
    }
    RunReader {
        Run => run(id: RunId) -> Option<RunRecord>;
        Runs => runs(filter: RunFilter) -> Vec<RunRecord>;
        RunMessages => run_messages(id: RunId) -> Vec<Arc<Message>>;
        ClientNotes => client_notes(id: RunId) -> Vec<ClientNote>;
    }
    SessionReader {
        Sessions => sessions(filter: SessionFilter) -> Vec<SessionSummary>;
        Session => session(key: &SessionKey) -> Option<SessionSummary>;
        History => history(session: &SessionKey, after: u64, limit: u32) -> Vec<HistoryEntry>;
        RecentHistory => recent_history(session: &SessionKey, limit: u32) -> Vec<HistoryEntry>;
        Principals => principals(filter: PrincipalFilter) -> Vec<KnownPrincipal>;
    }
    ConversationReader {
        Conversation => conversation(session: &SessionKey) -> Option<Conversation>;
        Conversations => conversations(session: &SessionKey, id: Option<&IdPrefix>, limit: u32) -> Vec<ConversationSummary>;
        Presence => presence(place: Option<&ReplyRoute>, since: UnixMillis) -> Presence;
    }
    StoreHealth {
        Ping => ping() -> ();
    }
    Archive {
        SearchArchive => search(query: SearchQuery) -> Vec<Found>;
        ListThreads => threads(session: &SessionKey) -> Vec<ThreadSummary>;
        ChangeSession => change_session(session: &SessionKey, change: SessionChange) -> ();
        ReadTranscript => transcript(thread: ThreadId, after: u64, limit: u32) -> Vec<TranscriptLine>;
        DeleteSession => delete_session(lease: &Lease, at: UnixMillis) -> Removed;
        Prune => prune(old: Retention, most: u32) -> Removed;
        Prunable => prunable(old: Retention) -> Removed;
        Shrink => shrink(pages: u32) -> ();
    }
    EventLog {
        AppendEvents => append(events: Vec<NewEvent>) -> ();
        ReadEvents => read(query: EventQuery) -> Vec<Event>;
        NewestEvent => newest() -> Seq;
        @watch tip -> Seq;
    }
    Outbox {
        Enqueue => enqueue(message: Outbound) -> ();
        Due => due(now: UnixMillis, busy: &[ReplyRoute], leases: Option<&[WorkLease]>, limit: u32, callbacks: u32) -> Vec<OutboxRow>;
        NextDue => next_due(leases: Option<&[WorkLease]>) -> Option<UnixMillis>;
        Mark => mark(id: OutboxId, state: OutboxState, at: UnixMillis, lease: Option<&WorkLease>) -> ();
        PutChecked => put_checked(message: &Outbound) -> ();
        ShownLast => shown_last(route: &ReplyRoute, run: RunId) -> Option<ApprovalId>;
        SettleInterrupted => settle_interrupted(at: UnixMillis, leases: Option<&[WorkLease]>, settling: &[ChannelId]) -> Vec<OutboxRow>;
        @watch committed -> u64;
    }
    Cursors {
        ReadCursor => cursor(channel: &ChannelId, name: &str) -> Option<Arc<str>>;
        KeepCursor => keep_cursor(channel: &ChannelId, cursor: &Cursor) -> ();
    }
    NoteStore {
        Remember => remember(note: NewNote) -> Remembered;
        Recall => recall(owner: &MemoryOwner, query: &str, limit: u32) -> Vec<Note>;
        Said => said(query: SaidQuery) -> Vec<Found>;
        ForgetNote => forget_note(owner: &MemoryOwner, id: u64, untrusted: bool) -> Forgotten;
    }
    NoteArchive {
        Notes => notes(filter: NoteFilter) -> Vec<Note>;
        EditNote => edit_note(id: u64, text: &str, at: UnixMillis) -> bool;
        DeleteNotes => delete_notes(which: NoteSelection) -> u64;
    }
    PromptNotes {
        PromptNotes => prompt_notes(owner: &MemoryOwner, max_chars: u32) -> Vec<Note>;
        @now may_have_notes(owner: &MemoryOwner) -> bool;
    }
    SpendLedger {
        Spent => spent(utc_day: i64) -> Spent;
        SessionSpent => session_spent(session: &SessionKey) -> u64;
        Reserve => reserve(reservation: NewReservation) -> u64;
        Settle => settle(reservation: u64, charge: CallCharge) -> ();
    }
    JobReader {
        ReadJob => job(id: JobId) -> Option<JobRecord>;
        ListJobs => jobs(filter: JobFilter) -> Vec<JobRecord>;
        JobProgress => progress(run: RunId, runs_in: RunsIn) -> JobProgress;
        CountJobs => numbers() -> JobNumbers;
    }
    JobStore {
        CreateJob => create(job: NewJob, caps: JobCaps) -> JobCreated;
        ChangeJob => change(change: JobChange) -> JobChanged;
        RevokeGrant => revoke(job: JobId, grant: usize, by: &str, at: UnixMillis) -> JobChanged;
    }
    JobAttempts {
        BeginJob => begin_next(caps: JobCaps, held: HeldJobs, boot: BootId, at: UnixMillis) -> Option<JobRecord>;
        BeginJobAgain => begin_again(job: JobId, boot: BootId, at: UnixMillis) -> JobChanged;
        NoteJobRun => note_run(job: JobId, attempt: u32, run: RunId) -> ();
        NoteJobProgress => note_progress(job: JobId) -> ();
        SuspendJobs => suspend(boot: BootId) -> ();
        ReclaimJobs => reclaim(boot: BootId) -> Vec<JobRecord>;
    }
    RoutineReader {
        ReadRoutine => routine(name: &str) -> Option<RoutineRecord>;
        ReadRoutineAt => routine_at(path: &str) -> Option<RoutineRecord>;
        ListRoutines => routines() -> Vec<RoutineRecord>;
        ReadRoutineRun => routine_run(id: RoutineRunId) -> Option<RoutineRunRecord>;
        ListRoutineRuns => routine_runs(filter: RoutineRunFilter) -> Vec<RoutineRunRecord>;
        CountRoutines => numbers() -> RoutineNumbers;
    }
    RoutineStore {
        PutRoutine => put(routine: NewRoutine, rule: PutRule) -> RoutinePut;
        EnableRoutine => enable(routine: RoutineId, on: bool, why: &str, next_at: Option<UnixMillis>, at: UnixMillis) -> Option<RoutineRecord>;
        RevokeRoutine => revoke_grant(routine: RoutineId, grant: usize, by: &str, at: UnixMillis) -> Option<RoutineRecord>;
        DeleteRoutine => delete(name: &str, id: Option<RoutineId>) -> bool;
    }
    RoutineSchedule {
        RoutineChanges => changes() -> u64;
        DueRoutines => due(now: UnixMillis, limit: u32) -> Vec<RoutineRecord>;
        NextDueRoutine => next_due() -> Option<UnixMillis>;
        DeferRoutine => defer(routine: RoutineId, aside: Deferral) -> ();
        MissRoutineRuns => miss(routine: RoutineId, missed: Vec<UnixMillis>, next_at: Option<UnixMillis>, at: UnixMillis) -> ();
    }
    RoutineRunStore {
        ClaimRoutineRun => claim(routine_run: NewRoutineRun, global: u32) -> Claim;
        NoteRoutineRun => note_work(routine_run: RoutineRunId, run: Option<RunId>, job: Option<JobId>) -> ();
        SettleRoutineRun => settle(end: RoutineRunEnd) -> Settled;
        OpenRoutineRuns => open_routine_runs(boot: BootId) -> Vec<RoutineRunRecord>;
    }
    FreezeStore {
        ReadFreezes => freezes() -> Vec<Freeze>;
        ReadPastFreezes => past_freezes(limit: u32) -> Vec<Freeze>;
        WriteFreeze => put_freeze(freeze: Freeze) -> Option<Freeze>;
        EndFreeze => thaw(freeze: Freeze, at: UnixMillis) -> ();
    }
    PeopleStore {
        ReadPeople => paired() -> Vec<PairedPerson>;
        ReadPairings => pending_pairings(now: UnixMillis) -> Vec<PendingPairing>;
        WritePairing => put_pairing(pairing: PendingPairing, now: UnixMillis) -> ();
        TakePairing => take_pairing(code_digest: String, now: UnixMillis) -> Option<PendingPairing>;
        DropPairing => drop_pairing(channel: ChannelId, id: String) -> ();
        AdmitPerson => admit_person(person: PairedPerson) -> ();
        RemovePerson => remove_person(channel: ChannelId, id: String) -> bool;
    }
    SignInStore {
        PutSignIn => put_sign_in(sign_in: SignIn) -> ();
        ReadSignIn => sign_in(digest: String) -> Option<SignIn>;
        UseSignIn => use_sign_in(id: String, used_at: UnixMillis, expires_at: UnixMillis) -> ();
        ReadSignIns => sign_ins() -> Vec<SignIn>;
        EndSignIns => end_sign_ins(ids: Vec<String>) -> usize;
        PutLink => put_link(digest: String, now: UnixMillis, expires_at: UnixMillis) -> ();
        TakeLink => take_link(digest: String, now: UnixMillis) -> bool;
        DropLinks => drop_links() -> ();
    }
    SkillStore {
        KeepSkills => keep_skills(session: &SessionKey, skills: SkillSnapshot) -> ();
        ReadSkills => kept_skills(session: &SessionKey) -> Option<String>;
    }
    TitleStore {
        ReadUntitled => untitled(session: &SessionKey, limit: u32) -> Vec<Untitled>;
        KeepTitle => keep_title(untitled: &Untitled, title: Option<String>) -> ();
    }
    ToolSwitches {
        ReadSwitches => switches() -> Vec<ToolSwitch>;
        SwitchTool => switch(switch: ToolSwitch, events: Vec<NewEvent>) -> bool;
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
    impl StoreHealth for Pings {
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
