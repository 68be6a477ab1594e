//! Edits of messages. An edit replaces a message that waits. If the turn of the message has begun, the answer says that
//! the edit came too late. If the message was never accepted, the answer says that there is nothing to replace.

use belay_protocol::store::{EditedMessage, KnownInput, input_digest};
use belay_protocol::{Message, QueueMode, Refusal, RunId, StoreError, with_spoken};

use super::{Lane, LeaseLost};
use crate::mail::{LaneInput, LaneMail};
use belay_run::joining::JoinOffer;

/// The answer to an edit of a message whose turn has begun.
const TOO_LATE: &str =
    "Your edit came too late: the message was already accepted as it was. Send the change as a new message.";

/// The answer to an edit of a message that was never accepted as input for the model: a photo without a caption, a
/// group message that did not address the bot, a command. The edit is not accepted instead, because it may correct an
/// answer to an approval request, or a secret.
const NOT_TAKEN: &str = "This message was not accepted before you edited it, so there is nothing to replace. Send the text as a new \
     message.";

impl Lane {
    /// Replaces the text of a waiting message.
    pub(super) async fn replace(&mut self, input: LaneInput) -> Result<(), LeaseLost> {
        let Some(at) = self.edited(&input).filter(|at| self.gives_way(*at)) else {
            self.too_late(input).await;
            return Ok(());
        };
        let Some(run) = self.queue.get(at).map(|waiting| waiting.run.id) else { return Ok(()) };
        let provenance = input.inbound.provenance.clone();
        let digest = digest_of(&input);
        let edited = EditedMessage { run, text: input.text.clone(), provenance, digest: digest.clone() };
        let stored = self.services.store.lanes.replace_message(&self.lease, edited).await;
        if let Ok(provenance) = &stored
            && let Some(waiting) = self.queue.get_mut(at)
        {
            let attachments = provenance.as_deref().map_or(&[][..], |known| &known.attachments);
            waiting.edit(Message::sent(with_spoken(&input.text, attachments), provenance.clone()));
        }
        self.offer_again(at);
        match stored {
            Ok(_) => {
                let (session, accepted_at) = (self.lease.session.clone(), self.accepted_at(run));
                self.known(input, KnownInput { run_id: run, session, accepted_at, digest }).await;
                Ok(())
            }
            Err(StoreError::LeaseLost(_)) => Err(self.keep_back(LaneMail::Input(Box::new(input)))),
            Err(error) => {
                tracing::error!(%error, session = %self.lease.session, "an edit could not be stored");
                self.turn_away(input, Refusal::Store(error.to_string())).await;
                Ok(())
            }
        }
    }

    /// The queue position of the message that this input edits, if the same person sent both; `None`: its turn has
    /// begun, or it does not wait.
    fn edited(&self, input: &LaneInput) -> Option<usize> {
        let id = input.inbound.provenance.as_ref()?.message_id.as_deref()?;
        self.queue.iter().position(|waiting| {
            waiting.request.message_id.as_deref() == Some(id)
                && *waiting.request.asker.principal == *input.inbound.principal.id
                && !waiting.progress.has_begun()
                && !waiting.run.control.cancel.is_cancelled()
                && !self.is_in_flight(waiting.run.id)
        })
    }

    /// Offers a waiting message to the running turn again, after the edit withdrew it.
    fn offer_again(&self, at: usize) {
        if let (Some(waiting), Some(running)) = (self.queue.get(at), self.state.running())
            && waiting.queueing.rules.mode == QueueMode::Steer
            && waiting.is_plain()
            && waiting.is_akin(&running.waiting)
        {
            running.joining.offer(JoinOffer { run: waiting.run.clone() });
        }
    }

    fn accepted_at(&self, run: RunId) -> belay_protocol::UnixMillis {
        let waiting = self.queue.iter().find(|waiting| waiting.run.id == run);
        waiting.map(|waiting| waiting.request.accepted_at).unwrap_or_default()
    }

    /// Refuses an edit, unless the text is unchanged: platforms also call a message edited when only its preview is
    /// new.
    async fn too_late(&mut self, input: LaneInput) {
        let id = input.inbound.provenance.as_ref().and_then(|provenance| provenance.message_id.clone());
        let sent = match id {
            Some(id) => self.services.store.lanes.sent_message(&self.lease.session, &id).await,
            None => Ok(None),
        };
        let refusal = match sent {
            Ok(Some(sent)) if sent.says(&digest_of(&input)) => return self.known(input, sent.known).await,
            Ok(Some(_)) => Refusal::Decided(TOO_LATE.to_owned()),
            Ok(None) => Refusal::Decided(NOT_TAKEN.to_owned()),
            Err(error) => Refusal::Store(error.to_string()),
        };
        self.turn_away(input, refusal).await;
    }
}

/// Digest of the message as received.
fn digest_of(input: &LaneInput) -> String {
    input.sent.as_ref().map_or_else(|| input_digest(&input.text), |sent| sent.digest.clone())
}
