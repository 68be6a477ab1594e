//! The acceptance of a message: committed, acknowledged, and put where its mode says.

use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::store::input_digest;
use belay_protocol::{
    Acceptance, Accepted, Ack, Body, ChannelId, EventKind, KnownInput, Message, MessageBody, NewInput, QueueMode,
    Refusal, RunEnd, RunOptions, StopReason, StoreError,
};
use tokio::sync::OwnedSemaphorePermit;

use super::port::{note, refuse};
use super::{Lane, LeaseLost};
use crate::mail::{LaneInput, LaneNote, Settled};
use crate::queue::{BUSY_RETRY, Capacity, Position, QueueRules, room};
use crate::queued_run::{QueuedRun, RunEnding};
use belay_run::compaction;
use belay_run::hooks::HookContext;
use belay_run::joining::JoinOffer;
use belay_run::live::StopCause;

impl Lane {
    /// Commits a message and acknowledges it. It begins in the same commit when nothing is before it.
    pub(super) async fn accept(&mut self, input: LaneInput) -> Result<(), LeaseLost> {
        if matches!(input.inbound.body, Body::Edit(_)) {
            return Box::pin(self.replace(input)).await;
        }
        Box::pin(self.begin_anew(&input)).await?;
        let spoken = self.services.is_spoken(&input.inbound);
        let rules = self.rules_of(&input.inbound.options, &input.inbound.channel);
        let history = self.fresh_history(&input.inbound.history);
        let at = self.services.clock.now();
        let mut waiting = QueuedRun::accepted(&input, at, history, rules);
        let room = self.room_for(&waiting);
        if room == Capacity::None {
            return Box::pin(self.busy(input)).await;
        }
        let permit = self.place_at_once();
        let new = self.new_input(&input, &waiting, permit.is_some());
        let outcome = match self.services.store.lanes.accept(&self.lease, new).await {
            Ok(Acceptance::New) => {
                let LaneInput { run, inbound, ack, .. } = input;
                ack.send(Ack::Accepted(Accepted {
                    run_id: run.id,
                    session: run.session.clone(),
                    accepted_at: at,
                    duplicate: false,
                    watch: Some(run.watch(inbound.want_deltas)),
                }));
                if spoken {
                    self.spoken_at = Some(at);
                }
                if std::mem::take(&mut self.fresh) {
                    self.services.hooks.session_start(HookContext { session: &run.session, run: run.id }, &inbound);
                }
                let settled = LaneNote::Settled { run: run.id, key: inbound.key, outcome: Settled::Accepted { at } };
                note(&self.port.notes, settled).await;
                waiting.began_anew = std::mem::take(&mut self.announce);
                return self.put(waiting, permit, room).await;
            }
            Ok(Acceptance::Known(known)) => known,
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
        self.known(input, outcome).await;
        Ok(())
    }

    /// By which rules a message waits here.
    pub(super) fn rules_of(&self, asked: &RunOptions, channel: &ChannelId) -> QueueRules {
        let by_nature =
            self.services.channels.get(channel).map_or_else(QueueMode::default, |channel| channel.profile().queue_mode);
        QueueRules::of(&asked.clone().over(&self.options), channel, by_nature, &self.services.queue)
    }

    /// What a new message finds among those that wait.
    fn room_for(&self, new: &QueuedRun) -> Capacity {
        let waits = |waiting: &QueuedRun| match waiting.queueing.shortened {
            // What has begun is the model's already, and no longer somebody's to take back for want of room.
            _ if self.is_in_flight(waiting.run.id) || waiting.progress.has_begun() => Position::InFlight,
            true => Position::Shortened,
            // Whoever reads the run itself, since nobody is told, waits for an answer in it.
            false if waiting.request.reply_to.is_none() => Position::Alone,
            false if waiting.is_plain() && new.is_plain() && waiting.is_akin(new) => Position::Shortenable,
            false => Position::Alone,
        };
        let waiting: Vec<Position> = self.queue.iter().map(waits).collect();
        room(&waiting, new.queueing.rules.cap, new.queueing.rules.drop)
    }

    /// A place in the global lane for a message that nothing is before, where one is free.
    fn place_at_once(&self) -> Option<OwnedSemaphorePermit> {
        let free = self.state.is_idle() && self.queue.is_empty() && !self.services.draining.is_cancelled();
        if free { self.services.permits.clone().try_acquire_owned().ok() } else { None }
    }

    fn new_input(&self, input: &LaneInput, waiting: &QueuedRun, start: bool) -> NewInput {
        let outputs = !input.inbound.outputs.is_empty();
        let before = self.queue.len() + usize::from(self.state.is_answering());
        let queued = (before > 0).then(|| EventKind::Queued {
            mode: waiting.queueing.rules.mode.word().into(),
            before: u32::try_from(before).unwrap_or(u32::MAX),
        });
        let request = &waiting.request;
        NewInput {
            run_id: request.run,
            key: input.inbound.key.clone(),
            channel: request.channel.clone(),
            work: request.work,
            asker: request.asker.clone(),
            text: input.text.clone(),
            provenance: input.inbound.provenance.clone(),
            digest: input.sent.as_ref().map(|sent| sent.digest.clone()),
            reply_to: request.reply_to.clone(),
            options: request.options.clone(),
            events: queued
                .into_iter()
                .map(|kind| self.services.run.event(&request.session, request.run, kind))
                .collect(),
            history: waiting.history.iter().map(|message| Message::clone(message)).collect(),
            // Kept from the acceptance on: a restart knows what the message has asked for.
            state: outputs.then(|| serde_json::to_value(&waiting.progress.state).ok()).flatten(),
            at: request.accepted_at,
            start,
            spoken: self.services.is_spoken(&input.inbound),
        }
    }

    /// Puts a committed message where its mode says, and lets another give way where there was no room.
    async fn put(
        &mut self,
        mut waiting: QueuedRun,
        permit: Option<OwnedSemaphorePermit>,
        room: Capacity,
    ) -> Result<(), LeaseLost> {
        if permit.is_some() {
            waiting.progress.begin(waiting.request.accepted_at);
            waiting.queueing.permit = permit;
        }
        waiting.leave_text_in_store();
        let ended = match room {
            Capacity::Shorten(at) if self.gives_way(at) => {
                self.queue.iter_mut().skip(at).take(1).for_each(|oldest| oldest.queueing.shortened = true);
                None
            }
            Capacity::End(at) if self.gives_way(at) => self.queue.remove(at),
            _ => None,
        };
        let by = waiting.run.id;
        match (waiting.queueing.rules.mode, self.state.running()) {
            (QueueMode::Steer, Some(running)) if waiting.is_plain() && waiting.is_akin(&running.waiting) => {
                running.joining.offer(JoinOffer { run: waiting.run.clone() });
                self.queue.push_back(waiting);
            }
            (QueueMode::Interrupt, Some(running)) => {
                let cause = StopCause { by: Some(by), ..StopCause::of(StopReason::Superseded) };
                note(&self.port.notes, LaneNote::Stop { run: running.waiting.run.clone(), cause }).await;
                // Behind those that came to interrupt the same turn: they are answered in the order they came in.
                let before = |other: &&QueuedRun| {
                    other.queueing.rules.mode == QueueMode::Interrupt && !other.progress.has_begun()
                };
                let at = self.queue.iter().take_while(before).count();
                self.queue.insert(at, waiting);
            }
            _ => self.queue.push_back(waiting),
        }
        let Some(ended) = ended else { return Ok(()) };
        let end = RunEnd::of(StopReason::Superseded).with("newer_run", by.to_string());
        Box::pin(self.end_early(vec![(ended, RunEnding::early(end))])).await
    }

    /// Whether a message that waits can still give way; the running turn may have taken it in hand meanwhile.
    pub(super) fn gives_way(&self, at: usize) -> bool {
        let run = self.queue.get(at).map(|waiting| waiting.run.id);
        run.is_some_and(|run| self.state.joining().is_none_or(|joining| joining.withdraw(run)))
    }

    /// Answers that too many wait, but never to a duplicate: that joins its first acceptance, which the store knows.
    async fn busy(&mut self, input: LaneInput) -> Result<(), LeaseLost> {
        let known = match &input.inbound.key {
            Some(key) => self.services.store.inputs.find(key).await,
            None => Ok(None),
        };
        let refusal = match known {
            Ok(Some(known)) if input.sent.as_ref().is_some_and(|sent| sent.is_again(&known)) => {
                self.known(input, known).await;
                return Ok(());
            }
            Ok(Some(known)) => Refusal::Conflict { run_id: known.run_id },
            Ok(None) => {
                let what = format!("{} messages of this conversation are waiting already", self.queue.len());
                Refusal::Busy { what, retry_after: BUSY_RETRY }
            }
            Err(error) => Refusal::Store(error.to_string()),
        };
        refuse(&self.port.notes, input, refusal).await;
        Ok(())
    }

    /// Acknowledges a duplicate.
    pub(super) async fn known(&self, input: LaneInput, known: KnownInput) {
        let paused = self.state.paused().map(|paused| &paused.waiting);
        let alive = self
            .state
            .current()
            .into_iter()
            .chain(paused)
            .chain(&self.queue)
            .find(|waiting| waiting.run.id == known.run_id);
        let watch = alive.map(|waiting| waiting.run.watch(false));
        input.ack.send(Ack::Accepted(known.clone().again(watch)));
        let settled = LaneNote::Settled { run: input.run.id, key: input.inbound.key, outcome: Settled::Known(known) };
        note(&self.port.notes, settled).await;
    }

    /// The messages that a client brings along, without instructions that the thread has already, or is about to have.
    fn fresh_history(&self, lines: &[HistoryLine]) -> Vec<Message> {
        let coming: Vec<&String> = self.queue.iter().flat_map(|waiting| &waiting.queueing.instructions).collect();
        let here: Vec<&str> = self.messages.iter().filter_map(|message| instruction(message)).collect();
        let comes = |text: &str| !coming.is_empty() && coming.contains(&&input_digest(text));
        let summary = self.summary.as_deref().unwrap_or_default();
        let summarised = |text: &str| summary.lines().any(|line| line == compaction::instruction_line(text));
        let lent = |text: &str| self.instructions.iter().any(|lent| lent == text);
        let known = |text: &str| here.contains(&text) || comes(text) || lent(text) || summarised(text);
        let message = |line: &HistoryLine| match line.role {
            HistoryRole::System if known(&line.text) => None,
            HistoryRole::System => Some(Message::system(&line.text)),
            HistoryRole::User => Some(Message::user(&line.text)),
            HistoryRole::Assistant => Some(Message::assistant(&line.text)),
        };
        lines.iter().filter_map(message).collect()
    }
}

/// The text of a system message that belongs to the conversation.
pub(super) fn instruction(message: &Message) -> Option<&str> {
    match &message.body {
        MessageBody::System { text }
            if message.scope.is_thread() && !message.is_notice() && !compaction::is_pinned(message) =>
        {
            Some(text)
        }
        _ => None,
    }
}
