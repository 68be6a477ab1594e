//! Answers to the question of a paused run. An answer is in the store before the run continues, and before its sender is
//! informed.

use belay_crash_point::crash_point;
use belay_protocol::{Ack, ActedOn, ApprovalId, CommandReply, Refusal};

use super::port::{not_acted_on, note};
use super::{Lane, LeaseLost};
use crate::answering::{Stored, may_answer, store_answer};
use crate::claims::keep;
use crate::mail::{LaneAnswer, LaneNote, LaneReply};

impl Lane {
    /// Handles a person's answer.
    pub(super) async fn answer(&mut self, answer: LaneAnswer) -> Result<(), LeaseLost> {
        let Some(answer) = self.first_answer(answer).await else { return Ok(()) };
        let LaneAnswer { approval, reply, who, from, through, word, reply_to, sent, claimed: _, forwarded: _, ack } =
            answer;
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
            Some(paused) => match may_answer(&self.services, &paused.approval, &reply, (&who, &through), &from) {
                Ok(()) if matches!(reply, LaneReply::Client(_)) => self.store_client_answer(reply, &who).await,
                Ok(()) => {
                    let notes = &self.port.notes;
                    store_answer(&self.services, notes, &paused.approval, reply, (&who, &through)).await
                }
                Err(refusal) => Err(refusal),
            },
            None => Err(self.told(approval).await),
        };
        let say = match outcome {
            Ok(Stored::FirstYes(approval, text)) => {
                self.remember(acted_on).await;
                let until = self.next_look(&approval);
                if let Some(paused) = self.state.paused_mut() {
                    (paused.approval, paused.until) = (*approval, until);
                }
                let reply = text.clone();
                ack.send(Ack::Command(CommandReply { command: word, reply, resumes: None, refused: false }));
                text
            }
            Ok(Stored::Decided(text)) => {
                crash_point!("approval.decided");
                self.remember(acted_on).await;
                let resumes = self.state.paused().map(|paused| {
                    paused.waiting.run.activity.resume();
                    paused.approval.run_id
                });
                // The answer is stored. Its sender is informed now, because reading it back may take a while.
                let reply = text.clone();
                ack.send(Ack::Command(CommandReply { command: word, reply, resumes, refused: false }));
                crash_point!("approval.before-resume");
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

    /// See [`keep`].
    pub(super) async fn remember(&self, acted_on: Option<ActedOn>) {
        if let Some(acted_on) = acted_on {
            keep(&self.services, acted_on).await;
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
}
