//! A stand-in for the agent: it does what the text of a message says.

mod client_calls;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belay_protocol::run::RunUsage;
use belay_protocol::status::LiveRun;
use belay_protocol::*;
use futures_util::StreamExt;
use tokio::sync::{broadcast, watch};

use super::reports::{context, status, tools};
use super::store::{FakeStore, blank};
use super::{NOW, PATIENCE};
use crate::work::FakeWork;

struct Life {
    record: RunRecord,
    finished: watch::Sender<Option<Arc<RunRecord>>>,
    deltas: broadcast::Sender<Delta>,
    said: Partial,
}

/// Does what the text of a message says: `hold`, `fail REASON`, `pieces A|B`, `ask COMMAND`, `ask slowly`, `login`, `use TOOL`, `busy`,
/// `conflict`, `begin WORDS` (as a result, and then holds), …; otherwise repeats it. A command about `nosuch` is refused.
pub(crate) struct FakeAgent {
    store: Arc<FakeStore>,
    lives: Mutex<HashMap<RunId, Life>>,
    /// What it says is at work.
    pub(crate) running: Mutex<Vec<LiveRun>>,
    keys: Mutex<HashMap<IdempotencyKey, (Body, RunRecord)>>,
    work: Arc<FakeWork>,
    pub(crate) seen: Mutex<Vec<Inbound>>,
    /// How many stops end nothing yet.
    pub(crate) slow_stops: AtomicU32,
    /// How many stops answer before the ends are recorded.
    pub(crate) late_ends: AtomicU32,
    /// How many questions whether work is frozen are answered with no before one is answered with yes.
    pub(crate) thawed_checks: AtomicU32,
}

impl FakeAgent {
    /// One that keeps its runs in this store and asks this for jobs and routines.
    pub(super) fn new(store: Arc<FakeStore>, work: Arc<FakeWork>) -> Self {
        Self {
            store,
            lives: Mutex::default(),
            running: Mutex::default(),
            keys: Mutex::default(),
            work,
            seen: Mutex::default(),
            slow_stops: AtomicU32::new(0),
            late_ends: AtomicU32::new(0),
            thawed_checks: AtomicU32::new(u32::MAX),
        }
    }

    pub(super) async fn work(self: Arc<Self>, mut inbound: InboundStream) {
        while let Some(Envelope { inbound, ack }) = inbound.next().await {
            self.seen.lock().unwrap().push(inbound.clone());
            if !inbound.lifetime.is_lasting() {
                self.store.ephemeral.lock().unwrap().insert(inbound.session.clone());
            }
            match inbound.body.clone() {
                Body::Control(Control::Decide { approval, decision }) => {
                    ack.send(self.decide(approval, decision, &inbound).await);
                }
                Body::Control(Control::ClientResults { request, answer }) => {
                    ack.send(self.take_results(request, *answer, &inbound))
                }
                Body::Control(Control::Job(request)) => ack.send(self.work.job(request, &inbound)),
                Body::Control(Control::Routine(request)) => ack.send(self.work.routine(*request, &inbound)),
                Body::Control(control) => ack.send(self.control(&control)),
                Body::Text(text) | Body::Edit(text) => match self.answer_in(&inbound, &text) {
                    Some((approval, decision)) => ack.send(self.decide(approval, decision, &inbound).await),
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
            Control::Decide { .. }
            | Control::FillIn { .. }
            | Control::ClientResults { .. }
            | Control::Job(_)
            | Control::Routine(_)
            | Control::Refresh(_) => {
                panic!("decided elsewhere")
            }
            Control::DeleteSession(_) => Ack::Removed(Removed { sessions: 1, messages: 2, ..Removed::default() }),
            Control::Tools(request) => tools(request),
            Control::Freeze(FreezeRequest::Check) if self.thawed_checks.fetch_sub(1, Ordering::SeqCst) == 0 => {
                Ack::Refused(Refusal::Frozen("Frozen since noon by the operator: everything.".into()))
            }
            Control::Freeze(_) => Ack::Freezes(Vec::new()),
            Control::People(_) => Ack::People(Box::default()),
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
                if self.slow_stops.load(Ordering::Relaxed) > 0 {
                    self.slow_stops.fetch_sub(1, Ordering::Relaxed);
                    return Ack::Stopped(StopReport { pending_nodes: vec!["b".into()], ..StopReport::default() });
                }
                let stopped: Vec<_> = lives.iter().filter(|(id, key)| fits(id, key)).map(|(id, _)| *id).collect();
                for id in &stopped {
                    self.finish(*id, reason, reason.user_line());
                }
                if self.late_ends.load(Ordering::Relaxed) > 0 {
                    self.late_ends.fetch_sub(1, Ordering::Relaxed);
                    let still = |run_id| StillRunning { run_id, pid: None, what: "recording its end".into() };
                    let still_running = stopped.into_iter().map(still).collect();
                    return Ack::Stopped(StopReport { still_running, ..StopReport::default() });
                }
                Ack::Stopped(StopReport { stopped, ..StopReport::default() })
            }
        }
    }

    /// The answer that a text is while a question waits in its session: a yes or a no, or the secret that was asked for.
    fn answer_in(&self, inbound: &Inbound, text: &str) -> Option<(ApprovalId, Decision)> {
        for (word, decision) in
            [("/approve ", Decision::Approve), ("/always ", Decision::Always), ("/deny ", Decision::Deny)]
        {
            if let Some(id) = text.strip_prefix(word).and_then(|id| id.parse().ok()) {
                return Some((id, decision));
            }
        }
        let approvals = self.store.approvals.lock().unwrap();
        let approval = approvals
            .iter()
            .find(|approval| approval.state == ApprovalState::Waiting && approval.session == inbound.session)?;
        match (&approval.kind, text) {
            (ApprovalKind::Credential { .. }, _) | (_, "yes") => Some((approval.id, Decision::Approve)),
            (_, "no") => Some((approval.id, Decision::Deny)),
            _ => None,
        }
    }

    /// Answers a question; a run that was asked `slowly` goes on without an end, and its watchers learn that late.
    async fn decide(&self, id: ApprovalId, decision: Decision, inbound: &Inbound) -> Ack {
        let Some(approval) = self.store.approval(id).await.unwrap() else {
            return Ack::Refused(Refusal::Unknown(format!("There is no question {id}.")));
        };
        if !approval.asker.may_be_decided_by(&approval.session, &inbound.principal, &inbound.session) {
            return Ack::Refused(Refusal::Forbidden("This question is not yours to answer.".into()));
        }
        let (state, reply) = match decision {
            Decision::Deny => (ApprovalState::Denied, "Denied."),
            Decision::Approve | Decision::Always => (ApprovalState::Approved, "Approved."),
        };
        let by = &inbound.principal.id;
        let approval = match self.store.decide(id, state, None, by, UnixMillis(NOW)).await.unwrap() {
            Decided::Now(approval) => approval,
            Decided::Before(approval) => {
                return Ack::Refused(Refusal::Decided(format!("This {}.", approval.state.told())));
            }
            Decided::Unknown => panic!("it was there"),
        };
        let run = self.store.run(approval.run_id).await.unwrap().unwrap();
        self.store.put(RunRecord { status: RunStatus::Running, waiting_for: None, ..run.clone() });
        self.store.fact(
            &run,
            EventKind::ApprovalResolved { approval: id, state: state.word().into(), actor: by.to_string() },
        );
        match approval.summary.as_str() {
            "slowly" => {}
            command => self.finish(approval.run_id, StopReason::FinalText, &format!("{} {command}", state.word())),
        }
        Ack::Command(CommandReply {
            command: "/approve".into(),
            reply: reply.into(),
            resumes: Some(approval.run_id),
            refused: false,
        })
    }

    /// Pauses a run on an approval request for that command, or on a question for a secret.
    fn pause(&self, id: RunId, kind: ApprovalKind, summary: &str, inbound: &Inbound) {
        let mut lives = self.lives.lock().unwrap();
        let life = lives.get_mut(&id).unwrap();
        let approval = ApprovalRequest {
            id: ApprovalId::new(),
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
            added: None,
            asker: Asker {
                principal: inbound.principal.id.to_string(),
                authority: inbound.principal.role.into(),
                relayed: false,
            },
            place: None,
            second: None,
            reminded_at: None,
            asked_at: UnixMillis(NOW),
            expires_at: UnixMillis(NOW + 1_800_000),
            state: ApprovalState::Waiting,
            decided_by: None,
            decided_at: None,
        };
        let record = RunRecord {
            status: RunStatus::Paused,
            waiting_for: Some(WaitingFor::from(&approval)),
            ..life.record.clone()
        };
        self.store.put(record.clone());
        let asked = EventKind::ApprovalRequested {
            approval: approval.id,
            call_id: approval.call_id.clone(),
            name: approval.tool.clone(),
            kind: "approval".into(),
            summary: summary.into(),
            detail: approval.detail.clone(),
        };
        self.store.approvals.lock().unwrap().push(approval);
        self.store.fact(&record, asked);
        life.finished.send_replace(Some(Arc::new(record)));
    }

    fn text(&self, inbound: &Inbound, text: &str, ack: AckSender) {
        let refused = match text {
            "busy" => Refusal::Busy { what: "the queue is full".into(), retry_after: Duration::from_millis(1500) },
            "conflict" => Refusal::Conflict { run_id: RunId::new() },
            "forbidden" => Refusal::Forbidden("not yours".into()),
            "draining" => Refusal::ShuttingDown,
            "invalid" => Refusal::Invalid("outputs: no".into()),
            "unstored" => Refusal::Store("disk full".into()),
            "drop" => return,
            command if command.starts_with('/') && !inbound.options.text_only => {
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
        self.store.asked.lock().unwrap().push((inbound.session.clone(), text.to_owned()));
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
        self.store.keep_notes(id, inbound.options.notes.clone());
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
            let call = ToolCall { id: "call-1".into(), name: "run_command".into(), arguments: Arguments::parse("{}") };
            self.store.wrote(id, Message::assistant_calls("Let me look.", vec![call]));
            return self.pause(id, ApprovalKind::Approval, command, inbound);
        }
        if let Some(calls) = text.strip_prefix("use ") {
            return self.call_client(id, calls, inbound);
        }
        if text == "login" {
            return self.pause(id, ApprovalKind::Credential { name: "github".into() }, "logs in", inbound);
        }
        if let Some(then) = text.strip_prefix("act, ") {
            if let Some(life) = self.lives.lock().unwrap().get_mut(&id) {
                life.record.usage.tool_calls = 1;
            }
            if let Some((before, reply)) = then.strip_prefix("say ").and_then(|texts| texts.split_once('/')) {
                self.store.said_before(id, before);
                return self.finish(id, StopReason::FinalText, reply);
            }
            return self.perform(id, then, inbound);
        }
        if let Some((reasoning, reply)) = text.strip_prefix("think ").and_then(|texts| texts.split_once('/')) {
            if let Some(life) = self.lives.lock().unwrap().get(&id) {
                let _ = life.deltas.send(Delta::Reasoning { step: 1, text: reasoning.into() });
            }
            self.delta(id, 1, reply);
            return self.finish(id, StopReason::FinalText, reply);
        }
        if let Some(word) = text.strip_prefix("fail ") {
            let reason = StopReason::from_word(word).unwrap();
            return self.finish(id, reason, reason.user_line());
        }
        if let Some(said) = text.strip_prefix("miss ") {
            let end = RunEnd::of(StopReason::MissingOutputs).with("text", said);
            return self.finish_with(id, end, StopReason::MissingOutputs.user_line());
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

    /// Waits until somebody watches a run.
    pub(crate) async fn until_watched(&self, run: RunId) {
        let is_watched = || {
            let lives = self.lives.lock().unwrap();
            // A stream keeps the deltas alone, and a wait keeps the end alone.
            lives.get(&run).is_some_and(|life| life.finished.receiver_count() + life.deltas.receiver_count() > 0)
        };
        let watched = async {
            while !is_watched() {
                tokio::time::sleep(Duration::from_millis(5)).await; // requests come in real time
            }
        };
        tokio::time::timeout(PATIENCE, watched).await.expect("the run is watched");
    }

    /// The run goes on where nobody can watch it.
    pub(crate) fn leave(&self, id: RunId) {
        self.lives.lock().unwrap().remove(&id);
    }

    /// It ends there, after a call of a tool.
    pub(crate) fn end_elsewhere(&self, record: RunRecord, reply: &str) {
        let (status, reason) = (RunStatus::Completed, Some(StopReason::FinalText));
        let usage = RunUsage { tool_calls: 1, ..record.usage };
        self.store.put(RunRecord { status, reason, reply: Some(reply.into()), usage, ..record.clone() });
        let evidence = Default::default();
        self.store.fact(&record, EventKind::RunEnded { status, reason: StopReason::FinalText, evidence });
    }

    pub(crate) fn finish(&self, id: RunId, reason: StopReason, reply: &str) {
        self.finish_with(id, reason.into(), reply);
    }

    fn finish_with(&self, id: RunId, end: RunEnd, reply: &str) {
        let RunEnd { reason, evidence } = end;
        let Some(life) = self.lives.lock().unwrap().remove(&id) else { return };
        let record = RunRecord {
            status: reason.status(),
            reason: Some(reason),
            reply: Some(reply.into()),
            usage: RunUsage {
                input: 8,
                output: 3,
                model_calls: 1,
                tool_calls: life.record.usage.tool_calls,
                estimated_calls: 0,
            },
            ended_at: Some(UnixMillis(NOW)),
            evidence,
            ..life.record
        };
        self.store.put(record.clone());
        let kind = EventKind::RunEnded { status: reason.status(), reason, evidence: record.evidence.clone() };
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
        frozen: None,
        watch,
    }
}
