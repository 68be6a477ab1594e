//! Short words for the tests.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::run::RunUsage;
use belay_protocol::{
    Acceptance, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, ApprovalStore, Archive, Asker, BootId,
    CallCharge, Checkpoint, ChildQuestionStore, Claim, ClientCallStore, ConversationReader, Cursors, Decided,
    DispatcherStore, Durability, EditOutcome, EndReader, EventKind, EventLog, EventQuery, FinishedRun, FreezeStore,
    Guardrails, IdempotencyKey, InputReader, JobAttempt, JobAttempts, JobBudget, JobId, JobReader, JobStore,
    JournalStore, LaneClaim, LaneStore, Lease, MemoryOwner, Message, Misfire, NewInput, NewJob, NewNote,
    NewReservation, NewRoutine, NewRoutineRun, NoteArchive, NoteStore, Notify, OpenedLane, Outbound, Outbox, OutboxId,
    PausedRun, PeopleStore, PromptNotes, Purpose, PutBy, PutRule, ReplyRoute, RoutineAction, RoutineId, RoutineOrigin,
    RoutinePut, RoutineReader, RoutineRecord, RoutineRunEnd, RoutineRunId, RoutineRunRecord, RoutineRunStatus,
    RoutineRunStore, RoutineSchedule, RoutineSpec, RoutineStore, RunEnd, RunId, RunReader, RunStore, RunsIn,
    SessionKey, SessionLifetime, SessionReader, SignInStore, SkillStore, SpendLedger, SpendReader, StopReason,
    StoreHealth, ThreadEdit, ThreadSnapshot, ThreadState, TitleStore, ToolSwitches, Trigger, UnixMillis, Usage, Work,
    WorkGrant,
};
use belay_store::{PostgresLimits, SealedSecrets, SqlStore, StoreOptions, StoreUrl, parse_url};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use tempfile::TempDir;

/// All ports at once.
pub(crate) trait Store:
    LaneStore
    + RunStore
    + JournalStore
    + InputReader
    + DispatcherStore
    + RunReader
    + EndReader
    + SessionReader
    + ConversationReader
    + StoreHealth
    + Archive
    + EventLog
    + Outbox
    + NoteStore
    + NoteArchive
    + PromptNotes
    + SpendLedger
    + SpendReader
    + ApprovalStore
    + TitleStore
    + SkillStore
    + ChildQuestionStore
    + ClientCallStore
    + SealedSecrets
{
}
impl<S> Store for S where
    S: LaneStore
        + RunStore
        + JournalStore
        + InputReader
        + DispatcherStore
        + RunReader
        + EndReader
        + SessionReader
        + ConversationReader
        + StoreHealth
        + Archive
        + EventLog
        + Outbox
        + NoteStore
        + NoteArchive
        + PromptNotes
        + SpendLedger
        + SpendReader
        + ApprovalStore
        + TitleStore
        + SkillStore
        + ChildQuestionStore
        + ClientCallStore
        + SealedSecrets
{
}

pub(crate) type Shared = Arc<dyn Store>;

/// All ports at once, those of jobs and routines included, whose names are not all their own.
pub(crate) trait Everything:
    Store + Jobs + Routines + ToolSwitches + FreezeStore + PeopleStore + SignInStore + Cursors
{
}
impl<S> Everything for S where
    S: Store + Jobs + Routines + ToolSwitches + FreezeStore + PeopleStore + SignInStore + Cursors
{
}

/// The ports of jobs.
pub(crate) trait Jobs: JobReader + JobStore + JobAttempts {}
impl<S> Jobs for S where S: JobReader + JobStore + JobAttempts {}

/// The ports of routines.
pub(crate) trait Routines: RoutineReader + RoutineStore + RoutineSchedule + RoutineRunStore {}
impl<S> Routines for S where S: RoutineReader + RoutineStore + RoutineSchedule + RoutineRunStore {}

/// The sessions that have runs which have not ended, oldest first.
pub(crate) async fn unfinished_sessions(store: &(impl DispatcherStore + ?Sized)) -> Vec<SessionKey> {
    let mut sessions: Vec<SessionKey> = Vec::new();
    for run in store.unfinished_runs().await.unwrap() {
        if !sessions.contains(&run.session) {
            sessions.push(run.session);
        }
    }
    sessions
}

pub(crate) fn memory() -> Arc<SqlStore> {
    Arc::new(SqlStore::in_memory().unwrap())
}

/// A store in a directory that lives as long as the guard.
pub(crate) fn sqlite() -> (SqlStore, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    (store, directory)
}

/// A store in a PostgreSQL database of its own, which lives as long as the guard. `None`: there is no PostgreSQL here.
pub(crate) async fn postgres() -> Option<(SqlStore, TestDatabase<'static>)> {
    let opened = tokio::task::spawn_blocking(|| {
        let programs = Programs::for_test().unwrap()?;
        let database = TestDatabase::new(PostgresServer::shared(&programs).unwrap()).unwrap();
        let Ok(StoreUrl::Postgres(url)) = parse_url(&format!("{}?sslmode=disable", database.url())) else {
            panic!("not an address")
        };
        let limits = PostgresLimits { connections: 1, statement: SECONDS, lock: SECONDS };
        Some((SqlStore::connect(&url, limits, StoreOptions::default()).unwrap(), database))
    });
    opened.await.unwrap()
}

/// The limit of each statement and each lock.
pub(crate) const SECONDS: Duration = Duration::from_secs(30);

pub(crate) fn at(ms: i64) -> UnixMillis {
    UnixMillis(ms)
}

pub(crate) fn key(message_id: &str) -> IdempotencyKey {
    IdempotencyKey { channel: "http".into(), account: "a".into(), message_id: message_id.into() }
}

pub(crate) fn input(text: &str) -> NewInput {
    NewInput {
        run_id: RunId::new(),
        key: None,
        channel: "http".into(),
        work: Work::Chat,
        asker: Asker { principal: "p".into(), ..Asker::default() },
        digest: None,
        text: text.into(),
        provenance: None,
        reply_to: None,
        options: belay_protocol::RunOptions::default(),
        events: Vec::new(),
        history: Vec::new(),
        state: None,
        at: at(1_000),
        replaces_turn: false,
        start: true,
        spoken: true,
        place: None,
    }
}

pub(crate) fn queued(text: &str) -> NewInput {
    NewInput { start: false, ..input(text) }
}

pub(crate) fn finished(run: RunId, reply: &str) -> FinishedRun {
    FinishedRun {
        run,
        messages: vec![Arc::new(Message::assistant(reply))],
        end: RunEnd::of(StopReason::FinalText),
        reply: Some(reply.into()),
        usage: RunUsage { input: 10, output: 5, model_calls: 1, tool_calls: 0, estimated_calls: 1 },
        cost_micro_usd: 7,
        model: None,
        at: at(2_000),
        said: Vec::new(),
        outbound: None,
        callback: None,
        events: Vec::new(),
        thread_state: Some(ThreadState::Idle),
    }
}

pub(crate) fn checkpoint(run: RunId, messages: Vec<Message>) -> Checkpoint {
    Checkpoint {
        run,
        messages: messages.into_iter().map(Arc::new).collect(),
        state: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        events: Vec::new(),
        used: Vec::new(),
        joined: Vec::new(),
        outbound: Vec::new(),
        durability: Durability::Relaxed,
    }
}

pub(crate) fn route(conversation: &str) -> ReplyRoute {
    ReplyRoute { channel: "telegram".into(), conversation: conversation.into(), reply_to: Some("m1".into()) }
}

pub(crate) fn outbound(conversation: &str, text: &str) -> Outbound {
    Outbound {
        id: OutboxId::new(),
        run_id: None,
        route: route(conversation),
        text: text.into(),
        pieces_sent: 0,
        question: None,
        preview: None,
        callback: None,
        unchecked: None,
        file: None,
    }
}

pub(crate) async fn open(store: &dyn Store, session: &str) -> OpenedLane {
    open_as(store, session, BootId::new()).await
}

/// Opens a lane for this boot, which no other living node owns.
pub(crate) async fn open_as(store: &dyn Store, session: &str, boot: BootId) -> OpenedLane {
    let (session, claim) = (SessionKey::new(session), LaneClaim::free(boot));
    let opening = store.open_lane(&session, SessionLifetime::Lasting, claim, at(500)).await;
    opening.unwrap().opened().expect("no other node owns the lane")
}

/// Accepts a message that must be new, and returns its run.
pub(crate) async fn accept(store: &dyn Store, lease: &Lease, input: NewInput) -> RunId {
    let run = input.run_id;
    assert_eq!(store.accept(lease, input).await.unwrap(), Acceptance::New);
    run
}

/// One turn from message to reply.
pub(crate) async fn turn(store: &dyn Store, lease: &Lease, text: &str) -> RunId {
    let run = accept(store, lease, input(text)).await;
    store.finish_runs(lease, vec![finished(run, &format!("re: {text}"))]).await.unwrap();
    run
}

/// What the next load of the session would show. Takes the lane over, and gives it back under a new lease.
pub(crate) async fn reload(store: &dyn Store, lease: &mut Lease) -> OpenedLane {
    let opened = open_as(store, lease.session.as_str(), lease.owner).await;
    *lease = opened.lease.clone();
    opened
}

pub(crate) fn texts(messages: &[(u64, Arc<Message>)]) -> Vec<&str> {
    messages.iter().map(|(_, message)| message.text()).collect()
}

/// The thread after an edit that must have done something.
pub(crate) async fn edit(store: &dyn Store, lease: &Lease, edit: ThreadEdit) -> ThreadSnapshot {
    match store.edit_thread(lease, edit, at(3_000)).await.unwrap() {
        EditOutcome::Done(thread) => thread,
        EditOutcome::Nothing => panic!("{edit:?} did nothing"),
    }
}

pub(crate) async fn does_nothing(store: &dyn Store, lease: &Lease, edit: ThreadEdit) -> bool {
    matches!(store.edit_thread(lease, edit, at(3_000)).await.unwrap(), EditOutcome::Nothing)
}

/// A question of this run about running a command, asked of "ann" in a conversation. "Always" covers `git`.
pub(crate) fn approval(lease: &Lease, run: RunId) -> ApprovalRequest {
    ApprovalRequest {
        id: ApprovalId::new(),
        run_id: run,
        session: lease.session.clone(),
        call_id: "call-1".into(),
        tool: "run_command".into(),
        kind: ApprovalKind::Approval,
        summary: "run git push".into(),
        arguments: serde_json::json!({"argv": ["git", "push"]}),
        detail: "it writes outside".into(),
        bound: vec![("directory".into(), "src".into())],
        digest: "d1".into(),
        covers: Some("git".into()),
        added: None,
        asker: Asker { principal: "ann".into(), ..Asker::default() },
        place: None,
        second: None,
        asked_at: at(1_700),
        expires_at: at(1_800),
        reminded_at: None,
        state: ApprovalState::Waiting,
        decided_by: None,
        decided_at: None,
    }
}

/// A run at rest on this question, of which nobody is told.
pub(crate) fn paused(approval: ApprovalRequest) -> PausedRun {
    PausedRun { checkpoint: checkpoint(approval.run_id, Vec::new()), approval, outbound: None, callback: None }
}

/// Lays a running run to rest on a new question.
pub(crate) async fn pause(store: &dyn Store, lease: &Lease, run: RunId) -> ApprovalRequest {
    let approval = approval(lease, run);
    store.pause_run(lease, paused(approval.clone())).await.unwrap();
    approval
}

/// Answers a question that must be waiting.
pub(crate) async fn answer(store: &dyn Store, approval: ApprovalId, state: ApprovalState) -> ApprovalRequest {
    match store.decide(approval, state, None, "ann", at(1_800)).await.unwrap() {
        Decided::Now(approval) => *approval,
        other => panic!("it does not wait: {other:?}"),
    }
}

/// A run that rested on a question, was told yes, and goes on.
pub(crate) async fn approved(store: &dyn Store, lease: &Lease, run: RunId) -> ApprovalId {
    let approval = pause(store, lease, run).await.id;
    answer(store, approval, ApprovalState::Approved).await;
    store.start_run(lease, run, at(1_900)).await.unwrap();
    approval
}

/// A checkpoint that uses these approvals up.
pub(crate) fn using(run: RunId, used: Vec<ApprovalId>) -> Checkpoint {
    Checkpoint { used, ..checkpoint(run, vec![Message::assistant("begun")]) }
}

/// What has happened in a run.
pub(crate) async fn kinds(store: &dyn Store, run: RunId) -> Vec<EventKind> {
    let events = store.read(EventQuery { run: Some(run), ..EventQuery::default() }).await.unwrap();
    events.into_iter().map(|event| event.kind).collect()
}

/// What has happened in a session beside its runs.
pub(crate) async fn facts(store: &dyn Store, session: SessionKey) -> Vec<EventKind> {
    let events = store.read(EventQuery { session: Some(session), ..EventQuery::default() }).await.unwrap();
    events.into_iter().map(|event| event.kind).collect()
}

/// The texts that wait to be delivered, one of each conversation.
pub(crate) async fn told(store: &dyn Store) -> Vec<String> {
    let due = store.due(at(i64::MAX), &[], None, 100, 100).await.unwrap();
    due.into_iter().map(|row| row.message.text).collect()
}

/// The id of the routine of that name, which it keeps where it is made again.
pub(crate) fn routine_id(name: &str) -> RoutineId {
    let number = name.bytes().fold(0_u128, |number, byte| number.wrapping_mul(257).wrapping_add(byte.into()));
    format!("{number:032x}").parse().unwrap()
}

/// Puts without a rule.
pub(crate) const FREELY: PutRule = PutRule { fresh: false, by: PutBy::Config };

/// A routine of "ann" that is set off by hand, as it is put.
pub(crate) fn routine(name: &str) -> NewRoutine {
    let text = "look at the stars".to_owned();
    NewRoutine {
        id: routine_id(name),
        spec: RoutineSpec {
            name: name.into(),
            description: String::new(),
            trigger: Trigger::Manual,
            action: RoutineAction::Lightweight {
                prompt: text,
                files: Vec::new(),
                use_tools: false,
                max_tool_rounds: 3,
            },
            guard: Guardrails { cooldown_s: 0, max_concurrent: 1_000, dedup_window_s: 0, max_failures: 2 },
            notify: Notify::default(),
            allow: Vec::new(),
        },
        creator: Asker { principal: "ann".into(), ..Asker::default() },
        channel: "http".into(),
        made_in: "s".into(),
        reply_to: Some(route("c")),
        origin: RoutineOrigin::Made,
        next_at: None,
        at: at(1_000),
    }
}

/// The same with a schedule, whose next time is this.
pub(crate) fn scheduled(name: &str, next_at: i64) -> NewRoutine {
    let mut new = routine(name);
    new.spec.trigger = Trigger::Schedule { when: "every 1m".into(), zone: "UTC".into(), misfire: Misfire::Once };
    NewRoutine { next_at: Some(at(next_at)), ..new }
}

/// A routine that must be there now.
pub(crate) async fn put(store: &dyn RoutineStore, new: NewRoutine) -> RoutineRecord {
    match store.put(new, FREELY).await.unwrap() {
        RoutinePut::Done(record) => *record,
        RoutinePut::Refused(why) | RoutinePut::Forbidden(why) => panic!("{why}"),
    }
}

/// The start of the daemon that works on the jobs and routine runs of tests.
pub(crate) fn boot() -> BootId {
    "01890000-0000-7000-8000-00000000b001".parse().unwrap()
}

/// The attempt with this number of that daemon.
pub(crate) fn attempt(number: u32) -> JobAttempt {
    JobAttempt { number, owner: boot() }
}

/// A routine run of that cause.
pub(crate) fn routine_run(routine: &str, key: &str) -> NewRoutineRun {
    NewRoutineRun {
        id: RoutineRunId::new(),
        routine_id: routine_id(routine),
        routine: routine.into(),
        by: "webhook",
        key: key.into(),
        echo: None,
        scheduled_at: None,
        by_hand: false,
        detail: "a delivery".into(),
        payload: Some("{}".into()),
        content: None,
        missed: Vec::new(),
        next_at: None,
        boot: boot(),
        at: at(2_000),
    }
}

/// The routine run of a scheduled time, on time.
pub(crate) fn on_time(routine: &str, time: i64, next: i64) -> NewRoutineRun {
    NewRoutineRun {
        by: "schedule",
        scheduled_at: Some(at(time)),
        payload: None,
        next_at: Some(at(next)),
        at: at(time),
        ..routine_run(routine, &time.to_string())
    }
}

/// Claims a routine run that nobody has and nothing holds back.
pub(crate) async fn claim(store: &dyn RoutineRunStore, new: NewRoutineRun) -> RoutineRunRecord {
    match store.claim(new, 1_000).await.unwrap() {
        Claim::Claimed(record) => *record,
        other => panic!("it was not claimed: {other:?}"),
    }
}

/// The end of a routine run, of which nobody is told.
pub(crate) fn end(routine_run: RoutineRunId, status: RoutineRunStatus) -> RoutineRunEnd {
    RoutineRunEnd {
        routine_run,
        status,
        summary: Some("there is a comet".into()),
        usage: RunUsage { input: 10, output: 5, model_calls: 1, tool_calls: 0, estimated_calls: 1 },
        cost_micro_usd: 7,
        switch_off: None,
        notice: None,
        disabled_notice: None,
        told_in: None,
        at: at(3_000),
    }
}

/// A job that this person asks for.
pub(crate) fn job(principal: &str) -> NewJob {
    NewJob {
        id: JobId::new(),
        title: "count".into(),
        task: "count the stars".into(),
        plan: true,
        runs_in: RunsIn::Worker,
        budget: JobBudget { max_steps: 7, ..JobBudget::default() },
        grants: vec![WorkGrant::parse("run_command: cargo test").unwrap()],
        creator: Asker { principal: principal.into(), ..Asker::default() },
        channel: "http".into(),
        asked_in: "s".into(),
        reply_to: Some(route("c")),
        parent: Some(RunId::new()),
        routine_run: None,
        at: at(1_000),
    }
}

/// A reservation for the model `m`.
pub(crate) fn reservation(run: RunId, purpose: Purpose, utc_day: i64, micro_usd: u64) -> NewReservation {
    NewReservation { run, purpose, model: "m".into(), utc_day, micro_usd, node: None }
}

/// The charge for a call of one request.
pub(crate) fn charge(micro_usd: u64) -> CallCharge {
    let usage = Usage { input: 100, cached_input: 40, output: 10 };
    CallCharge { model: None, micro_usd, usage, requests: 1 }
}

/// The person with this id in the channel of the suite's messages.
pub(crate) fn person(id: &str) -> MemoryOwner {
    MemoryOwner::Person { channel: "http".into(), id: id.into() }
}

/// The group with this session.
pub(crate) fn group(session: &str) -> MemoryOwner {
    MemoryOwner::Group { session: session.into() }
}

/// A note that was written without untrusted content.
pub(crate) fn new_note(owner: &MemoryOwner, key: &str, text: &str, ms: i64) -> NewNote {
    let key = Some(key).filter(|key| !key.is_empty()).map(str::to_owned);
    NewNote { owner: owner.clone(), key, text: text.into(), at: at(ms), session: "s".into(), untrusted: false }
}
