//! Accepts a message: commits it, acknowledges it, and queues it as its queue mode requires.

use belay_crash_point::crash_point;
use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::store::{ClaimState, input_digest};
use belay_protocol::{
    Acceptance, Accepted, Ack, Body, CallId, ChannelId, EventKind, KnownInput, Message, MessageBody, NewInput,
    QueueMode, Refusal, RunEnd, RunOptions, StopReason, StoreError,
};
use tokio::sync::OwnedSemaphorePermit;

use super::port::note;
use super::{Lane, LeaseLost};
use crate::claims::{used, word_of_answer};
use crate::mail::{LaneInput, LaneMail, LaneNote, Settled};
use crate::queue::{BUSY_RETRY, Capacity, Position, QueueRules, room};
use crate::queued_run::{QueuedRun, RunEnding};
use belay_run::compaction;
use belay_run::hooks::HookContext;
use belay_run::joining::JoinOffer;
use belay_run::live::StopCause;
use belay_run::untrusted;

impl Lane {
    /// Commits a message and acknowledges it. If no other message is before it and a permit is free, the same commit
    /// starts its run.
    pub(super) async fn accept(&mut self, mut input: LaneInput) -> Result<(), LeaseLost> {
        if matches!(input.inbound.body, Body::Edit(_)) {
            return Box::pin(self.replace(input)).await;
        }
        if input.repeat.is_none()
            && let Err(LeaseLost) = Box::pin(self.begin_anew(&input)).await
        {
            return Err(self.keep_back(LaneMail::Input(Box::new(input))));
        }
        let spoken = self.services.is_spoken(&input.inbound);
        // Stored with the run: a later change of the session is for later messages.
        let callback_url = &mut input.inbound.options.callback_url;
        *callback_url = callback_url.take().or_else(|| self.options.callback_url.clone());
        let rules = self.rules_of(&input.inbound.options, &input.inbound.channel);
        let history = self.fresh_history(&input.inbound.history);
        let at = self.services.clock.now();
        let mut waiting = QueuedRun::accepted(&input, at, history, rules);
        let room = self.room_for(&waiting);
        if room == Capacity::None {
            return Box::pin(self.busy(input)).await;
        }
        let frozen = self.services.run.freezer.holds(&waiting.run.origin).map(|freeze| freeze.notice());
        let permit = if frozen.is_some() { None } else { self.place_at_once() };
        let place = self.place_of(&input, at, frozen.as_deref());
        let new = NewInput { place, ..self.new_input(&input, &waiting, permit.is_some()) };
        crash_point!("inbox.before-insert");
        let outcome = match self.services.store.lanes.accept(&self.lease, new).await {
            Ok(Acceptance::New) => {
                crash_point!("inbox.before-acknowledgement");
                self.taken.accepted(input.forwarded);
                // The conversation without the replaced turn is read before the next turn starts.
                self.stale |= input.repeat.is_some();
                let LaneInput { run, inbound, ack, .. } = input;
                ack.send(Ack::Accepted(Accepted {
                    run_id: run.id,
                    session: run.session.clone(),
                    accepted_at: at,
                    duplicate: false,
                    frozen: frozen.clone(),
                    watch: Some(run.watch(inbound.want_deltas)),
                }));
                crash_point!("inbox.after-acknowledgement");
                if spoken {
                    self.spoken_at = Some(at);
                }
                if std::mem::take(&mut self.fresh) {
                    self.services.hooks.session_start(HookContext { session: &run.session, run: run.id }, &inbound);
                }
                let outcome = Settled::Accepted { at, frozen: inbound.reply_to.zip(frozen) };
                let settled = LaneNote::Settled { run: run.id, key: inbound.key, outcome };
                note(&self.port.notes, settled).await;
                waiting.began_anew = std::mem::take(&mut self.announce);
                self.give_up_results(&waiting).await;
                return self.put(waiting, permit, room).await;
            }
            Ok(Acceptance::Known(known)) => known,
            Ok(Acceptance::Conflict(known)) => {
                let refusal = Refusal::Conflict { run_id: known.run_id };
                Box::pin(self.turn_away(input, refusal)).await;
                return Ok(());
            }
            Ok(Acceptance::Behind(earlier)) => {
                return Box::pin(self.go_behind(LaneMail::Input(Box::new(input)), earlier)).await;
            }
            Ok(Acceptance::Answered) => return Box::pin(self.pass_answered(input)).await,
            Ok(Acceptance::Used { digest, state }) => {
                Box::pin(self.used(input, digest.as_deref(), state)).await;
                return Ok(());
            }
            Err(StoreError::LeaseLost(_)) => return Err(self.keep_back(LaneMail::Input(Box::new(input)))),
            Err(error) => {
                tracing::error!(%error, session = %self.lease.session, "a message could not be stored");
                let refusal = match &error {
                    // A later attempt has the same result. Mail that stays open would hold up its conversation.
                    StoreError::NotFound(_) | StoreError::TooMuch(_) if input.forwarded.is_some() => {
                        Refusal::Decided(error.to_string())
                    }
                    _ => Refusal::Store(error.to_string()),
                };
                Box::pin(self.turn_away(input, refusal)).await;
                return Ok(());
            }
        };
        Box::pin(self.known(input, outcome)).await;
        Ok(())
    }

    /// The queue rules of a message in this lane.
    pub(super) fn rules_of(&self, asked: &RunOptions, channel: &ChannelId) -> QueueRules {
        let by_nature =
            self.services.channels.get(channel).map_or_else(QueueMode::default, |channel| channel.profile().queue_mode);
        QueueRules::of(&asked.clone().over(&self.options), channel, by_nature, &self.services.queue)
    }

    /// Checks the capacity of the queue for a new message.
    fn room_for(&self, new: &QueuedRun) -> Capacity {
        let waits = |waiting: &QueuedRun| match waiting.queueing.shortened {
            // The model has seen this message already, so it must not be removed to make room.
            _ if self.is_in_flight(waiting.run.id) || waiting.progress.has_begun() => Position::InFlight,
            true => Position::Shortened,
            // Its run has no reply destination: a program waits for the answer in the record of the run.
            false if waiting.request.reply_to.is_none() => Position::Alone,
            false if waiting.is_plain() && new.is_plain() && waiting.is_akin(new) => Position::Shortenable,
            false => Position::Alone,
        };
        let waiting: Vec<Position> = self.queue.iter().map(waits).collect();
        room(&waiting, new.queueing.rules.cap, new.queueing.rules.drop)
    }

    /// A permit to run, if the message is next and a permit is free.
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
            // Stored at the acceptance, so that a restart knows the declared outputs of the message.
            state: outputs.then(|| serde_json::to_value(&waiting.progress.state).ok()).flatten(),
            at: request.accepted_at,
            start,
            replaces_turn: input.repeat.is_some(),
            spoken: self.services.is_spoken(&input.inbound),
            place: None,
        }
    }

    /// Queues a committed message as its mode requires. If there was no capacity, shortens or ends another message.
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
                // The message goes behind other messages that interrupt the same turn, so that they are answered in
                // order.
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

    /// Whether a waiting message can still be changed or removed. It cannot if the running turn has taken it.
    pub(super) fn gives_way(&self, at: usize) -> bool {
        let run = self.queue.get(at).map(|waiting| waiting.run.id);
        run.is_some_and(|run| self.state.joining().is_none_or(|joining| joining.withdraw(run)))
    }

    /// Refuses a message because too many are waiting. A duplicate is not refused: it is acknowledged with its first
    /// acceptance.
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
        self.turn_away(input, refusal).await;
        Ok(())
    }

    /// Acknowledges a message under the key of a command or an answer, which another node has received.
    async fn used(&mut self, input: LaneInput, digest: Option<&str>, state: ClaimState) {
        let instead = input.sent.as_ref().map(|sent| used(sent, digest, state, &word_of_answer(&input.text)));
        match instead {
            Some(Ack::Refused(refusal)) => self.turn_away(input, refusal).await,
            Some(instead) => {
                input.ack.send(instead);
                // Redeliveries of it that wait here come again.
                let refusal = Refusal::Store("it was not accepted".into());
                let outcome = Settled::Refused { refusal, reply_to: None };
                note(&self.port.notes, LaneNote::Settled { run: input.run.id, key: input.inbound.key, outcome }).await;
            }
            None => self.turn_away(input, Refusal::ConflictWithCommand).await,
        }
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

    /// The history that a client sends along, without instructions that the thread already contains or will contain.
    fn fresh_history(&self, lines: &[HistoryLine]) -> Vec<Message> {
        let coming: Vec<&String> = self.queue.iter().flat_map(|waiting| &waiting.queueing.instructions).collect();
        let here: Vec<&str> = self.messages.iter().filter_map(|message| instruction(message)).collect();
        let comes = |text: &str| !coming.is_empty() && coming.contains(&&input_digest(text));
        let summary = self.summary.as_deref().unwrap_or_default();
        let summarised = |text: &str| summary.lines().any(|line| line == compaction::instruction_line(text));
        let lent = |text: &str| self.instructions.iter().any(|lent| lent == text);
        let known = |text: &str| here.contains(&text) || comes(text) || lent(text) || summarised(text);
        let session = self.lease.session.as_str();
        let mut called: Vec<CallId> = Vec::new();
        let message = |line: &HistoryLine| match line.role {
            HistoryRole::System if known(&line.text) => None,
            HistoryRole::System => Some(Message::system(&line.text)),
            HistoryRole::User => Some(Message::user(&line.text)),
            HistoryRole::Assistant => Some(Message::assistant(&line.text)),
            HistoryRole::Calls | HistoryRole::Result => line.tools().map(|message| {
                called.extend(message.tool_calls().iter().map(|call| call.id.clone()));
                untrusted_result(message, session, &called)
            }),
        };
        lines.iter().filter_map(message).collect()
    }
}

/// A result of a client's tool is untrusted content, whoever carried the call out. Calls stay as they are. A result whose
/// call the client does not show is data: the conversation has the call with another result, or not at all.
fn untrusted_result(mut message: Message, session: &str, called: &[CallId]) -> Message {
    let MessageBody::Tool(result) = &mut message.body else { return message };
    result.text = untrusted::marked(&result.name, session.as_bytes(), &result.text);
    match called.contains(&result.call_id) {
        true => message.with_untrusted(true),
        false => Message::data(std::mem::take(&mut result.text)).with_untrusted(true),
    }
}

/// The text of a system message, if the message is an instruction of the conversation.
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
