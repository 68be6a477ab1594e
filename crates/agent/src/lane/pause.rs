//! Runs that wait for approval. An answer, or the expiry of the approval request, resumes the run; a stop ends it.
//!
//! An approval request is in the store before anyone sees it, and its answer is in the store before the run continues.
//! While a run is paused, its lane takes mail and starts no turn, so the conversation continues where it stopped.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Ack, ActedOn, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, Checkpoint, CommandReply, Decided,
    Decision, Durability, Message, Outbound, PausedRun, Question, Refusal, StoreError, ToolResult, ToolStatus,
    UnixMillis,
};
use tokio::time::Instant;

use super::port::{not_acted_on, note, refuse_for};
use super::state::LaneState;
use super::{Lane, LeaseLost};
use crate::mail::{LaneAnswer, LaneNote, LaneReply, PendingQuestion};
use crate::queued_run::{QueuedRun, RunEnding};
use crate::turn::Conversation;
use belay_run::approvals::question_text;
use belay_run::effect_gate::{Asking, open_calls};
use belay_run::journal::Remainder;
use belay_run::retry::STORE;

/// The result of a call whose run was stopped while the call waited for an answer.
const STOPPED: &str = "not executed: the run was stopped while it waited for a person's answer";

/// A run that waits for a person's answer.
pub(super) struct PausedTurn {
    pub(super) waiting: QueuedRun,
    pub(super) approval: ApprovalRequest,
    /// When to check whether the approval request has expired.
    pub(super) until: Instant,
}

impl Lane {
    /// Stores the approval request of a turn and pauses its run. If the store fails, the write is repeated until it
    /// succeeds: a request is never shown before it is stored.
    pub(super) async fn pause(
        &mut self,
        mut current: QueuedRun,
        conversation: Conversation,
        asking: Asking,
        unstored: Remainder,
    ) -> Result<(), LeaseLost> {
        let now = self.services.clock.now();
        let approval = self.approval_of(&current, asking, now);
        let text = question_text(&approval, now);
        let question = Question {
            approval: approval.id,
            offers_always: approval.covers.is_some(),
            decidable: approval.kind == ApprovalKind::Approval,
        };
        let outbound = current.request.reply_to.clone().map(|route| Outbound {
            question: Some(question),
            ..Outbound::new(Some(approval.run_id), route, text.clone())
        });
        let Remainder { messages: new, events, said } = unstored;
        let checkpoint = Checkpoint {
            run: approval.run_id,
            messages: new.clone(),
            state: current.progress.state.as_ref().and_then(|state| serde_json::to_value(state).ok()),
            usage: current.progress.usage,
            cost_micro_usd: current.progress.cost_micro_usd,
            events,
            used: Vec::new(),
            joined: Vec::new(),
            outbound: said.clone(),
            durability: Durability::Committed,
        };
        let paused = PausedRun { checkpoint, approval: approval.clone(), outbound };
        self.keep(conversation.history);
        current.own = conversation.own;
        self.announce(&approval).await;
        let mut pauses = STORE.pauses();
        loop {
            if current.run.control.cancel.is_cancelled() {
                // The request is not stored, so nobody has seen it, and it is discarded.
                note(&self.port.notes, LaneNote::Resumed { approval: approval.id }).await;
                let mut ending = stopped(&current);
                let messages = new.into_iter().chain(ending.unstored.messages).collect();
                ending.unstored = Remainder { messages, events: paused.checkpoint.events, said };
                self.commit_ends(vec![(current, ending)]).await?;
                return self.reload().await.map(|_| ());
            }
            match self.services.store.run_store.pause_run(&self.lease, paused.clone()).await {
                Ok(()) => break,
                Err(StoreError::LeaseLost(_)) => return Err(LeaseLost),
                Err(error) => {
                    tracing::error!(%error, session = %self.lease.session, "a question could not be stored; trying again");
                    refuse_for(&mut self.port, Refusal::Store(error.to_string()), pauses.next_pause()).await;
                }
            }
        }
        current.progress.in_thread = true;
        tracing::info!(run = %approval.run_id, session = %approval.session, approval = %approval.id, tool = approval.tool, "run waits for \
                                                                                                        approval");
        current.run.activity.pause(Arc::new(current.record_while_paused(&approval, text)));
        self.await_answer(current, approval);
        Ok(())
    }

    /// Restores a run that was paused when the daemon ended. Its approval request was sent before.
    pub(super) async fn restore_paused(&mut self, waiting: QueuedRun, approval: ApprovalRequest) {
        let text = question_text(&approval, self.services.clock.now());
        waiting.run.activity.begin();
        waiting.run.activity.pause(Arc::new(waiting.record_while_paused(&approval, text)));
        self.announce(&approval).await;
        self.await_answer(waiting, approval);
    }

    /// Informs the dispatcher of an approval request. This comes before anything that makes the request visible, so
    /// that the dispatcher knows it when the answer arrives.
    async fn announce(&self, approval: &ApprovalRequest) {
        let waits = PendingQuestion {
            approval: approval.id,
            run: approval.run_id,
            session: approval.session.clone(),
            asker: approval.asker.clone(),
            decidable: approval.kind == ApprovalKind::Approval,
            summary: approval.summary.clone(),
        };
        note(&self.port.notes, LaneNote::Paused(Box::new(waits))).await;
    }

    fn await_answer(&mut self, waiting: QueuedRun, approval: ApprovalRequest) {
        let until = self.instant_of(approval.expires_at);
        if waiting.run.control.cancel.is_cancelled() {
            self.port.wake.notify_one(); // it was told to stop while the request was being stored
        }
        self.state = LaneState::Paused(Box::new(PausedTurn { waiting, approval, until }));
    }

    fn approval_of(&self, current: &QueuedRun, asking: Asking, now: UnixMillis) -> ApprovalRequest {
        let Asking { call, wanted, .. } = asking;
        let time = match wanted.kind {
            ApprovalKind::Approval => self.services.approvals.load().expires(),
            ApprovalKind::Credential { .. } => self.services.approvals.load().credential_expires(),
        };
        ApprovalRequest {
            id: ApprovalId::new(),
            run_id: current.run.id,
            session: self.lease.session.clone(),
            call_id: call.id,
            tool: call.name,
            kind: wanted.kind,
            summary: wanted.summary,
            arguments: wanted.arguments,
            detail: wanted.why,
            bound: wanted.bound,
            digest: wanted.digest,
            covers: wanted.covers,
            asker: current.request.asker.clone(),
            asked_at: now,
            expires_at: UnixMillis(now.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))),
            state: ApprovalState::Waiting,
            decided_by: None,
            decided_at: None,
        }
    }

    fn instant_of(&self, at: UnixMillis) -> Instant {
        let left = u64::try_from(at.0 - self.services.clock.now().0).unwrap_or(0);
        Instant::now() + Duration::from_millis(left).min(LONGEST_WAIT)
    }

    /// Handles a person's answer.
    pub(super) async fn answer(&mut self, answer: LaneAnswer) -> Result<(), LeaseLost> {
        let Some(answer) = self.first_answer(answer).await else { return Ok(()) };
        let LaneAnswer { approval, reply, who, from, word, reply_to, sent, ack } = answer;
        let acted_on = sent.map(|sent| reply.acted_on(sent));
        if self.state.paused().is_some_and(|paused| self.services.clock.now().0 >= paused.approval.expires_at.0) {
            self.expire().await?; // the request had expired before the answer
        }
        let now = self.services.clock.now();
        let outcome = match self.state.paused().filter(|paused| paused.approval.id == approval) {
            // The request has expired, but the store does not have that yet. An approval is too late all the same.
            Some(paused) if now.0 >= paused.approval.expires_at.0 => {
                Err(Refusal::Store("the end of this question could not be stored yet".into()))
            }
            Some(paused) if !paused.approval.asker.may_be_decided_by(&paused.approval.session, &who, &from) => Err(
                Refusal::Forbidden("This question is for the person who started the run, or for an operator.".into()),
            ),
            Some(paused) => self.store_answer(&paused.approval, reply, &who.id).await,
            None => Err(self.told(approval).await),
        };
        let say = match outcome {
            Ok(text) => {
                self.remember(acted_on).await;
                let resumes = self.state.paused().map(|paused| {
                    paused.waiting.run.activity.resume();
                    paused.approval.run_id
                });
                // The answer is stored. Its sender is informed now, because reading it back may take a while.
                let reply = text.clone();
                ack.send(Ack::Command(CommandReply { command: word, reply, resumes, refused: false }));
                self.resume().await?;
                text
            }
            Err(refusal) => {
                match matches!(refusal, Refusal::Store(_)) {
                    true => not_acted_on(&self.port.notes, acted_on.map(|acted_on| acted_on.key)).await,
                    // An answer that was refused for good must not answer a later request either.
                    false => self.remember(acted_on.map(|acted_on| ActedOn { refused: true, ..acted_on })).await,
                }
                let text = refusal.to_string();
                ack.send(Ack::Refused(refusal));
                text
            }
        };
        let say = reply_to.map(|route| (route, say));
        note(&self.port.notes, LaneNote::Commanded { session: self.lease.session.clone(), say }).await;
        Ok(())
    }

    /// Stores that an answer or a command was acted on, or refused for good, before its sender is informed. If it is
    /// delivered again, even after a restart, it must not answer another request or act a second time.
    pub(super) async fn remember(&self, acted_on: Option<ActedOn>) {
        let Some(acted_on) = acted_on else { return };
        if let Err(error) = self.services.store.dispatcher.note_acted_on(&acted_on, self.services.clock.now()).await {
            tracing::warn!(%error, "what came again after a restart would not be recognised");
        }
    }

    /// The refusal of an answer to a request that does not wait any more.
    async fn told(&self, approval: ApprovalId) -> Refusal {
        match self.services.store.approvals.approval(approval).await {
            Ok(Some(approval)) => Refusal::Decided(format!("This question {}.", approval.state.told())),
            Ok(None) => Refusal::Unknown(format!("There is no question {approval}.")),
            Err(error) => Refusal::Store(error.to_string()),
        }
    }

    /// Commits an answer. Returns the text for its sender.
    async fn store_answer(&self, approval: &ApprovalRequest, reply: LaneReply, by: &str) -> Result<String, Refusal> {
        let at = self.services.clock.now();
        let unstored = |error: StoreError| Refusal::Store(error.to_string());
        let (state, always, text) = match (reply, &approval.kind) {
            (LaneReply::Decision(Decision::Deny), _) => (ApprovalState::Denied, false, "Denied.".to_owned()),
            (LaneReply::Decision(_), ApprovalKind::Credential { name }) => {
                return Err(Refusal::Invalid(format!("Send only the secret {name} as your next message, or /deny.")));
            }
            (LaneReply::Decision(Decision::Always), ApprovalKind::Approval) => match &approval.covers {
                Some(covers) => {
                    (ApprovalState::Approved, true, format!("Approved from now on in this conversation: {covers}."))
                }
                None => return Err(Refusal::Invalid("This is asked each time: answer yes or no.".into())),
            },
            (LaneReply::Decision(Decision::Approve), ApprovalKind::Approval) => {
                (ApprovalState::Approved, false, "Approved.".to_owned())
            }
            (LaneReply::Secret(secret), ApprovalKind::Credential { name }) => {
                self.services.store.vault.keep(&approval.session, name, &secret, at).await.map_err(unstored)?;
                (
                    ApprovalState::Approved,
                    false,
                    format!("{name} is stored, encrypted; it is not part of the conversation."),
                )
            }
            (LaneReply::Secret(_), ApprovalKind::Approval) => {
                return Err(Refusal::Invalid("The question needs yes or no, not a secret.".into()));
            }
        };
        match self.services.store.approvals.decide(approval.id, state, always, by, at).await.map_err(unstored)? {
            Decided::Now(_) => Ok(text),
            Decided::Before(approval) => Err(Refusal::Decided(format!("This question {}.", approval.state.told()))),
            Decided::Unknown => Err(Refusal::Unknown("There is no such question.".into())),
        }
    }

    /// Checks the expiry of the approval request. An expired request counts as a denial, and the run continues with it.
    pub(super) async fn expire(&mut self) -> Result<(), LeaseLost> {
        let Some(paused) = self.state.paused() else { return Ok(()) };
        let now = self.services.clock.now();
        if now.0 < paused.approval.expires_at.0 {
            let until = paused.approval.expires_at;
            let until = self.instant_of(until);
            if let Some(paused) = self.state.paused_mut() {
                paused.until = until;
            }
            return Ok(());
        }
        let (id, run) = (paused.approval.id, paused.approval.run_id);
        match self.services.store.approvals.decide(id, ApprovalState::Expired, false, "nobody", now).await {
            Ok(_) => {
                tracing::info!(%run, approval = %id, "nobody answered in time");
                self.resume().await
            }
            Err(error) => {
                tracing::error!(%error, approval = %id, "the end of a question could not be stored; trying again");
                if let Some(paused) = self.state.paused_mut() {
                    paused.until = Instant::now() + STORE.longest;
                }
                Ok(())
            }
        }
    }

    /// Resumes the paused run, before all other messages.
    async fn resume(&mut self) -> Result<(), LeaseLost> {
        let Some(PausedTurn { mut waiting, approval, .. }) = self.state.take_paused_if(|_| true) else { return Ok(()) };
        waiting.resume(self.answers_of(approval.run_id).await?);
        self.queue.push_front(waiting);
        note(&self.port.notes, LaneNote::Resumed { approval: approval.id }).await;
        Ok(())
    }

    /// The paused run and its end, if it was told to stop.
    pub(super) fn stopped_while_paused(&mut self) -> Option<(QueuedRun, RunEnding)> {
        let is_stopped = |paused: &PausedTurn| paused.waiting.run.control.cancel.is_cancelled();
        let PausedTurn { waiting, .. } = self.state.take_paused_if(is_stopped)?;
        let ending = stopped(&waiting);
        Some((waiting, ending))
    }
}

/// Maximum time between two checks of an expiry date. The system clock may be changed, and tests use their own clock.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The end of a run that was stopped while it waited, or before it continued. Its unanswered calls were not executed.
pub(super) fn stopped(waiting: &QueuedRun) -> RunEnding {
    let results = open_calls(&waiting.own).into_iter().map(|call| {
        let (status, text) = (ToolStatus::NotExecuted, STOPPED.to_owned());
        Arc::new(Message::tool(ToolResult { call_id: call.id, name: call.name, status, text }))
    });
    let unstored = Remainder { messages: results.collect(), ..Remainder::default() };
    RunEnding { unstored, ..RunEnding::stopped(waiting) }
}
