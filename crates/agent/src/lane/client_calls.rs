//! Runs that wait for results of their client. They are paused like runs that wait for a person, but nobody is asked.

use std::sync::Arc;

use belay_protocol::{
    ApprovalState, ClientNote, Decided, HookPoint, Message, Principal, Refusal, RunOptions, StopReason,
};
use belay_run::live::StopCause;
use belay_run::request::RunRequest;
use belay_run::retry::STORE;
use tokio::time::Instant;

use super::port::note;
use super::{Lane, LeaseLost};
use crate::answering::Stored;
use crate::mail::{LaneNote, LaneReply};
use crate::queued_run::QueuedRun;

impl Lane {
    /// Commits the results of the client. The run continues with the tools that the client offers now.
    pub(super) async fn store_client_answer(&mut self, reply: LaneReply, who: &Principal) -> Result<Stored, Refusal> {
        let gone = || Refusal::Unknown("No run waits for these results.".into());
        let LaneReply::Client(answer) = reply else { return Err(gone()) };
        let paused = self.state.paused_mut().filter(|paused| paused.approval.kind.is_of_client()).ok_or_else(gone)?;
        let (id, at) = (paused.approval.id, self.services.clock.now());
        let mut options = RunOptions { client_tools: answer.tools, ..paused.waiting.request.options.clone() };
        // A note holds for the later answers too, so that the options do not grow with every round of results.
        let last = options.notes.last().map(|note| note.fields.clone()).unwrap_or_default();
        let changed = answer.note.filter(|fields| *fields != last);
        options.notes.extend(changed.map(|fields| ClientNote { after: Some(id), fields }));
        let (calls, approvals) = (&self.services.store.client_calls, &self.services.store.approvals);
        let mut stored = calls.answer_client_calls(id, answer.results.clone(), options.clone(), &who.id, at).await;
        if stored.is_err()
            && let Ok(Some(read)) = approvals.approval(id).await
            && read.state == ApprovalState::Approved
        {
            // Only this lane stores answers of its run: the answer of the store was lost, or that of an earlier request.
            stored = Ok(Decided::Now(Box::new(read)));
        }
        match stored {
            Ok(Decided::Now(_)) => {
                let request = RunRequest { options, ..RunRequest::clone(&paused.waiting.request) };
                paused.waiting.request = Arc::new(request);
                Ok(Stored::Decided("The run continues with the results.".into()))
            }
            Ok(Decided::Before(approval)) => Err(Refusal::Decided(format!("This {}.", approval.state.told()))),
            Ok(Decided::Unknown) => Err(gone()),
            Err(error) => Err(Refusal::Store(error.to_string())),
        }
    }

    /// Ends the run that waits for its client: no results came in time, or the client has sent something else.
    pub(super) async fn client_is_gone(&mut self) {
        let Some(paused) = self.state.paused_mut().filter(|paused| paused.approval.kind.is_of_client()) else { return };
        tracing::info!(run = %paused.approval.run_id, "the client gave no results for the calls of its tools");
        paused.until += super::pause::LONGEST_WAIT; // the dispatcher stops the run, and what it has left behind
        let (run, cause) = (paused.waiting.run.clone(), StopCause::of(StopReason::ClientGone));
        note(&self.port.notes, LaneNote::Stop { run, cause }).await;
    }

    /// The run that waits for its client goes on if the store has the results: the answer to their commit was lost. Otherwise
    /// it ends.
    pub(super) async fn client_is_late(&mut self) -> Result<(), LeaseLost> {
        let Some(id) = self.state.paused().map(|paused| paused.approval.id) else { return Ok(()) };
        match self.services.store.approvals.approval(id).await {
            Ok(Some(approval)) if approval.state == ApprovalState::Approved => {
                if let Some(paused) = self.state.paused() {
                    paused.waiting.run.activity.resume();
                }
                self.resume().await
            }
            Ok(_) => {
                self.client_is_gone().await;
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, approval = %id, "the results of a client could not be read; trying again");
                if let Some(paused) = self.state.paused_mut() {
                    paused.until = Instant::now() + STORE.longest;
                }
                Ok(())
            }
        }
    }

    /// Ends the run that waits for its client, if this message of the same client comes instead of the results.
    pub(super) async fn give_up_results(&mut self, message: &QueuedRun) {
        if self.state.paused().is_some_and(|paused| paused.waiting.request.asker == message.request.asker) {
            self.client_is_gone().await;
        }
    }

    /// The model's text beside the calls. Hooks that check answers have not seen it, so it is left out then.
    pub(super) fn text_beside_calls(&self, own: &[Arc<Message>]) -> String {
        if self.services.hooks.is_bound(HookPoint::MessageSending) {
            return String::new();
        }
        let batch = own.iter().rfind(|message| !message.tool_calls().is_empty());
        batch.map(|message| message.text().to_owned()).unwrap_or_default()
    }
}
