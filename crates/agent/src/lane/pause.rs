//! Runs that wait for approval. An answer, or the expiry of the approval request, resumes the run; a stop ends it.
//!
//! An approval request is in the store before anyone sees it, and its answer is in the store before the run continues.
//! While a run is paused, its lane takes mail and starts no turn, so the conversation continues where it stopped.

use std::sync::Arc;
use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::{
    ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, Checkpoint, Decided, Durability, Message, Outbound,
    PausedRun, Question, Refusal, StoreError, TextKind, ToolResult, ToolStatus, UnixMillis,
};
use tokio::time::Instant;

use super::port::{note, refuse_for};
use super::state::LaneState;
use super::{Lane, LeaseLost};
use crate::answering::{after, announce};
use crate::mail::LaneNote;
use crate::queued_run::{QueuedRun, RunEnding};
use crate::turn::Conversation;
use belay_run::approvals::{question_text, reminder_text};
use belay_run::effect_gate::{Asking, open_calls};
use belay_run::journal::Remainder;
use belay_run::retry::STORE;

/// The result of a call whose run was stopped while the call waited for an answer.
const STOPPED: &str = "not executed: the run was stopped while it waited for a person's answer";

/// The result of a call that the client was to carry out.
const NO_RESULT: &str = "not answered: the client gave no result before the run ended";

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
        let text = match approval.kind.is_of_client() {
            true => self.text_beside_calls(&conversation.own),
            false => question_text(&approval, now),
        };
        let question = Question {
            approval: approval.id,
            offers_always: approval.covers.is_some(),
            decidable: approval.kind == ApprovalKind::Approval,
        };
        let route = match &approval.place {
            Some(place) => place.route.clone(),
            None if approval.kind.is_of_client() => None, // no person is asked
            None => current.request.reply_to.clone(),
        };
        let outbound = route.map(|route| Outbound {
            question: Some(question),
            ..Outbound::new(Some(approval.run_id), route, text.clone()).checked()
        });
        let Remainder { messages: new, events, said, unclear } = unstored;
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
        let callback = current.callback(&current.record_while_paused(&approval, text.clone()));
        let paused = PausedRun { checkpoint, approval: approval.clone(), outbound, callback };
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
                ending.unstored = Remainder { messages, events: paused.checkpoint.events, said, unclear };
                self.commit_ends(vec![(current, ending)]).await?;
                return self.reload().await.map(|_| ());
            }
            crash_point!("approval.before-question");
            match self.services.store.run_store.pause_run(&self.lease, paused.clone()).await {
                Ok(()) => break,
                Err(StoreError::LeaseLost(_)) => return Err(LeaseLost),
                // The answer to an earlier attempt was lost: the run is paused, so it is not running any more.
                Err(StoreError::NotFound(_)) if self.is_asked(approval.id).await => break,
                Err(error) => {
                    tracing::error!(%error, session = %self.lease.session, "a question could not be stored; trying again");
                    refuse_for(&mut self.port, Refusal::Store(error.to_string()), pauses.next_pause()).await;
                }
            }
        }
        crash_point!("approval.asked");
        current.progress.in_thread = true;
        tracing::info!(run = %approval.run_id, session = %approval.session, approval = %approval.id, tool = approval.tool, "run waits for \
                                                                                                        approval");
        current.run.activity.pause(Arc::new(current.record_while_paused(&approval, text)));
        self.await_answer(current, approval);
        Ok(())
    }

    /// Whether the store has an approval request. `false` also if it does not answer.
    async fn is_asked(&self, approval: ApprovalId) -> bool {
        matches!(self.services.store.approvals.approval(approval).await, Ok(Some(_)))
    }

    /// Restores a run that was paused when the daemon ended. Its approval request was sent before.
    pub(super) async fn restore_paused(&mut self, waiting: QueuedRun, approval: ApprovalRequest) {
        let text = match approval.kind.is_of_client() {
            true => self.text_beside_calls(&waiting.own),
            false => question_text(&approval, self.services.clock.now()),
        };
        waiting.run.activity.begin();
        waiting.run.activity.pause(Arc::new(waiting.record_while_paused(&approval, text)));
        self.announce(&approval).await;
        self.await_answer(waiting, approval);
    }

    /// Informs the dispatcher of an approval request. This comes before anything that makes the request visible, so
    /// that the dispatcher knows it when the answer arrives.
    pub(super) async fn announce(&self, approval: &ApprovalRequest) {
        announce(&self.services, &self.port.notes, approval).await;
    }

    fn await_answer(&mut self, waiting: QueuedRun, approval: ApprovalRequest) {
        let until = self.next_look(&approval);
        if waiting.run.control.cancel.is_cancelled() {
            self.port.wake.notify_one(); // it was told to stop while the request was being stored
        }
        self.state = LaneState::Paused(Box::new(PausedTurn { waiting, approval, until }));
    }

    fn approval_of(&self, current: &QueuedRun, asking: Asking, now: UnixMillis) -> ApprovalRequest {
        let Asking { call, wanted, .. } = asking;
        let time = match wanted.kind {
            ApprovalKind::Approval if wanted.place.is_some() => self.services.approvals.load().autonomous_expires(),
            ApprovalKind::Approval | ApprovalKind::Form { .. } => self.services.approvals.load().expires(),
            ApprovalKind::Credential { .. } => self.services.approvals.load().credential_expires(),
            ApprovalKind::ClientCalls { .. } => self.services.approvals.load().client_calls_expire(),
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
            covers: wanted.covers.filter(|_| wanted.place.is_none()), // autonomous work gets no permanent approvals
            added: wanted.added,
            asker: current.request.asker.clone(),
            place: wanted.place,
            second: wanted.second.then(Box::default),
            reminded_at: None,
            asked_at: now,
            expires_at: after(now, time),
            state: ApprovalState::Waiting,
            decided_by: None,
            decided_at: None,
        }
    }

    /// When the reminder of a request is due, or else when it expires.
    pub(super) fn next_look(&self, approval: &ApprovalRequest) -> Instant {
        self.instant_of(approval.remind_at().unwrap_or(approval.expires_at))
    }

    fn instant_of(&self, at: UnixMillis) -> Instant {
        let left = u64::try_from(at.0 - self.services.clock.now().0).unwrap_or(0);
        Instant::now() + Duration::from_millis(left).min(LONGEST_WAIT)
    }

    /// Checks the expiry of the approval request. An expired request counts as a denial, and the run continues with it.
    pub(super) async fn expire(&mut self) -> Result<(), LeaseLost> {
        let Some(paused) = self.state.paused() else { return Ok(()) };
        let now = self.services.clock.now();
        if now.0 < paused.approval.expires_at.0 {
            if self.is_answered_elsewhere(paused.approval.id).await {
                return self.resume().await;
            }
            let Some(paused) = self.state.paused() else { return Ok(()) };
            let until = match paused.approval.remind_at().filter(|due| now.0 >= due.0) {
                Some(_) => self.remind(now).await,
                None => self.next_look(&paused.approval),
            };
            if let Some(paused) = self.state.paused_mut() {
                paused.until = until;
            }
            return Ok(());
        }
        if paused.approval.kind.is_of_client() {
            return Box::pin(self.client_is_late()).await;
        }
        let (id, run) = (paused.approval.id, paused.approval.run_id);
        match self.services.store.approvals.decide(id, ApprovalState::Expired, None, "nobody", now).await {
            // Another daemon has stored the first of two approvals, and the second person has more time.
            Ok(Decided::Before(stored)) if stored.state == ApprovalState::Waiting => {
                let until = self.next_look(&stored);
                if let Some(paused) = self.state.paused_mut() {
                    (paused.approval, paused.until) = (*stored, until);
                }
                Ok(())
            }
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

    /// Whether the store has an answer that this lane was not told of. A node that was stopped stores the answers that wait
    /// for it as soon as it wakes up, before it notices that its lanes have other owners.
    async fn is_answered_elsewhere(&self, approval: ApprovalId) -> bool {
        if self.services.cluster.is_none() {
            return false;
        }
        // If the store does not answer, the next look does.
        let stored = self.services.store.approvals.approval(approval).await.ok().flatten();
        stored.is_some_and(|stored| stored.state != ApprovalState::Waiting)
    }

    /// Reminds the conversation of the question of autonomous work, once. Returns the time of the next look.
    async fn remind(&mut self, now: UnixMillis) -> Instant {
        let Some(PausedTurn { approval, .. }) = self.state.paused_mut() else { return Instant::now() };
        let Some(route) = approval.present_place().and_then(|place| place.route.clone()) else { return Instant::now() };
        let question = Question { approval: approval.id, offers_always: false, decidable: true };
        let reminder = Outbound {
            question: Some(question),
            ..Outbound::new(Some(approval.run_id), route, reminder_text(approval, now)).of_kind(TextKind::Reminder)
        };
        match self.services.store.approvals.remind(approval.id, reminder, now).await {
            Ok(_) => {
                approval.reminded_at = Some(now);
                let expires_at = approval.expires_at;
                self.instant_of(expires_at)
            }
            Err(error) => {
                tracing::error!(%error, approval = %approval.id, "a reminder could not be stored; trying again");
                Instant::now() + STORE.longest
            }
        }
    }

    /// Resumes the paused run, before all other messages.
    pub(super) async fn resume(&mut self) -> Result<(), LeaseLost> {
        let Some(PausedTurn { mut waiting, approval, .. }) = self.state.take_paused_if(|_| true) else { return Ok(()) };
        waiting.run.activity.resume();
        waiting.resume(self.answers_of(approval.run_id).await?);
        self.queue.push_front(waiting);
        note(&self.port.notes, LaneNote::Resumed { approval: approval.id }).await;
        Ok(())
    }

    /// The paused run and its end, if it was told to stop.
    pub(super) fn stopped_while_paused(&mut self) -> Option<(QueuedRun, RunEnding)> {
        let is_stopped = |paused: &PausedTurn| paused.waiting.run.control.cancel.is_cancelled();
        let PausedTurn { waiting, approval, .. } = self.state.take_paused_if(is_stopped)?;
        let ending = match approval.kind.is_of_client() {
            true => ended_with(&waiting, NO_RESULT),
            false => stopped(&waiting),
        };
        Some((waiting, ending))
    }
}

/// Maximum time between two checks of an expiry date, and of an answer that another node has stored. The system clock may be changed, and
/// tests use their own clock.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The end of a run that was stopped while it waited, or before it continued. Its unanswered calls were not executed.
pub(super) fn stopped(waiting: &QueuedRun) -> RunEnding {
    ended_with(waiting, STOPPED)
}

/// The same with this text as the result of each unanswered call.
fn ended_with(waiting: &QueuedRun, text: &str) -> RunEnding {
    let results = open_calls(&waiting.own).into_iter().map(|call| {
        let (status, text) = (ToolStatus::NotExecuted, text.to_owned());
        Arc::new(Message::tool(ToolResult { call_id: call.id, name: call.name, status, text }))
    });
    let unstored = Remainder { messages: results.collect(), ..Remainder::default() };
    RunEnding { unstored, ..RunEnding::stopped(waiting) }
}
