//! A lane: one task for each session that is awake. It owns the session, takes its mail in order, runs one turn at a
//! time, and commits what becomes of it.
//!
//! A lane never decides alone to sleep: the dispatcher retires it by dropping its sender, and it empties the mailbox
//! first. While a turn runs the lane goes on taking mail: what arrives is committed, acknowledged and kept for the next
//! turn. A run that rests on a question is in [`rest`]. On drain it finishes the running turn and leaves the queued ones to the next start: they are in the store.

mod anew;
mod receive;
mod rest;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{
    Acceptance, Accepted, Ack, Asker, CommandReply, EditOutcome, GateState, KnownInput, Lease, Message, MessageBody,
    NewInput, OpenedLane, PendingRun, Refusal, RunEnd, RunId, RunOptions, RunStatus, RunUsage, SessionKey, StopReason,
    StoreError, ThreadEdit, ThreadSnapshot, ToolStatus, UnixMillis,
};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::Instrument;

use crate::approvals::{Answer, Answers};
use crate::compaction;
use crate::hooks::Place;
use crate::house::House;
use crate::lane::receive::{Receiving, looked_at};
use crate::lane::rest::Resting;
use crate::live::LiveRun;
use crate::mail::{LaneCommand, LaneInput, LaneMail, LaneNote, LanePort, Settled};
use crate::metrics;
use crate::subagent::Goal;
use crate::submission::ThreadCommand;
use crate::turn::{TurnEnd, TurnJob, context_of, end_processes, run_turn};
use crate::waiting::{Ending, Waiting};

/// How often a run is taken up before it is given up. 5: a crash that one message causes shows itself at once, and
/// four restarts of an upgrade do not.
const MAX_ATTEMPTS: u32 = 5;
/// First and longest pause between two attempts to reach the store.
const STORE_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// What a call reads whose result a crash has swallowed.
const UNKNOWN: &str = "outcome unknown: this was interrupted; check before doing it again";

struct Lane {
    house: Arc<House>,
    port: LanePort,
    lease: Lease,
    summary: Option<String>,
    /// The conversation; lent to the running turn.
    messages: Vec<Arc<Message>>,
    queue: VecDeque<Waiting>,
    current: Option<Waiting>,
    /// The run that waits for a person; nothing begins before it goes on.
    resting: Option<Resting>,
    /// The message that hooks are looking at.
    receiving: Option<Receiving>,
    /// Whether nobody has said anything in the thread yet.
    fresh: bool,
    /// Instructions in the messages that the running turn was lent.
    instructions: Vec<String>,
    /// How much of what the running turn was lent its message brought along.
    brought: usize,
    /// Whether loops are looked for in this session.
    loop_detection: bool,
    /// What the session asks of its runs.
    options: RunOptions,
    /// When a person last said something here, as far as is known.
    spoken_at: Option<UnixMillis>,
    /// A new conversation has begun by itself, of which the person is told with the next answer.
    announce: bool,
    /// The session was deleted; what comes in next makes it again.
    deleted: bool,
    /// The running turn; at most one task. Dropped with the lane, it is aborted.
    turn: JoinSet<TurnEnd>,
}

/// The lane must let go: another owner has it.
struct LeaseLost;

/// What a lane begins with.
pub(crate) struct LaneStart {
    pub(crate) session: SessionKey,
    /// Runs that an earlier task of this lane left behind.
    pub(crate) adopted: Vec<Arc<LiveRun>>,
    /// Whether something unfinished waits for the lane, so that it tries to open until it can.
    pub(crate) insist: bool,
    /// How often the lane's task has crashed; each crash makes it wait longer before it begins again.
    pub(crate) crashes: u32,
}

/// Runs a lane until the dispatcher retires it.
pub(crate) async fn run_lane(house: Arc<House>, start: LaneStart, mut port: LanePort) {
    let LaneStart { session, adopted, insist, crashes } = start;
    sleep(Duration::from_secs(u64::from(crashes))).await;
    let mut pause = STORE_BACKOFF.0;
    let opened = loop {
        match house.store.threads.open_lane(&session, house.boot, house.clock.now()).await {
            Ok(opened) => break opened,
            Err(error) => {
                tracing::error!(%error, %session, "a lane could not be opened");
                let refusal = Refusal::Store(error.to_string());
                if !insist || house.draining.is_cancelled() {
                    return refuse_all(&mut port, refusal).await;
                }
                refuse_for(&mut port, refusal, pause).await;
                pause = (pause * 2).min(STORE_BACKOFF.1);
            }
        }
    };
    let OpenedLane { lease, thread, unfinished, loop_detection, options, fresh, spoken_at } = opened;
    let mut lane = Lane {
        house,
        port,
        lease,
        summary: None,
        messages: Vec::new(),
        queue: VecDeque::new(),
        current: None,
        resting: None,
        receiving: None,
        fresh,
        instructions: Vec::new(),
        brought: 0,
        loop_detection,
        options,
        spoken_at,
        announce: false,
        deleted: false,
        turn: JoinSet::new(),
    };
    lane.show(thread);
    if Box::pin(lane.take_up(unfinished, adopted)).await.is_err() || lane.run().await.is_err() {
        tracing::error!(%session, "the lane belongs to another owner and is let go");
    }
    lane.refuse_receiving(Refusal::ShuttingDown).await;
    refuse_all(&mut lane.port, Refusal::ShuttingDown).await;
}

/// Refuses whatever is in the mailbox; nothing of it was accepted.
async fn refuse_all(port: &mut LanePort, refusal: Refusal) {
    port.mail.close();
    while let Some(mail) = port.mail.recv().await {
        refuse_mail(port, mail, refusal.clone()).await;
    }
}

/// Refuses what comes in during a pause.
async fn refuse_for(port: &mut LanePort, refusal: Refusal, pause: Duration) {
    let until = Instant::now() + pause;
    while let Ok(Some(mail)) = timeout_at(until, port.mail.recv()).await {
        refuse_mail(port, mail, refusal.clone()).await;
    }
    tokio::time::sleep_until(until).await;
}

async fn refuse_mail(port: &LanePort, mail: LaneMail, refusal: Refusal) {
    let LanePort { notes, session, .. } = port;
    match mail {
        LaneMail::Input(input) => refuse(notes, *input, refusal).await,
        LaneMail::Command(command) => {
            let say = command.reply_to.map(|route| (route, refusal.to_string()));
            command.ack.send(Ack::Refused(refusal));
            note(notes, LaneNote::Commanded { session: command.session, say }).await;
        }
        LaneMail::Answer(answer) => {
            let say = answer.reply_to.map(|route| (route, refusal.to_string()));
            answer.ack.send(Ack::Refused(refusal));
            note(notes, LaneNote::Commanded { session: session.clone(), say }).await;
        }
    }
}

async fn refuse(notes: &mpsc::Sender<LaneNote>, input: LaneInput, refusal: Refusal) {
    input.ack.send(Ack::Refused(refusal.clone()));
    let outcome = Settled::Refused { refusal, reply_to: input.inbound.reply_to };
    note(notes, LaneNote::Settled { run: input.run.id, key: input.inbound.key, outcome }).await;
}

/// Tells the dispatcher. It only goes away together with all lanes, and then nobody is left to tell.
async fn note(notes: &mpsc::Sender<LaneNote>, what: LaneNote) {
    let _ = notes.send(what).await;
}

impl Lane {
    async fn run(&mut self) -> Result<(), LeaseLost> {
        let draining = self.house.draining.clone();
        loop {
            self.start_next();
            let no_mail = self.port.mail.is_closed() && self.port.mail.is_empty();
            if draining.is_cancelled() {
                self.refuse_receiving(Refusal::ShuttingDown).await;
            }
            if self.turn.is_empty() && self.receiving.is_none() && (draining.is_cancelled() || no_mail) {
                return Ok(());
            }
            let expiry = self.resting.as_ref().map(|resting| resting.until);
            // What is large and not on the way of every message is boxed, so that a lane is small.
            tokio::select! {
                biased; // a stop before the turn it stops, an end before what waits for it
                () = self.port.wake.notified() => self.end_stopped_in_queue().await?,
                Some(ended) = self.turn.join_next() => Box::pin(self.end_turn(ended)).await?,
                Some(said) = looked_at(&mut self.receiving) => Box::pin(self.received(said)).await?,
                mail = self.port.mail.recv(), if !no_mail && self.receiving.is_none() => {
                    self.revive().await?;
                    match mail {
                        Some(LaneMail::Input(input)) => self.receive(*input).await?,
                        Some(LaneMail::Command(command)) => self.command(command).await?,
                        Some(LaneMail::Answer(answer)) => self.answer(*answer).await?,
                        None => {}
                    }
                }
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => self.expire().await?,
                () = draining.cancelled(), if !draining.is_cancelled() => {}
            }
        }
    }

    /// Replaces what is known of the thread by what the store has. A call whose result a crash has swallowed gets one.
    fn show(&mut self, thread: ThreadSnapshot) {
        self.summary = thread.summary;
        let mut context = LoopContext::new(thread.messages.into_iter().map(|(_, message)| message).collect());
        context.answer_open_calls(ToolStatus::OutcomeUnknown, UNKNOWN);
        self.messages = context.messages;
    }

    /// Queues what an earlier boot, or an earlier task of this lane, left unfinished.
    async fn take_up(&mut self, unfinished: Vec<PendingRun>, adopted: Vec<Arc<LiveRun>>) -> Result<(), LeaseLost> {
        for ghost in adopted.iter().filter(|run| unfinished.iter().all(|pending| pending.run_id != run.id)) {
            note(&self.port.notes, LaneNote::Lost { run: ghost.id }).await;
        }
        let mut given_up = Vec::new();
        for pending in unfinished {
            let known = adopted.iter().find(|run| run.id == pending.run_id).cloned();
            let run = match known {
                Some(run) => run,
                None => {
                    let run = LiveRun::new(pending.run_id, self.lease.session.clone(), false);
                    metrics::run_recovered();
                    note(&self.port.notes, LaneNote::Recovered { run: run.clone() }).await;
                    run
                }
            };
            tracing::info!(run = %run.id, session = %run.session, attempt = pending.attempt + 1, "run taken up again");
            let exhausted = pending.attempt >= MAX_ATTEMPTS && pending.status != RunStatus::Paused;
            let asked = pending.gate.clone();
            let answers = match &asked {
                Some(_) => self.answers_of(run.id).await?,
                None => Answers::new(),
            };
            let waiting = Waiting::again(run, pending, answers);
            if let Some(gate) = asked.filter(|gate| gate.state == GateState::Waiting && waiting.rested) {
                self.rest_again(waiting, gate).await;
                continue;
            }
            if exhausted {
                let end = RunEnd::of(StopReason::RestartLimit).with("attempts", waiting.attempt);
                given_up.push((waiting, Ending::early(end)));
            } else {
                self.queue.push_back(waiting);
            }
        }
        self.end_early(given_up).await?;
        note(&self.port.notes, LaneNote::Opened { session: self.lease.session.clone() }).await;
        Ok(())
    }

    /// What people have answered about calls of a run.
    async fn answers_of(&mut self, run: RunId) -> Result<Answers, LeaseLost> {
        let mut pause = STORE_BACKOFF.0;
        loop {
            match self.house.store.gates.gates_of(run).await {
                Ok(gates) => return Ok(Answer::of(gates)),
                Err(StoreError::LeaseLost(_)) => return Err(LeaseLost),
                Err(error) => {
                    tracing::error!(%error, %run, "the answers of a run could not be read; trying again");
                    refuse_for(&mut self.port, Refusal::Store(error.to_string()), pause).await;
                }
            }
            pause = (pause * 2).min(STORE_BACKOFF.1);
        }
    }

    /// Commits a message and acknowledges it. It begins in the same commit when nothing is before it. `sent` is the digest
    /// of what was sent, where hooks have made another text of it.
    async fn accept(&mut self, input: LaneInput, sent: Option<String>) -> Result<(), LeaseLost> {
        Box::pin(self.begin_anew(&input)).await?;
        let spoken = self.house.carries_people(&input.inbound.channel);
        let free = self.current.is_none()
            && self.resting.is_none()
            && self.queue.is_empty()
            && !self.house.draining.is_cancelled();
        let permit = if free { self.house.permits.clone().try_acquire_owned().ok() } else { None };
        let at = self.house.clock.now();
        let history = self.fresh_history(&input.inbound.history);
        let outputs = !input.inbound.outputs.is_empty();
        let state = Goal::beginning(input.inbound.outputs.clone());
        let asker = Asker {
            principal: input.inbound.principal.id.to_string(),
            place: input.inbound.principal.role.into(),
            relayed: input.inbound.relayed,
        };
        let new = NewInput {
            run_id: input.run.id,
            key: input.inbound.key.clone(),
            channel: input.inbound.channel.clone(),
            asker: asker.clone(),
            text: input.text.clone(),
            digest: sent,
            reply_to: input.inbound.reply_to.clone(),
            options: input.inbound.options.clone(),
            events: Vec::new(),
            history: history.clone(),
            // Kept from the acceptance on: a restart knows what the message has asked for.
            state: outputs.then(|| serde_json::to_value(&state).ok()).flatten(),
            at,
            start: permit.is_some(),
            spoken,
        };
        let outcome = match self.house.store.threads.accept(&self.lease, new).await {
            Ok(Acceptance::New) => {
                let run = &input.run;
                input.ack.send(Ack::Accepted(Accepted {
                    run_id: run.id,
                    session: run.session.clone(),
                    accepted_at: at,
                    duplicate: false,
                    watch: Some(run.watch(input.inbound.want_deltas)),
                }));
                if spoken {
                    self.spoken_at = Some(at);
                }
                if std::mem::take(&mut self.fresh) {
                    let place = Place { session: &run.session, run: run.id };
                    self.house.hooks.session_start(place, &input.inbound);
                }
                let mut waiting = Waiting {
                    run: input.run.clone(),
                    own: vec![Arc::new(Message::user(input.text))],
                    reply_to: input.inbound.reply_to,
                    accepted_at: at,
                    started_at: None,
                    attempt: 0,
                    begun_at: None,
                    in_thread: false,
                    permit: None,
                    history: history.into_iter().map(Arc::new).collect(),
                    state,
                    usage: RunUsage::default(),
                    cost_micro_usd: 0,
                    asker,
                    options: input.inbound.options,
                    answers: Answers::new(),
                    rested: false,
                    began_anew: std::mem::take(&mut self.announce),
                };
                if permit.is_some() {
                    waiting.begin(at);
                    waiting.permit = permit;
                }
                self.queue.push_back(waiting);
                Settled::Accepted { at }
            }
            Ok(Acceptance::Known(known)) => {
                input.ack.send(Ack::Accepted(self.join(&known)));
                Settled::Known(known)
            }
            Ok(Acceptance::Conflict(known)) => {
                let refusal = Refusal::Conflict { run_id: known.run_id };
                refuse(&self.port.notes, input, refusal).await;
                return Ok(());
            }
            Err(error) => {
                let lost = matches!(error, StoreError::LeaseLost(_));
                tracing::error!(%error, session = %self.lease.session, "a message could not be stored");
                refuse(&self.port.notes, input, Refusal::Store(error.to_string())).await;
                return if lost { Err(LeaseLost) } else { Ok(()) };
            }
        };
        note(&self.port.notes, LaneNote::Settled { run: input.run.id, key: input.inbound.key, outcome }).await;
        Ok(())
    }

    /// The acceptance that a duplicate joins; with a watch when its run is alive here.
    fn join(&self, known: &KnownInput) -> Accepted {
        let resting = self.resting.iter().map(|resting| &resting.waiting);
        let alive =
            self.current.iter().chain(resting).chain(&self.queue).find(|waiting| waiting.run.id == known.run_id);
        Accepted {
            run_id: known.run_id,
            session: known.session.clone(),
            accepted_at: known.accepted_at,
            duplicate: true,
            watch: alive.map(|waiting| waiting.run.watch(false)),
        }
    }

    /// The messages that a client brings along, without instructions that the thread has already, or is about to have.
    fn fresh_history(&self, lines: &[HistoryLine]) -> Vec<Message> {
        let coming = self.queue.iter().flat_map(|waiting| &waiting.history);
        let here: Vec<&str> = self.messages.iter().chain(coming).filter_map(|message| instruction(message)).collect();
        let summary = self.summary.as_deref().unwrap_or_default();
        let summarised = |text: &str| summary.lines().any(|line| line == compaction::instruction_line(text));
        let lent = |text: &str| self.instructions.iter().any(|lent| lent == text);
        let known = |text: &str| here.contains(&text) || lent(text) || summarised(text);
        let message = |line: &HistoryLine| match line.role {
            HistoryRole::System if known(&line.text) => None,
            HistoryRole::System => Some(Message::system(&line.text)),
            HistoryRole::User => Some(Message::user(&line.text)),
            HistoryRole::Assistant => Some(Message::assistant(&line.text)),
        };
        lines.iter().filter_map(message).collect()
    }

    /// Begins the next turn, if none runs.
    fn start_next(&mut self) {
        if !self.turn.is_empty() || self.resting.is_some() || self.house.draining.is_cancelled() {
            return;
        }
        let Some(mut next) = self.queue.pop_front() else { return };
        self.brought = next.history.len();
        let mut history = context_of(self.summary.as_deref(), std::mem::take(&mut self.messages));
        history.append(&mut next.history);
        self.instructions = history.iter().filter_map(|message| instruction(message)).map(str::to_owned).collect();
        let job = TurnJob {
            house: self.house.clone(),
            run: next.run.clone(),
            lease: self.lease.clone(),
            history,
            own: std::mem::take(&mut next.own),
            state: std::mem::take(&mut next.state),
            usage: next.usage,
            cost_micro_usd: next.cost_micro_usd,
            reply_to: next.reply_to.clone(),
            permit: next.permit.take(),
            begun_at: next.begun_at,
            answers: std::mem::take(&mut next.answers),
            relayed: next.asker.relayed,
            options: Arc::new(next.options.clone().over(&self.options)),
        };
        next.run.detect_loops(self.loop_detection);
        let span = tracing::info_span!("turn", run = %next.run.id, session = %next.run.session);
        self.turn.spawn(run_turn(job).instrument(span));
        self.current = Some(next);
    }

    /// Commits the end of the turn that ran.
    async fn end_turn(&mut self, ended: Result<TurnEnd, JoinError>) -> Result<(), LeaseLost> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        self.instructions.clear();
        let ended = match ended {
            Ok(ended) if ended.lease_lost => return Err(LeaseLost),
            Ok(ended) if ended.parked => return Ok(()),
            Ok(ended) if ended.rest.is_some() => return Box::pin(self.rest(current, ended)).await,
            Ok(ended) => ended,
            Err(error) => return self.end_crashed(current, &error).await,
        };
        let TurnEnd { mut messages, turn_start, unstored, end, reply, silent, begun_at, usage, cost_micro_usd, .. } =
            ended;
        if let Some(at) = begun_at {
            current.begin(at);
        }
        let begun = current.begun_at.is_some();
        if !begun && current.in_thread {
            // Stopped before it was taken up again: the thread has its messages, and the reload shows them.
            return self.end_early(vec![(current, Ending::early(end))]).await;
        }
        let (new, events) = unstored;
        let new = if begun { new } else { Vec::new() };
        let ending = Ending { end, reply, silent, messages: new, events, totals: Some((usage, cost_micro_usd)) };
        self.commit_ends(vec![(current, ending)]).await?;
        if begun {
            // What steered this run alone is of no use to the next one.
            let mut at = 0;
            messages.retain(|message| {
                at += 1;
                at <= turn_start || message.scope.is_thread()
            });
        } else {
            messages.truncate(turn_start - self.brought);
        }
        self.keep(messages);
        Ok(())
    }

    /// Takes the conversation back from a turn, its pinned summary first if it has one.
    fn keep(&mut self, mut messages: Vec<Arc<Message>>) {
        if messages.first().is_some_and(|message| compaction::is_pinned(message)) {
            self.summary = Some(messages.remove(0).text().to_owned());
        }
        self.messages = messages;
    }

    /// A turn panicked: what it had stored stays, and what it was lent is read anew.
    async fn end_crashed(&mut self, mut current: Waiting, error: &JoinError) -> Result<(), LeaseLost> {
        tracing::error!(run = %current.run.id, %error, "a turn crashed");
        end_processes(&self.house, current.run.id).await;
        let stored = self.house.store.runs.run(current.run.id).await.ok().flatten();
        let mut ending = Ending::early(RunEnd::of(StopReason::Internal).with("cause", "panic"));
        if let Some(record) = stored {
            ending.totals = Some((record.usage, record.cost_micro_usd));
            // It had begun, unless it crashed before it could say so.
            if let Some(at) = record.started_at {
                current.begin(at);
            }
        }
        self.commit_ends(vec![(current, ending)]).await?;
        self.reload().await
    }

    /// Ends every waiting run that was told to stop, in one commit.
    async fn end_stopped_in_queue(&mut self) -> Result<(), LeaseLost> {
        let (stopped, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|waiting| waiting.run.cancel.is_cancelled());
        self.queue = waiting.into();
        let waited = stopped.into_iter().map(|waiting| {
            let ending = rest::stopped(&waiting);
            (waiting, ending)
        });
        let endings = self.stopped_at_rest().into_iter().chain(waited.collect::<Vec<_>>());
        self.end_early(endings.collect()).await
    }

    /// Ends runs without a turn. Where one of them had begun in an earlier attempt, the thread is read anew: it has that
    /// attempt's messages.
    async fn end_early(&mut self, ends: Vec<(Waiting, Ending)>) -> Result<(), LeaseLost> {
        let reload = ends.iter().any(|(waiting, _)| waiting.in_thread) && self.turn.is_empty();
        self.commit_ends(ends).await?;
        if reload { self.reload().await } else { Ok(()) }
    }

    /// Commits ends, then publishes them. A store that does not take them is asked again until it does, or until the
    /// daemon ends and the next start takes the runs up again: told before durable is never an option.
    async fn commit_ends(&mut self, ends: Vec<(Waiting, Ending)>) -> Result<(), LeaseLost> {
        if ends.is_empty() {
            return Ok(());
        }
        let at = self.house.clock.now();
        let mut finished = Vec::with_capacity(ends.len());
        let mut records = Vec::with_capacity(ends.len());
        for (waiting, ending) in ends {
            let (row, record) = waiting.finish(ending, at);
            finished.push(row);
            records.push((waiting.run, Arc::new(record)));
        }
        let mut pause = STORE_BACKOFF.0;
        while let Err(error) = self.house.store.threads.finish_runs(&self.lease, finished.clone()).await {
            if matches!(error, StoreError::LeaseLost(_)) {
                return Err(LeaseLost);
            }
            tracing::error!(%error, session = %self.lease.session, "the end of a run could not be stored; trying again");
            refuse_for(&mut self.port, Refusal::Store(error.to_string()), pause).await;
            pause = (pause * 2).min(STORE_BACKOFF.1);
        }
        for (run, record) in records {
            let reason = record.reason.map_or("", StopReason::word);
            tracing::info!(
                run = %run.id, session = %run.session, status = record.status.word(), reason,
                model_calls = record.usage.model_calls, tool_calls = record.usage.tool_calls, "run ended"
            );
            metrics::run_ended(&record);
            self.house.hooks.agent_end(&record);
            run.finish(record);
            note(&self.port.notes, LaneNote::Ended { run: run.id }).await;
        }
        Ok(())
    }

    /// Reads the thread anew.
    async fn reload(&mut self) -> Result<(), LeaseLost> {
        let now = self.house.clock.now();
        let mut pause = STORE_BACKOFF.0;
        loop {
            match self.house.store.threads.open_lane(&self.lease.session, self.house.boot, now).await {
                Ok(opened) => {
                    self.lease = opened.lease;
                    self.show(opened.thread);
                    return Ok(());
                }
                Err(StoreError::LeaseLost(_)) => return Err(LeaseLost),
                Err(error) => {
                    tracing::error!(%error, "the thread could not be read; trying again");
                    refuse_for(&mut self.port, Refusal::Store(error.to_string()), pause).await;
                }
            }
            pause = (pause * 2).min(STORE_BACKOFF.1);
        }
    }

    /// Changes the thread between turns.
    async fn command(&mut self, command: LaneCommand) -> Result<(), LeaseLost> {
        if command.command == ThreadCommand::Delete {
            return self.delete(command).await;
        }
        let reply = if let ThreadCommand::Loops(on) = command.command {
            self.set_loop_detection(on).await?
        } else if self.current.is_some() || self.resting.is_some() || !self.queue.is_empty() {
            format!("A message is still being answered. Send /stop first, then {}.", command.word)
        } else {
            self.edit(command.command, &command.word).await?
        };
        command.ack.send(Ack::Command(CommandReply { command: command.word, reply: reply.clone(), resumes: None }));
        let say = command.reply_to.map(|route| (route, reply));
        note(&self.port.notes, LaneNote::Commanded { session: command.session, say }).await;
        Ok(())
    }

    async fn edit(&mut self, command: ThreadCommand, word: &str) -> Result<String, LeaseLost> {
        let (edit, done, nothing) = match command {
            ThreadCommand::Undo => {
                (ThreadEdit::Undo, "Took back the last turn. /redo brings it back.", "There is nothing to undo.")
            }
            ThreadCommand::Redo => (ThreadEdit::Redo, "Brought the turn back.", "There is nothing to redo."),
            ThreadCommand::Clear => (ThreadEdit::Clear, "Forgot this conversation.", "There is nothing to forget."),
            ThreadCommand::New => (ThreadEdit::New, "Began a new conversation.", "Began a new conversation."),
            ThreadCommand::Compact => return self.compact().await,
            ThreadCommand::Loops(on) => return self.set_loop_detection(on).await,
            ThreadCommand::Delete => return Ok("A conversation is deleted by an operator.".into()),
        };
        let at = self.house.clock.now();
        match self.house.store.threads.edit_thread(&self.lease, edit, at).await {
            Ok(EditOutcome::Done(thread)) => {
                self.show(thread);
                if matches!(edit, ThreadEdit::New) && !std::mem::replace(&mut self.fresh, true) {
                    self.house.hooks.session_end(&self.lease.session, word);
                }
                if matches!(edit, ThreadEdit::New | ThreadEdit::Clear)
                    && let Err(error) = self.house.store.gates.forget_grants(&self.lease.session).await
                {
                    return Ok(format!("{done} But what was approved for good still is: {error}"));
                }
                Ok(done.into())
            }
            Ok(EditOutcome::Nothing) => Ok(nothing.into()),
            Err(error) => unchanged(&error),
        }
    }

    /// Acts on the running turn too, once the store has it.
    async fn set_loop_detection(&mut self, on: bool) -> Result<String, LeaseLost> {
        if let Err(error) = self.house.store.threads.set_loop_detection(&self.lease, on).await {
            return unchanged(&error);
        }
        self.loop_detection = on;
        if let Some(current) = &self.current {
            current.run.detect_loops(on);
        }
        Ok(match on {
            true => "Loops are looked for in this conversation.".into(),
            false => {
                "Loops are no longer looked for in this conversation; its limits stay. /loops on brings it back.".into()
            }
        })
    }

    async fn compact(&mut self) -> Result<String, LeaseLost> {
        let context = context_of(self.summary.as_deref(), self.messages.clone());
        let Some(shorter) = compaction::compact(&context, context.len()) else {
            return Ok("There is nothing to shorten.".into());
        };
        let keep = shorter.kept_of_earlier_turns;
        self.house.hooks.before_compaction(&self.lease.session, None, context.len());
        match self.house.store.threads.compact(&self.lease, keep, shorter.summary.clone(), Vec::new()).await {
            Ok(()) => {
                self.messages = shorter.messages.into_iter().skip(1).collect();
                self.summary = Some(shorter.summary);
                let dropped = shorter.dropped;
                let left = self.messages.len() + 1; // and the summary
                self.house.hooks.after_compaction(&self.lease.session, None, left, dropped);
                Ok(format!("Shortened {dropped} older messages to a summary; the originals are kept in the store."))
            }
            Err(error) => unchanged(&error),
        }
    }
}

/// The answer to an edit that the store did not take.
fn unchanged(error: &StoreError) -> Result<String, LeaseLost> {
    match error {
        StoreError::LeaseLost(_) => Err(LeaseLost),
        error => Ok(format!("That could not be stored, and nothing has changed: {error}")),
    }
}

/// The text of a system message that belongs to the conversation.
fn instruction(message: &Message) -> Option<&str> {
    match &message.body {
        MessageBody::System { text } if message.scope.is_thread() && !compaction::is_pinned(message) => Some(text),
        _ => None,
    }
}
