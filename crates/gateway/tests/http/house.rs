//! A gateway in a house of stand-ins: an agent that does what the text of a message says, and a store in memory.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_gateway::{Gateway, GatewayConfig, GatewayError, GatewayParts, GatewaySecrets, HttpChannel};
use belay_protocol::ContextReport;
use belay_protocol::context::PartReport;
use belay_protocol::run::RunUsage;
use belay_protocol::status::LiveRun;
use belay_protocol::*;
use futures_util::StreamExt;
use serde_json::{Map, Value};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::work::{FakeTimes, FakeWork};

/// The date in the house, unless it is moved: 2026-11-20T19:43:00Z.
pub(crate) const NOW: i64 = 1_795_203_780_000;

pub(crate) struct FakeClock(pub(crate) AtomicI64);

impl Clock for FakeClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::Relaxed))
    }
}

/// Runs, facts and history in memory.
pub(crate) struct FakeStore {
    runs: Mutex<Vec<RunRecord>>,
    facts: Mutex<Vec<Event>>,
    gates: Mutex<Vec<Gate>>,
    /// Sessions that were created for one request.
    ephemeral: Mutex<HashSet<SessionKey>>,
    tip: watch::Sender<Seq>,
    pub(crate) broken: AtomicBool,
    /// Whether a run that is read never comes, and how many wait for one.
    pub(crate) stalled: AtomicBool,
    pub(crate) stuck: AtomicI64,
    /// Whether everybody else comes first when facts are read.
    pub(crate) slow: AtomicBool,
}

impl FakeStore {
    pub(crate) fn put(&self, record: RunRecord) {
        let mut runs = self.runs.lock().unwrap();
        runs.retain(|run| run.run_id != record.run_id);
        runs.push(record);
    }

    pub(crate) fn remove(&self, run: RunId) {
        self.runs.lock().unwrap().retain(|record| record.run_id != run);
    }

    pub(crate) fn fact(&self, run: &RunRecord, kind: EventKind) {
        self.commit(run.session.clone(), Some(run.run_id), kind);
    }

    pub(crate) fn notice(&self, session: &str, text: &str) {
        self.commit(session.into(), None, EventKind::Notice { text: text.into() });
    }

    fn commit(&self, session: SessionKey, run_id: Option<RunId>, kind: EventKind) {
        let mut facts = self.facts.lock().unwrap();
        let seq = Seq(facts.len() as u64 + 1);
        facts.push(Event { seq, at: UnixMillis(NOW), session: Some(session), run_id, kind });
        drop(facts);
        self.tip.send_replace(seq);
    }

    /// The progress of a run that its events show.
    pub(crate) fn progress(&self, run: RunId, runs_in: RunsIn) -> JobProgress {
        let mut progress = JobProgress::running_in(runs_in);
        for fact in self.facts.lock().unwrap().iter().filter(|fact| fact.run_id == Some(run)) {
            progress.take(fact.at, fact.kind.clone());
        }
        progress
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.broken.load(Ordering::Relaxed) { Err(StoreError::Unavailable("disk full".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl RunReader for FakeStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.check()?;
        if self.stalled.load(Ordering::Relaxed) {
            self.stuck.fetch_add(1, Ordering::Relaxed);
            return std::future::pending().await;
        }
        Ok(self.runs.lock().unwrap().iter().find(|run| run.run_id == id).cloned())
    }
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        self.check()?;
        let runs = self.runs.lock().unwrap();
        let fits = |run: &&RunRecord| {
            filter.session.as_ref().is_none_or(|key| *key == run.session)
                && filter.status.is_none_or(|status| status == run.status)
        };
        Ok(runs.iter().rev().filter(fits).take(filter.limit as usize).cloned().collect())
    }
    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError> {
        let run = self.run(id).await?;
        Ok(run.into_iter().map(|run| Arc::new(Message::assistant(run.reply.unwrap_or_default()))).collect())
    }
}

#[async_trait]
impl SessionReader for FakeStore {
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError> {
        self.check()?;
        let mut seen: Vec<SessionSummary> = Vec::new();
        for run in self.runs.lock().unwrap().iter() {
            let lifetime = match self.ephemeral.lock().unwrap().contains(&run.session) {
                true => SessionLifetime::Ephemeral,
                false => SessionLifetime::Lasting,
            };
            if !filter.ephemeral && !lifetime.is_lasting() {
                continue;
            }
            if !seen.iter().any(|summary| summary.session == run.session) {
                seen.push(SessionSummary {
                    session: run.session.clone(),
                    state: ThreadState::Idle,
                    open_runs: 0,
                    last_active_at: UnixMillis(NOW),
                    title: None,
                    lifetime,
                });
            }
        }
        seen.truncate(filter.limit as usize);
        Ok(seen)
    }
    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        self.check()?;
        let runs = self.runs.lock().unwrap();
        let entry = |(at, run): (usize, &RunRecord)| HistoryEntry {
            id: at as u64 + 1,
            role: "assistant".into(),
            text: run.reply.clone().unwrap_or_default(),
            run_id: Some(run.run_id),
            at: run.accepted_at,
        };
        let own = runs.iter().filter(|run| run.session == *session).enumerate().map(entry);
        Ok(own.filter(|entry| entry.id > after).take(limit as usize).collect())
    }
    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError> {
        Ok(self.sessions(SessionFilter::all(u32::MAX)).await?.into_iter().find(|summary| summary.session == *key))
    }
    async fn recent_history(&self, session: &SessionKey, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        let mut history = self.history(session, 0, u32::MAX).await?;
        Ok(history.split_off(history.len().saturating_sub(limit as usize)))
    }
    async fn principals(&self, _limit: u32) -> Result<Vec<KnownPrincipal>, StoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl StoreHealth for FakeStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.check()
    }
}

#[async_trait]
impl EventLog for FakeStore {
    async fn append(&self, _events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.check()
    }
    async fn read(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        self.check()?;
        if self.slow.load(Ordering::Relaxed) {
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        }
        let facts = self.facts.lock().unwrap();
        let fits = |fact: &&Event| {
            fact.seq > query.after
                && query.run.is_none_or(|run| fact.run_id == Some(run))
                && query.session.as_ref().is_none_or(|session| fact.session.as_ref() == Some(session))
        };
        Ok(facts.iter().filter(fits).take(query.limit as usize).cloned().collect())
    }
    fn tip(&self) -> watch::Receiver<Seq> {
        self.tip.subscribe()
    }
}

#[async_trait]
impl GateStore for FakeStore {
    async fn decide(
        &self,
        id: GateId,
        state: GateState,
        _always: bool,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        let mut gates = self.gates.lock().unwrap();
        let Some(gate) = gates.iter_mut().find(|gate| gate.id == id) else { return Ok(Decided::Unknown) };
        if gate.state != GateState::Waiting {
            return Ok(Decided::Before(Box::new(gate.clone())));
        }
        (gate.state, gate.decided_by, gate.decided_at) = (state, Some(by.into()), Some(at));
        Ok(Decided::Now(Box::new(gate.clone())))
    }
    async fn gate(&self, id: GateId) -> Result<Option<Gate>, StoreError> {
        self.check()?;
        Ok(self.gates.lock().unwrap().iter().find(|gate| gate.id == id).cloned())
    }
    async fn gates(&self, filter: GateFilter) -> Result<Vec<Gate>, StoreError> {
        self.check()?;
        let gates = self.gates.lock().unwrap();
        let fits = |gate: &&Gate| {
            filter.session.as_ref().is_none_or(|key| *key == gate.session)
                && (!filter.waiting || gate.state == GateState::Waiting)
        };
        Ok(gates.iter().rev().filter(fits).take(filter.limit as usize).cloned().collect())
    }
    async fn gates_of(&self, run: RunId) -> Result<Vec<Gate>, StoreError> {
        Ok(self.gates.lock().unwrap().iter().filter(|gate| gate.run_id == run).cloned().collect())
    }
    async fn granted(&self, _session: &SessionKey, _tool: &str, _covers: &str) -> Result<bool, StoreError> {
        Ok(false)
    }
    async fn forget_grants(&self, _session: &SessionKey) -> Result<u32, StoreError> {
        Ok(0)
    }
}

/// An archive with one session, `kept`, of 201 messages; it finds nothing but `tea`.
struct FakeArchive;

/// The only thread there is.
fn kept_thread() -> ThreadId {
    "01890000-0000-7000-8000-000000000002".parse().unwrap()
}

#[async_trait]
impl Archive for FakeArchive {
    async fn search(&self, query: SearchQuery) -> Result<Vec<Found>, StoreError> {
        let hit = Found {
            session: query.session.clone().unwrap_or_else(|| "kept".into()),
            thread: kept_thread(),
            id: u64::from(query.limit),
            role: "user".into(),
            snippet: "a cup of tea".into(),
            run_id: None,
            at: UnixMillis(NOW),
        };
        Ok(if query.terms() == ["tea"] { vec![hit] } else { vec![] })
    }
    async fn threads(&self, session: &SessionKey) -> Result<Vec<ThreadSummary>, StoreError> {
        let thread = ThreadSummary {
            thread: kept_thread(),
            state: ThreadState::Idle,
            active: true,
            last_active_at: UnixMillis(NOW),
            summary: None,
        };
        Ok(if session.as_str() == "kept" { vec![thread] } else { vec![] })
    }
    async fn transcript(&self, _thread: ThreadId, after: u64, limit: u32) -> Result<Vec<TranscriptLine>, StoreError> {
        let line = |id: u64| TranscriptLine {
            id,
            run_id: None,
            at: UnixMillis(NOW),
            message: Arc::new(Message::user(format!("line {id}"))),
        };
        Ok((after + 1..=201).take(limit as usize).map(line).collect())
    }
    async fn delete_session(&self, _lease: &Lease, _at: UnixMillis) -> Result<Removed, StoreError> {
        panic!("a session is deleted by its lane")
    }
    async fn prune(&self, _old: Retention, _most: u32) -> Result<Removed, StoreError> {
        panic!("the janitor does that")
    }
    async fn prunable(&self, _old: Retention) -> Result<Removed, StoreError> {
        panic!("the janitor does that")
    }
    async fn shrink(&self, _pages: u32) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl SecretVault for FakeArchive {
    async fn keep(&self, _: &SessionKey, _: &str, _: &Secret, _: UnixMillis) -> Result<(), StoreError> {
        panic!("secrets are given in conversations")
    }
    async fn find(&self, _: &SessionKey, _: &str) -> Result<Option<Secret>, StoreError> {
        panic!("secrets are shown to nobody")
    }
    async fn forget(&self, _: &SessionKey, name: &str) -> Result<bool, StoreError> {
        Ok(name == "mail")
    }
    async fn forget_all(&self, _: &SessionKey) -> Result<u32, StoreError> {
        Ok(3)
    }
}

#[async_trait]
impl Janitor for FakeArchive {
    async fn tidy(&self, dry_run: bool) -> Result<Removed, StoreError> {
        Ok(Removed { runs: if dry_run { 9 } else { 4 }, ..Removed::default() })
    }
}

struct Life {
    record: RunRecord,
    finished: watch::Sender<Option<Arc<RunRecord>>>,
    deltas: broadcast::Sender<Delta>,
    said: Partial,
}

/// Does what the text of a message says: `hold`, `fail REASON`, `pieces A|B`, `ask COMMAND`, `ask slowly`, `login`, `busy`,
/// `conflict`, …; otherwise repeats it. A command about `nosuch` is refused.
pub(crate) struct FakeAgent {
    store: Arc<FakeStore>,
    lives: Mutex<HashMap<RunId, Life>>,
    /// What it says is at work.
    pub(crate) running: Mutex<Vec<LiveRun>>,
    keys: Mutex<HashMap<IdempotencyKey, (Body, RunRecord)>>,
    work: Arc<FakeWork>,
    pub(crate) seen: Mutex<Vec<Inbound>>,
}

impl FakeAgent {
    async fn work(self: Arc<Self>, mut inbound: InboundStream) {
        while let Some(Envelope { inbound, ack }) = inbound.next().await {
            self.seen.lock().unwrap().push(inbound.clone());
            if !inbound.lifetime.is_lasting() {
                self.store.ephemeral.lock().unwrap().insert(inbound.session.clone());
            }
            match inbound.body.clone() {
                Body::Control(Control::Decide { gate, decision }) => {
                    ack.send(self.decide(gate, decision, &inbound).await);
                }
                Body::Control(Control::Job(request)) => ack.send(self.work.job(request, &inbound)),
                Body::Control(Control::Routine(request)) => ack.send(self.work.routine(*request, &inbound)),
                Body::Control(control) => ack.send(self.control(&control)),
                Body::Text(text) | Body::Edit(text) => match self.answer_in(&inbound, &text) {
                    Some((gate, decision)) => ack.send(self.decide(gate, decision, &inbound).await),
                    None => self.text(&inbound, &text, ack),
                },
            }
        }
    }

    fn control(&self, control: &Control) -> Ack {
        match control {
            Control::Watch(id) => Ack::Watch(self.lives.lock().unwrap().get(id).map(|life| watch_of(life, true))),
            Control::Shutdown => Ack::Command(CommandReply {
                command: "/shutdown".into(),
                reply: "Bye.".into(),
                resumes: None,
                refused: false,
            }),
            Control::Decide { .. } | Control::Job(_) | Control::Routine(_) | Control::Refresh(_) => {
                panic!("decided elsewhere")
            }
            Control::DeleteSession(_) => Ack::Removed(Removed { sessions: 1, messages: 2, ..Removed::default() }),
            Control::Tools(request) => tools(request),
            Control::Status => {
                let running = self.running.lock().unwrap().clone();
                Ack::Status(Box::new(StatusReport { running, ..status() }))
            }
            Control::Context { session, full } => match session.as_str() {
                "nobody" => Ack::Refused(Refusal::Unknown("There is no session nobody.".into())),
                _ => Ack::Context(Box::new(context(session, *full))),
            },
            Control::Stop(target) => {
                let lives: Vec<_> =
                    self.lives.lock().unwrap().values().map(|l| (l.record.run_id, l.record.session.clone())).collect();
                let fits = |id: &RunId, key: &SessionKey| match target {
                    StopTarget::Run(run) | StopTarget::RunOfGoneClient(run) => run == id,
                    StopTarget::Session(session) => session == key,
                    StopTarget::All => true,
                };
                let reason = match target {
                    StopTarget::RunOfGoneClient(_) => StopReason::ClientGone,
                    _ => StopReason::OperatorStop,
                };
                let stopped: Vec<_> = lives.iter().filter(|(id, key)| fits(id, key)).map(|(id, _)| *id).collect();
                for id in &stopped {
                    self.finish(*id, reason, reason.user_line());
                }
                Ack::Stopped(StopReport { stopped, still_running: vec![] })
            }
        }
    }

    /// The answer that a text is while a question waits in its session: a yes or a no, or the secret that was asked for.
    fn answer_in(&self, inbound: &Inbound, text: &str) -> Option<(GateId, Decision)> {
        let gates = self.store.gates.lock().unwrap();
        let gate = gates.iter().find(|gate| gate.state == GateState::Waiting && gate.session == inbound.session)?;
        match (&gate.kind, text) {
            (GateKind::Credential { .. }, _) | (_, "yes") => Some((gate.id, Decision::Approve)),
            (_, "no") => Some((gate.id, Decision::Deny)),
            _ => None,
        }
    }

    /// Answers a question; a run that was asked `slowly` goes on without an end, and its watchers learn that late.
    async fn decide(&self, id: GateId, decision: Decision, inbound: &Inbound) -> Ack {
        let Some(gate) = self.store.gate(id).await.unwrap() else {
            return Ack::Refused(Refusal::Unknown(format!("There is no question {id}.")));
        };
        if !gate.asker.may_be_decided_by(&gate.session, &inbound.principal, &inbound.session) {
            return Ack::Refused(Refusal::Forbidden("This question is not yours to answer.".into()));
        }
        let (state, reply) = match decision {
            Decision::Deny => (GateState::Denied, "Denied."),
            Decision::Approve | Decision::Always => (GateState::Approved, "Approved."),
        };
        let by = &inbound.principal.id;
        let gate = match self.store.decide(id, state, decision == Decision::Always, by, UnixMillis(NOW)).await.unwrap()
        {
            Decided::Now(gate) => gate,
            Decided::Before(gate) => return Ack::Refused(Refusal::Decided(format!("This {}.", gate.state.told()))),
            Decided::Unknown => panic!("it was there"),
        };
        let run = self.store.run(gate.run_id).await.unwrap().unwrap();
        self.store.put(RunRecord { status: RunStatus::Running, waiting_for: None, ..run.clone() });
        self.store.fact(
            &run,
            EventKind::ApprovalResolved { approval: id, state: state.word().into(), actor: by.to_string() },
        );
        match gate.summary.as_str() {
            "slowly" => {}
            command => self.finish(gate.run_id, StopReason::FinalText, &format!("{} {command}", state.word())),
        }
        Ack::Command(CommandReply {
            command: "/approve".into(),
            reply: reply.into(),
            resumes: Some(gate.run_id),
            refused: false,
        })
    }

    /// Lays a run to rest on a question about that command, or for a secret.
    fn pause(&self, id: RunId, kind: GateKind, summary: &str, inbound: &Inbound) {
        let mut lives = self.lives.lock().unwrap();
        let life = lives.get_mut(&id).unwrap();
        let gate = Gate {
            id: GateId::new(),
            run_id: id,
            session: life.record.session.clone(),
            call_id: "call-1".into(),
            tool: "run_command".into(),
            kind,
            summary: summary.into(),
            arguments: serde_json::json!({"argv": [summary]}),
            detail: "run_command asks before it acts".into(),
            bound: vec![("argv".into(), summary.into())],
            digest: "not for the outside".into(),
            covers: None,
            asker: Asker {
                principal: inbound.principal.id.to_string(),
                place: inbound.principal.role.into(),
                relayed: false,
            },
            asked_at: UnixMillis(NOW),
            expires_at: UnixMillis(NOW + 1_800_000),
            state: GateState::Waiting,
            decided_by: None,
            decided_at: None,
        };
        let record =
            RunRecord { status: RunStatus::Paused, waiting_for: Some(WaitingFor::from(&gate)), ..life.record.clone() };
        self.store.put(record.clone());
        let asked = EventKind::ApprovalRequested {
            approval: gate.id,
            call_id: gate.call_id.clone(),
            name: gate.tool.clone(),
            kind: "approval".into(),
            summary: summary.into(),
            detail: gate.detail.clone(),
        };
        self.store.gates.lock().unwrap().push(gate);
        self.store.fact(&record, asked);
        life.finished.send_replace(Some(Arc::new(record)));
    }

    fn text(&self, inbound: &Inbound, text: &str, ack: AckSender) {
        let refused = match text {
            "busy" => Refusal::Busy { what: "the queue is full".into(), retry_after: Duration::from_millis(1500) },
            "conflict" => Refusal::Conflict { run_id: RunId::new() },
            "forbidden" => Refusal::Forbidden("not yours".into()),
            "draining" => Refusal::ShuttingDown,
            "invalid" => Refusal::Invalid("no".into()),
            "unstored" => Refusal::Store("disk full".into()),
            "drop" => return,
            command if command.starts_with('/') => {
                let refused = command.ends_with(" nosuch");
                let reply = if refused { "I know no nosuch." } else { "pong" };
                return ack.send(Ack::Command(CommandReply {
                    command: command.into(),
                    reply: reply.into(),
                    resumes: None,
                    refused,
                }));
            }
            _ => return self.accept(inbound, text, ack),
        };
        ack.send(Ack::Refused(refused));
    }

    fn accept(&self, inbound: &Inbound, text: &str, ack: AckSender) {
        let mut keys = self.keys.lock().unwrap();
        if let Some((body, first)) = inbound.key.as_ref().and_then(|key| keys.get(key)) {
            if *body != inbound.body {
                return ack.send(Ack::Refused(Refusal::Conflict { run_id: first.run_id }));
            }
            let watch = self.lives.lock().unwrap().get(&first.run_id).map(|life| watch_of(life, false));
            return ack.send(Ack::Accepted(accepted(first, watch, true)));
        }
        let record = RunRecord { session: inbound.session.clone(), ..blank() };
        if let Some(key) = &inbound.key {
            keys.insert(key.clone(), (inbound.body.clone(), record.clone()));
        }
        drop(keys);
        let id = record.run_id;
        let life = Life {
            record: record.clone(),
            finished: watch::Sender::new(None),
            deltas: broadcast::Sender::new(64),
            said: Partial::default(),
        };
        self.store.put(record.clone());
        self.store.fact(&record, EventKind::RunAccepted);
        self.store.fact(&record, EventKind::RunStarted { attempt: 1 });
        let watch = watch_of(&life, inbound.want_deltas);
        self.lives.lock().unwrap().insert(id, life);
        ack.send(Ack::Accepted(accepted(&record, Some(watch), false)));
        self.perform(id, text, inbound);
    }

    fn perform(&self, id: RunId, text: &str, inbound: &Inbound) {
        if text == "hold" {
            return;
        }
        if let Some(command) = text.strip_prefix("ask ") {
            self.delta(id, 1, "Let me look.");
            return self.pause(id, GateKind::Approval, command, inbound);
        }
        if text == "login" {
            return self.pause(id, GateKind::Credential { name: "github".into() }, "logs in", inbound);
        }
        if let Some(word) = text.strip_prefix("fail ") {
            let reason = StopReason::from_word(word).unwrap();
            return self.finish(id, reason, reason.user_line());
        }
        if let Some(pieces) = text.strip_prefix("pieces ") {
            let mut reply = "";
            for (step, words) in pieces.split('/').enumerate() {
                reply = words;
                for piece in words.split_inclusive(' ') {
                    self.delta(id, step as u32 + 1, piece);
                }
            }
            return self.finish(id, StopReason::FinalText, reply);
        }
        if let Some(outputs) = text.strip_prefix("reach ") {
            self.delta(id, 1, "I work on it.");
            return self.finish(id, StopReason::Goal, outputs);
        }
        if text == "flood" {
            (0..300).for_each(|n| self.delta(id, 1, &format!("{n} ")));
            return self.finish(id, StopReason::FinalText, "the whole flood");
        }
        self.finish(id, StopReason::FinalText, text);
    }

    pub(crate) fn delta(&self, id: RunId, step: u32, text: &str) {
        if let Some(life) = self.lives.lock().unwrap().get_mut(&id) {
            if life.said.step != step {
                life.said.begin(step);
            }
            life.said.text.push_str(text);
            let _ = life.deltas.send(Delta::Text { step, text: text.into() });
        }
    }

    /// The run is gone, and no fact tells of its end.
    pub(crate) fn vanish(&self, id: RunId) {
        self.store.remove(id);
        self.lives.lock().unwrap().remove(&id);
    }

    pub(crate) fn finish(&self, id: RunId, reason: StopReason, reply: &str) {
        let Some(life) = self.lives.lock().unwrap().remove(&id) else { return };
        let record = RunRecord {
            status: reason.status(),
            reason: Some(reason),
            reply: Some(reply.into()),
            usage: RunUsage { input: 8, output: 3, model_calls: 1, tool_calls: 0, estimated_calls: 0 },
            ended_at: Some(UnixMillis(NOW)),
            ..life.record
        };
        self.store.put(record.clone());
        let kind = EventKind::RunEnded { status: reason.status(), reason, evidence: Map::new() };
        self.store.fact(&record, kind);
        life.finished.send_replace(Some(Arc::new(record)));
    }
}

fn watch_of(life: &Life, deltas: bool) -> RunWatch {
    RunWatch {
        run_id: life.record.run_id,
        finished: life.finished.subscribe(),
        deltas: deltas.then(|| life.deltas.subscribe()),
        so_far: if deltas { life.said.clone() } else { Partial::default() },
    }
}

fn accepted(record: &RunRecord, watch: Option<RunWatch>, duplicate: bool) -> Accepted {
    Accepted {
        run_id: record.run_id,
        session: record.session.clone(),
        accepted_at: record.accepted_at,
        duplicate,
        watch,
    }
}

pub(crate) fn blank() -> RunRecord {
    RunRecord {
        run_id: RunId::new(),
        session: "s".into(),
        status: RunStatus::Running,
        reason: None,
        evidence: Map::new(),
        reply: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        attempt: 1,
        accepted_at: UnixMillis(NOW),
        started_at: Some(UnixMillis(NOW)),
        ended_at: None,
        waiting_for: None,
    }
}

fn model() -> ModelInfo {
    ModelInfo {
        provider: "rehearsal".into(),
        model: "some-model".into(),
        context_tokens: 8000,
        price: None,
        rehearsal: true,
        vision: false,
        sampling: belay_protocol::SamplingSupport::ALL,
    }
}

fn status() -> StatusReport {
    StatusReport {
        version: "0.0.0".into(),
        boot_id: BootId::new(),
        started_at: UnixMillis(NOW),
        draining: false,
        model: model(),
        sessions_awake: 1,
        running: vec![],
        queued: 0,
        paused: 0,
        channels: vec!["http".into()],
        spent_today_micro_usd: 0,
        spent_today_for: Default::default(),
        limit_today_micro_usd: None,
        limit_today_for: Default::default(),
        model_trouble: None,
        candidates: Vec::new(),
        tools: vec![],
        jobs: None,
        routines: None,
    }
}

/// What an agent says whose only tool is web_search, which is off unless it is switched on.
fn tools(request: &ToolRequest) -> Ack {
    let on = ToolHealth { name: "web_search".into(), description: "Searches.".into(), ..ToolHealth::default() };
    let off = |why: &str| ToolHealth { state: ToolState::Off, detail: why.into(), ..on.clone() };
    match request {
        ToolRequest::List => Ack::Tools(vec![off("it failed")]),
        ToolRequest::Disable { name, detail: why } if *name == on.name => Ack::Tools(vec![off(why)]),
        ToolRequest::Enable(name) if *name == on.name => Ack::Tools(vec![on]),
        ToolRequest::Disable { name, .. } | ToolRequest::Enable(name) => {
            Ack::Refused(Refusal::Unknown(format!("There is no tool {name:?}.")))
        }
    }
}

/// The secret of the webhook in a house with secrets.
pub(crate) const SECRET: &str = "It's a Secret to Everybody";

/// A gateway that serves, and what stands behind it.
pub(crate) struct House {
    pub(crate) addr: Option<SocketAddr>,
    pub(crate) store: Arc<FakeStore>,
    pub(crate) agent: Arc<FakeAgent>,
    pub(crate) work: Arc<FakeWork>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) ready: watch::Sender<bool>,
    pub(crate) stop: CancellationToken,
    pub(crate) intake: CancellationToken,
    /// The agent at its stream; aborted, it has let go of it.
    pub(crate) working: JoinHandle<()>,
    pub(crate) served: JoinHandle<Result<(), GatewayError>>,
    pub(crate) client: reqwest::Client,
}

impl House {
    /// On loopback, without any secret.
    pub(crate) async fn open() -> Self {
        Self::with(|_parts| {}).await
    }

    /// With both tokens (`client`, `operator`) and the webhook's secret.
    pub(crate) async fn locked() -> Self {
        Self::with(|parts| {
            let secret = |text: &str| Some(text.to_owned().into());
            parts.secrets = GatewaySecrets {
                token: secret("client"),
                operator_token: secret("operator"),
                webhook_secret: secret(SECRET),
            };
        })
        .await
    }

    /// With other parts.
    pub(crate) async fn with(change: impl FnOnce(&mut GatewayParts)) -> Self {
        let store = Arc::new(FakeStore {
            runs: Mutex::default(),
            facts: Mutex::default(),
            gates: Mutex::default(),
            ephemeral: Mutex::default(),
            tip: watch::Sender::new(Seq(0)),
            broken: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            stuck: AtomicI64::new(0),
            slow: AtomicBool::new(false),
        });
        let clock = Arc::new(FakeClock(AtomicI64::new(NOW)));
        let (ready, ready_seen) = watch::channel(true);
        let work = Arc::new(FakeWork { store: Some(store.clone()), ..FakeWork::default() });
        let mut parts =
            GatewayParts { jobs: work.clone(), routines: work.clone(), ..parts(&store, &clock, ready_seen) };
        change(&mut parts);
        let (gateway, channel) = Gateway::bind(parts).await.unwrap();
        let addr = gateway.addr();
        let agent = Arc::new(FakeAgent {
            store: store.clone(),
            lives: Mutex::default(),
            running: Mutex::default(),
            keys: Mutex::default(),
            work: work.clone(),
            seen: Mutex::default(),
        });
        let (stop, intake) = (CancellationToken::new(), CancellationToken::new());
        let stream = start(&channel, intake.clone()).await;
        let working = tokio::spawn(agent.clone().work(stream));
        let served = tokio::spawn(gateway.serve(stop.clone()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { addr, store, agent, work, clock, ready, stop, intake, working, served, client }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        read(self.client.get(self.url(path))).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        read(self.client.post(self.url(path)).json(&body)).await
    }

    /// Sends a message whose run rests on a question, and returns the run's record and the question's id.
    pub(crate) async fn ask(&self, session: &str, text: &str) -> (Value, GateId) {
        let message = serde_json::json!({"session": session, "text": text, "wait_ms": 30_000});
        let (status, run) = self.post("/api/v1/messages", message).await;
        assert_eq!((status, run["status"].as_str()), (200, Some("paused")), "{run}");
        let gate = run["waiting_for"]["approval"].as_str().unwrap().parse().unwrap();
        (run, gate)
    }

    /// Begins a run that does not end by itself.
    pub(crate) async fn hold(&self, session: &str) -> RunId {
        let (status, body) =
            self.post("/api/v1/messages", serde_json::json!({"session": session, "text": "hold"})).await;
        assert_eq!(status, 202, "{body}");
        body["run_id"].as_str().unwrap().parse().unwrap()
    }
}

pub(crate) async fn start(channel: &HttpChannel, intake: CancellationToken) -> InboundStream {
    channel.start(intake).await.unwrap()
}

fn context(session: &SessionKey, full: bool) -> ContextReport {
    let part =
        |name: &str| PartReport { name: name.into(), chars: 8, tokens: 2, text: full.then(|| "the text".to_owned()) };
    ContextReport {
        session: session.clone(),
        model: "m".into(),
        context_tokens: 1000,
        used_tokens: 4,
        prompt: vec![part("identity")],
        files: Vec::new(),
        skills: Vec::new(),
        skipped: Vec::new(),
        tools: Vec::new(),
        summary: None,
        messages: 1,
        conversation: part("messages"),
    }
}

pub(crate) fn parts(store: &Arc<FakeStore>, clock: &Arc<FakeClock>, ready: watch::Receiver<bool>) -> GatewayParts {
    GatewayParts {
        metrics: Arc::new(|| "belay_test 1\n".to_owned()),
        trajectory: Arc::new(|messages| messages.iter().map(|message| format!("{}\n", message.text())).collect()),
        config: GatewayConfig { listen: "127.0.0.1:0".into(), max_body_bytes: 200_000, ..GatewayConfig::default() },
        secrets: GatewaySecrets::default(),
        runs: store.clone(),
        sessions: store.clone(),
        health: store.clone(),
        events: store.clone(),
        gates: store.clone(),
        archive: Arc::new(FakeArchive),
        vault: Arc::new(FakeArchive),
        jobs: Arc::new(FakeWork::default()),
        routines: Arc::new(FakeWork::default()),
        times: Arc::new(FakeTimes),
        janitor: Arc::new(FakeArchive),
        question: Arc::new(|gate, _now| format!("May I {}?", gate.summary)),
        clock: clock.clone(),
        model: model(),
        version: "0.0.0".into(),
        extra: vec![],
        control_socket: None,
        ready,
    }
}

/// A client that opens a connection for each request.
pub(crate) fn fresh_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap()
}

/// Status and body; a body that is not JSON is an assertion of its own, as a string.
pub(crate) async fn read(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
