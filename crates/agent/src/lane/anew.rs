//! Ends conversations: automatically by the rule of their channel, or when an operator deletes the session. The rule is
//! checked when the next message of a person arrives, and never while the session has unfinished work.

use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::{Ack, ClaimMode, EditOutcome, ProcessesOf, Refusal, StoreError, ThreadEdit};

use super::port::note;
use super::{Lane, LeaseLost};
use crate::mail::{LaneCommand, LaneInput, LaneMail, LaneNote};
use belay_run::estimate::Calibration;
use belay_run::prompt::Briefing;

/// Longest wait of a deletion for its processes: TERM, 2 s, KILL, and the record of the end.
const PROCESSES_LIMIT: Duration = Duration::from_secs(10);

impl Lane {
    /// Starts a new conversation before this message, if the rule of its channel says that the old one is over. If the
    /// store fails, the old conversation continues.
    pub(super) async fn begin_anew(&mut self, input: &LaneInput) -> Result<(), LeaseLost> {
        let inbound = &input.inbound;
        if self.fresh || !self.is_quiet() || !self.services.is_spoken(inbound) {
            return Ok(());
        }
        let now = self.services.clock.now();
        let due = self.spoken_at.and_then(|spoken| self.services.resets.due(&inbound.channel, spoken, now));
        let Some(why) = due else { return Ok(()) };
        // A duplicate belongs to the conversation that answered it.
        if let Some(key) = &inbound.key
            && !matches!(self.services.store.inputs.find(key).await, Ok(None))
        {
            return Ok(());
        }
        let session = &self.lease.session;
        // Permanent approvals are removed first. If the rest fails, a person is asked once more, and nothing else has
        // changed.
        let done = match self.services.store.approvals.forget_grants(session).await {
            Ok(_) => self.services.store.lanes.edit_thread(&self.lease, ThreadEdit::New, now).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(EditOutcome::Done(thread)) => {
                tracing::info!(session = %self.lease.session, why = why.word(), "a new conversation begins");
                self.show(thread);
                self.end_background_processes();
                Briefing::begin_anew(&self.services.briefings, &self.lease.session).await;
                self.fresh = true;
                self.announce = true;
                self.services.hooks.session_end(&self.lease.session, why.word());
                Ok(())
            }
            Ok(EditOutcome::Nothing) => Ok(()),
            Err(StoreError::LeaseLost(_)) => Err(LeaseLost),
            Err(error) => {
                tracing::error!(%error, %session, "a new conversation could not begin; the old one goes on");
                Ok(())
            }
        }
    }

    /// Begins to end the processes that the old conversation keeps. The next one finds none of them.
    pub(super) fn end_background_processes(&self) {
        self.services.processes.stop_background(&ProcessesOf::Session(self.lease.session.clone()));
        self.services.processes.forget_background(&self.lease.session);
    }

    /// Ends them before the conversation is deleted: the record of their ends goes with it, and none of them goes on
    /// writing. One that does not die in [`PROCESSES_LIMIT`] is no reason to keep what a person deletes.
    pub(super) async fn without_background_processes(&self) {
        self.end_background_processes();
        let of = ProcessesOf::Session(self.lease.session.clone());
        if tokio::time::timeout(PROCESSES_LIMIT, self.services.processes.background_ended(&of)).await.is_err() {
            tracing::warn!(session = %self.lease.session, "a process of a deleted conversation has not ended");
        }
    }

    /// Whether the session has no unfinished work.
    fn is_quiet(&self) -> bool {
        self.state.is_idle() && self.queue.is_empty()
    }

    /// Deletes the session. The next mail creates it again.
    pub(super) async fn delete(&mut self, command: LaneCommand) -> Result<(), LeaseLost> {
        let at = self.services.clock.now();
        crash_point!("prune.before-deletion");
        let outcome = match self.is_quiet() {
            true => {
                self.without_background_processes().await;
                self.services.store.archive.delete_session(&self.lease, at).await
            }
            false => Err(StoreError::TooMuch("a message of it is still being answered: stop it first".into())),
        };
        let ack = match outcome {
            Ok(removed) => {
                crash_point!("prune.session-deleted");
                tracing::info!(session = %self.lease.session, %removed, "a session was deleted");
                self.deleted = true;
                // As for /new, the values outside the store are removed too.
                Briefing::begin_anew(&self.services.briefings, &self.lease.session).await;
                self.calibration = Calibration::default();
                if !std::mem::replace(&mut self.fresh, true) {
                    self.services.hooks.session_end(&self.lease.session, "deleted");
                }
                if let Some(outputs) = &self.services.outputs {
                    outputs.forget(&removed.run_ids).await;
                }
                Ack::Removed(removed)
            }
            Err(StoreError::LeaseLost(_)) => return Err(self.keep_back(LaneMail::Command(Box::new(command)))),
            Err(StoreError::TooMuch(what)) => Ack::Refused(Refusal::Decided(what)),
            Err(error) => Ack::Refused(Refusal::Store(error.to_string())),
        };
        command.ack.send(ack);
        note(&self.port.notes, LaneNote::Commanded { session: command.session, say: None }).await;
        Ok(())
    }

    /// Creates the session again if it was deleted, because mail for it has arrived.
    pub(super) async fn revive(&mut self) -> Result<(), LeaseLost> {
        if !std::mem::take(&mut self.deleted) {
            return Ok(());
        }
        Box::pin(self.reopen(ClaimMode::Free)).await?; // large and rare
        (self.fresh, self.loop_detection, self.spoken_at, self.announce) = (true, true, None, false);
        self.options = belay_protocol::RunOptions::default();
        Ok(())
    }
}
