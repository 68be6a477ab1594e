//! A lane: one task for each session that is awake. It owns the session, takes its mail in order, runs one turn at a
//! time, and commits what becomes of it.
//!
//! A lane never decides alone to sleep: the dispatcher retires it by dropping its sender, and it empties the mailbox
//! first. While a turn runs the lane goes on taking mail: what arrives is committed, acknowledged and kept for the next
//! turn. On drain it finishes the running turn and leaves the queued ones to the next start: they are in the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::LoopState;
use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{
    Acceptance, Accepted, Ack, AckSender, CommandReply, EditOutcome, FinishedRun, IdempotencyKey, Inbound, KnownInput,
    Lease, Message, OpenedLane, Outbound, OutboxId, PendingRun, Refusal, ReplyRoute, RunEnd, RunId, RunRecord,
    RunUsage, SessionKey, StopReason, StoreError, ThreadEdit, ThreadSnapshot, ThreadState, UnixMillis,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument;

use crate::compaction;
use crate::house::House;
use crate::live::{LiveRun, StopCause};
use crate::submission::ThreadCommand;
use crate::turn::{TurnEnd, TurnJob, context_of, run_turn};

/// How often a run is taken up before it is given up. 5: a crash that one message causes shows itself at once, and
/// four restarts of an upgrade do not.
const MAX_ATTEMPTS: u32 = 5;
/// Longest pause between two attempts to commit an end.
const COMMIT_BACKOFF: Duration = Duration::from_secs(5);

/// What the dispatcher puts into a lane's mailbox.
pub(crate) enum LaneMail {
    /// A message for the model.
    Input(Box<LaneInput>),
    /// A command that changes the thread, in order with the messages.
    Command(LaneCommand),
}

/// A message for the model, with its text apart from the rest.
pub(crate) struct LaneInput {
    pub(crate) run: Arc<LiveRun>,
    pub(crate) inbound: Inbound,
    pub(crate) text: String,
    pub(crate) ack: AckSender,
}

/// A command for the lane.
pub(crate) struct LaneCommand {
    pub(crate) command: ThreadCommand,
    pub(crate) word: String,
    pub(crate) reply_to: Option<ReplyRoute>,
    pub(crate) ack: AckSender,
}

/// What a lane tells the dispatcher.
pub(crate) enum LaneNote {
    /// A message has been committed, recognised, or refused.
    Settled { run: RunId, key: Option<IdempotencyKey>, outcome: Settled },
    /// A run has ended and its end is committed.
    Ended { run: RunId },
    /// A run of an earlier boot has been taken up.
    Recovered { run: Arc<LiveRun> },
    /// A command has been answered; the reply is for the conversation.
    Commanded { session: SessionKey, say: Option<(ReplyRoute, String)> },
}

/// What became of a message.
pub(crate) enum Settled {
    Accepted { at: UnixMillis },
    Known(KnownInput),
    Refused { refusal: Refusal, reply_to: Option<ReplyRoute> },
}

/// A lane's two ends with the dispatcher.
pub(crate) struct LanePort {
    pub(crate) mail: mpsc::Receiver<LaneMail>,
    pub(crate) wake: Arc<Notify>,
    pub(crate) notes: mpsc::Sender<LaneNote>,
}

/// A message that waits for its turn, or is having it.
struct Waiting {
    run: Arc<LiveRun>,
    reply_to: Option<ReplyRoute>,
    accepted_at: UnixMillis,
    started_at: Option<UnixMillis>,
    attempt: u32,
    begun: bool,
    permit: Option<OwnedSemaphorePermit>,
    history: Vec<Arc<Message>>,
    own: Vec<Arc<Message>>,
    state: LoopState,
    usage: RunUsage,
    cost_micro_usd: u64,
}

struct Lane {
    house: Arc<House>,
    port: LanePort,
    lease: Lease,
    summary: Option<String>,
    messages: Vec<Arc<Message>>,
    queue: VecDeque<Waiting>,
    current: Option<Waiting>,
    /// The running turn; at most one task. Dropped with the lane, it is aborted.
    turn: JoinSet<TurnEnd>,
}

/// The lane must let go: another owner has it.
struct LeaseLost;

/// Runs a lane until the dispatcher retires it. `adopted` are runs that an earlier task of this lane left behind.
pub(crate) async fn run_lane(house: Arc<House>, session: SessionKey, port: LanePort, adopted: Vec<Arc<LiveRun>>) {
    let opened = match house.store.threads.open_lane(&session, house.boot, house.clock.now()).await {
        Ok(opened) => opened,
        Err(error) => return refuse_all(port, &error).await,
    };
    let OpenedLane { lease, thread, unfinished } = opened;
    let mut lane = Lane {
        house,
        port,
        lease,
        summary: None,
        messages: Vec::new(),
        queue: VecDeque::new(),
        current: None,
        turn: JoinSet::new(),
    };
    lane.show(thread);
    if lane.take_up(unfinished, adopted).await.is_err() || lane.run().await.is_err() {
        tracing::error!(%session, "the lane belongs to another owner and is let go");
    }
}

/// The store did not open the lane: whatever is in the mailbox is refused, and nothing was accepted.
async fn refuse_all(mut port: LanePort, error: &StoreError) {
    tracing::error!(%error, "a lane could not be opened");
    port.mail.close();
    while let Some(mail) = port.mail.recv().await {
        let refusal = Refusal::Store(error.to_string());
        match mail {
            LaneMail::Input(input) => refuse(&port.notes, *input, refusal).await,
            LaneMail::Command(command) => {
                command.ack.send(Ack::Refused(refusal));
            }
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
            if self.turn.is_empty()
                && (draining.is_cancelled() || self.port.mail.is_closed() && self.port.mail.is_empty())
            {
                return Ok(());
            }
            tokio::select! {
                biased; // a stop before the turn it stops, an end before what waits for it
                () = self.port.wake.notified() => self.end_stopped_in_queue().await?,
                Some(ended) = self.turn.join_next() => self.end_turn(ended).await?,
                mail = self.port.mail.recv(), if !self.port.mail.is_closed() || !self.port.mail.is_empty() => match mail {
                    Some(LaneMail::Input(input)) => self.accept(*input).await?,
                    Some(LaneMail::Command(command)) => self.command(command).await?,
                    None => {}
                },
                () = draining.cancelled(), if !draining.is_cancelled() => {}
            }
        }
    }

    /// Replaces what is known of the thread by what the store has.
    fn show(&mut self, thread: ThreadSnapshot) {
        self.summary = thread.summary;
        self.messages = thread.messages.into_iter().map(|(_, message)| message).collect();
    }

    /// Queues what an earlier boot, or an earlier task of this lane, left unfinished.
    async fn take_up(&mut self, unfinished: Vec<PendingRun>, adopted: Vec<Arc<LiveRun>>) -> Result<(), LeaseLost> {
        for pending in unfinished {
            let known = adopted.iter().find(|run| run.id == pending.run_id).cloned();
            let run = match known {
                Some(run) => run,
                None => {
                    let run = LiveRun::new(pending.run_id, self.lease.session.clone(), false);
                    note(&self.port.notes, LaneNote::Recovered { run: run.clone() }).await;
                    run
                }
            };
            tracing::info!(run = %run.id, session = %run.session, attempt = pending.attempt + 1, "run taken up again");
            let given_up = pending.attempt >= MAX_ATTEMPTS;
            let waiting = Waiting::again(run, pending);
            if given_up {
                let end = RunEnd::of(StopReason::RestartLimit).with("attempts", waiting.attempt);
                self.commit_end(waiting, Ending::early(end)).await?;
            } else {
                self.queue.push_back(waiting);
            }
        }
        Ok(())
    }

    /// Commits a message and acknowledges it. It begins in the same commit when nothing is before it.
    async fn accept(&mut self, input: LaneInput) -> Result<(), LeaseLost> {
        let free = self.current.is_none() && self.queue.is_empty() && !self.house.draining.is_cancelled();
        let permit = if free { self.house.permits.clone().try_acquire_owned().ok() } else { None };
        let at = self.house.clock.now();
        let history = self.fresh_history(&input.inbound.history);
        let new = belay_protocol::NewInput {
            run_id: input.run.id,
            key: input.inbound.key.clone(),
            channel: input.inbound.channel.clone(),
            principal: input.inbound.principal.id.to_string(),
            text: input.text.clone(),
            reply_to: input.inbound.reply_to.clone(),
            history: history.clone(),
            at,
            start: permit.is_some(),
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
                self.queue.push_back(Waiting {
                    run: input.run.clone(),
                    own: vec![Arc::new(Message::user(input.text))],
                    reply_to: input.inbound.reply_to,
                    accepted_at: at,
                    started_at: permit.is_some().then_some(at),
                    attempt: u32::from(permit.is_some()),
                    begun: permit.is_some(),
                    permit,
                    history: history.into_iter().map(Arc::new).collect(),
                    state: LoopState::default(),
                    usage: RunUsage::default(),
                    cost_micro_usd: 0,
                });
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
            Err(StoreError::LeaseLost(_)) => return Err(LeaseLost),
            Err(error) => {
                tracing::error!(%error, session = %self.lease.session, "a message could not be stored");
                let refusal = Refusal::Store(error.to_string());
                refuse(&self.port.notes, input, refusal).await;
                return Ok(());
            }
        };
        note(&self.port.notes, LaneNote::Settled { run: input.run.id, key: input.inbound.key, outcome }).await;
        Ok(())
    }

    /// The acceptance that a duplicate joins; with a watch when its run is alive here.
    fn join(&self, known: &KnownInput) -> Accepted {
        let alive = self.current.iter().chain(&self.queue).find(|waiting| waiting.run.id == known.run_id);
        Accepted {
            run_id: known.run_id,
            session: known.session.clone(),
            accepted_at: known.accepted_at,
            duplicate: true,
            watch: alive.map(|waiting| waiting.run.watch(false)),
        }
    }

    /// The messages that a client brings along, without instructions that the thread has already.
    fn fresh_history(&self, lines: &[HistoryLine]) -> Vec<Message> {
        let known = |text: &str| {
            self.messages
                .iter()
                .any(|m| matches!(&m.body, belay_protocol::MessageBody::System { text: t } if t == text))
        };
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
        if !self.turn.is_empty() || self.house.draining.is_cancelled() {
            return;
        }
        let Some(mut next) = self.queue.pop_front() else { return };
        let mut history = context_of(self.summary.as_deref(), std::mem::take(&mut self.messages));
        history.append(&mut next.history);
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
            begun: next.begun,
        };
        if !next.begun {
            next.attempt += 1;
            next.started_at.get_or_insert_with(|| self.house.clock.now());
        }
        let span = tracing::info_span!("turn", run = %next.run.id, session = %next.run.session);
        self.turn.spawn(run_turn(job).instrument(span));
        self.current = Some(next);
    }

    /// Commits the end of the turn that ran.
    async fn end_turn(&mut self, ended: Result<TurnEnd, JoinError>) -> Result<(), LeaseLost> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let ended = match ended {
            Ok(ended) if ended.lease_lost => return Err(LeaseLost),
            Ok(ended) if ended.parked => return Ok(()),
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(run = %current.run.id, %error, "a turn crashed");
                self.commit_end(current, Ending::early(RunEnd::of(StopReason::Internal).with("cause", "panic")))
                    .await?;
                return self.reload().await;
            }
        };
        let TurnEnd { mut messages, turn_start, unstored, end, reply, silent, begun, usage, cost_micro_usd, .. } =
            ended;
        let ending = Ending {
            end,
            reply,
            silent,
            messages: if begun { unstored.0 } else { Vec::new() },
            events: unstored.1,
            usage,
            cost_micro_usd,
            begun,
        };
        self.commit_end(current, ending).await?;
        // What steered this run alone is of no use to the next one.
        let mut at = 0;
        messages.retain(|message| {
            at += 1;
            at <= turn_start || (begun && message.scope.is_thread())
        });
        if messages.first().is_some_and(|message| compaction::is_pinned(message)) {
            self.summary = Some(messages.remove(0).text().to_owned());
        }
        self.messages = messages;
        Ok(())
    }

    /// Ends every waiting run that was told to stop, in one commit.
    async fn end_stopped_in_queue(&mut self) -> Result<(), LeaseLost> {
        let (stopped, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|waiting| waiting.run.cancel.is_cancelled());
        self.queue = waiting.into();
        let endings = stopped.into_iter().map(|waiting| {
            let reason = waiting.run.stopped_by().map_or(StopReason::UserStop, |cause| cause.reason);
            (waiting, Ending::early(RunEnd::of(reason)))
        });
        self.commit_ends(endings.collect()).await
    }

    async fn commit_end(&mut self, waiting: Waiting, ending: Ending) -> Result<(), LeaseLost> {
        self.commit_ends(vec![(waiting, ending)]).await
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
        let mut pause = Duration::from_millis(100);
        while let Err(error) = self.house.store.threads.finish_runs(&self.lease, finished.clone()).await {
            if matches!(error, StoreError::LeaseLost(_)) {
                return Err(LeaseLost);
            }
            tracing::error!(%error, session = %self.lease.session, "the end of a run could not be stored; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(COMMIT_BACKOFF);
        }
        for (run, record) in records {
            let reason = record.reason.map_or("", StopReason::word);
            tracing::info!(
                run = %run.id, session = %run.session, status = record.status.word(), reason,
                model_calls = record.usage.model_calls, tool_calls = record.usage.tool_calls, "run ended"
            );
            run.finish(record);
            note(&self.port.notes, LaneNote::Ended { run: run.id }).await;
        }
        Ok(())
    }

    /// Reads the thread anew, after a crash of a turn took what was lent to it.
    async fn reload(&mut self) -> Result<(), LeaseLost> {
        let now = self.house.clock.now();
        let mut pause = Duration::from_millis(100);
        loop {
            match self.house.store.threads.open_lane(&self.lease.session, self.house.boot, now).await {
                Ok(opened) => {
                    self.lease = opened.lease;
                    self.show(opened.thread);
                    return Ok(());
                }
                Err(StoreError::LeaseLost(_)) => return Err(LeaseLost),
                Err(error) => tracing::error!(%error, "the thread could not be read; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(COMMIT_BACKOFF);
        }
    }

    /// Changes the thread between turns.
    async fn command(&mut self, command: LaneCommand) -> Result<(), LeaseLost> {
        let reply = if self.current.is_some() || !self.queue.is_empty() {
            format!("A message is still being answered. Send /stop first, then {}.", command.word)
        } else {
            self.edit(command.command).await?
        };
        command.ack.send(Ack::Command(CommandReply { command: command.word, reply: reply.clone() }));
        let say = command.reply_to.map(|route| (route, reply));
        note(&self.port.notes, LaneNote::Commanded { session: self.lease.session.clone(), say }).await;
        Ok(())
    }

    async fn edit(&mut self, command: ThreadCommand) -> Result<String, LeaseLost> {
        let (edit, done, nothing) = match command {
            ThreadCommand::Undo => {
                (ThreadEdit::Undo, "Took back the last turn. /redo brings it back.", "There is nothing to undo.")
            }
            ThreadCommand::Redo => (ThreadEdit::Redo, "Brought the turn back.", "There is nothing to redo."),
            ThreadCommand::Clear => (ThreadEdit::Clear, "Forgot this conversation.", "There is nothing to forget."),
            ThreadCommand::New => (ThreadEdit::New, "Began a new conversation.", "Began a new conversation."),
            ThreadCommand::Compact => return self.compact().await,
        };
        let at = self.house.clock.now();
        match self.house.store.threads.edit_thread(&self.lease, edit, at).await {
            Ok(EditOutcome::Done(thread)) => {
                self.show(thread);
                Ok(done.into())
            }
            Ok(EditOutcome::Nothing) => Ok(nothing.into()),
            Err(StoreError::LeaseLost(_)) => Err(LeaseLost),
            Err(error) => Ok(format!("That could not be stored, and nothing has changed: {error}")),
        }
    }

    async fn compact(&mut self) -> Result<String, LeaseLost> {
        let context = context_of(self.summary.as_deref(), self.messages.clone());
        let Some(shorter) = compaction::compact(&context, context.len()) else {
            return Ok("There is nothing to shorten.".into());
        };
        let keep = shorter.kept_of_earlier_turns;
        match self.house.store.threads.compact(&self.lease, keep, shorter.summary.clone(), Vec::new()).await {
            Ok(()) => {
                self.messages = shorter.messages.into_iter().skip(1).collect();
                self.summary = Some(shorter.summary);
                Ok(format!(
                    "Shortened {} older messages to a summary; the originals are kept in the store.",
                    shorter.dropped
                ))
            }
            Err(StoreError::LeaseLost(_)) => Err(LeaseLost),
            Err(error) => Ok(format!("That could not be stored, and nothing has changed: {error}")),
        }
    }
}

/// How a run ends, before it is committed.
struct Ending {
    end: RunEnd,
    reply: Option<String>,
    silent: bool,
    messages: Vec<Arc<Message>>,
    events: Vec<belay_protocol::NewEvent>,
    usage: RunUsage,
    cost_micro_usd: u64,
    begun: bool,
}

impl Ending {
    /// An end without a turn's yield.
    fn early(end: RunEnd) -> Self {
        Self {
            end,
            reply: None,
            silent: false,
            messages: Vec::new(),
            events: Vec::new(),
            usage: RunUsage::default(),
            cost_micro_usd: 0,
            begun: false,
        }
    }
}

impl Waiting {
    fn again(run: Arc<LiveRun>, pending: PendingRun) -> Self {
        let own: Vec<_> = pending.messages.into_iter().map(|(_, message)| message).collect();
        Self {
            run,
            own: if own.is_empty() { vec![Arc::new(Message::user(pending.text))] } else { own },
            reply_to: pending.reply_to,
            accepted_at: pending.accepted_at,
            started_at: pending.started_at,
            attempt: pending.attempt,
            begun: false,
            permit: None,
            history: Vec::new(),
            state: pending.state.and_then(|state| serde_json::from_value(state).ok()).unwrap_or_default(),
            usage: pending.usage,
            cost_micro_usd: pending.cost_micro_usd,
        }
    }

    /// The row that ends the run, and the record that its watchers get.
    fn finish(&self, ending: Ending, at: UnixMillis) -> (FinishedRun, RunRecord) {
        let Ending { end, reply, silent, messages, events, usage, cost_micro_usd, begun } = ending;
        let status = end.reason.status();
        let told = self.run.stopped_by().is_some_and(|StopCause { told, .. }| told)
            && end.reason.status() == belay_protocol::RunStatus::Stopped;
        let line = (!silent).then(|| end.reason.user_line()).filter(|line| !line.is_empty()).map(str::to_owned);
        let says = reply.clone().or(line);
        let outbound = match (&self.reply_to, &says) {
            (Some(route), Some(text)) if !told => Some(Outbound {
                id: OutboxId::new(),
                run_id: Some(self.run.id),
                route: route.clone(),
                text: text.clone(),
                pieces_sent: 0,
            }),
            _ => None,
        };
        let usage = if usage == RunUsage::default() { self.usage } else { usage };
        let cost_micro_usd = cost_micro_usd.max(self.cost_micro_usd);
        let thread_state = match status {
            _ if !begun && self.started_at.is_none() => None,
            belay_protocol::RunStatus::Stopped => Some(ThreadState::Interrupted),
            _ => Some(ThreadState::Idle),
        };
        let record = RunRecord {
            run_id: self.run.id,
            session: self.run.session.clone(),
            status,
            reason: Some(end.reason),
            evidence: end.evidence.clone(),
            reply: says.clone(),
            usage,
            cost_micro_usd,
            attempt: self.attempt,
            accepted_at: self.accepted_at,
            started_at: self.started_at,
            ended_at: Some(at),
        };
        let row = FinishedRun {
            run: self.run.id,
            messages,
            end,
            reply: says,
            usage,
            cost_micro_usd,
            at,
            outbound,
            events,
            thread_state,
        };
        (row, record)
    }
}
