//! Sends messages for the model to their lanes. A redelivery joins the first delivery.

use belay_protocol::{Ack, AckSender, Inbound, Refusal, RunId, Sent};

use super::admission::{Sender, bytes_of};
use super::guards::Arrival;
use super::{Dispatcher, worth_saying};
use crate::mail::{LaneInput, LaneMail};
use crate::queue::BUSY_RETRY;
use crate::submission::Submission;
use belay_run::live::{LiveRun, RunOrigin};

impl Dispatcher {
    /// Sends a message to its lane.
    pub(super) fn input(&mut self, message: Arrival) {
        let Arrival { inbound, ack, text, sent, submission } = message;
        let repeat = match submission {
            Submission::Repeat(repeat) => Some(repeat),
            _ => None,
        };
        let (sender, bytes) = (Sender::of(&inbound), bytes_of(&text, &inbound));
        if let Some(refusal) = sender.as_ref().and_then(|sender| self.admission.refusal(sender, bytes)) {
            return self.busy(inbound, sent, ack, refusal);
        }
        // Lists find a run by the date in its id too. The clocks of several machines differ.
        let id = match self.services.cluster {
            Some(_) => RunId::new_at(self.services.clock.now()),
            None => RunId::new(),
        };
        let lane = self.lane(&inbound.session, inbound.lifetime);
        let run = LiveRun::new(id, inbound.session.clone(), RunOrigin::of(&inbound), inbound.want_deltas);
        let session = inbound.session.clone();
        let input = LaneInput {
            run: run.clone(),
            inbound,
            text,
            sent: sent.clone(),
            repeat,
            checked: false,
            forwarded: None,
            ack,
        };
        let mail = LaneMail::Input(Box::new(input));
        if let Err(mail) = lane.post(mail) {
            if let LaneMail::Input(input) = mail {
                let LaneInput { inbound, ack, .. } = *input;
                let what = "too many messages of this conversation are being accepted".to_owned();
                self.busy(inbound, sent, ack, Refusal::Busy { what, retry_after: BUSY_RETRY });
            }
            return;
        }
        lane.runs.push(run.clone());
        if let Some(sender) = sender {
            self.admission.add(run.id, sender, bytes);
        }
        self.sessions.insert(run.id, session);
        if let Some(sent) = sent {
            self.keys.take_in(run, sent);
        }
    }

    /// Refuses a message for lack of capacity. A duplicate is not refused: it joins its first acceptance, which the
    /// store knows. The limit of messages that wait behind a turn is enforced by the lane.
    fn busy(&mut self, inbound: Inbound, sent: Option<Sent>, ack: AckSender, busy: Refusal) {
        let Some(sent) = sent else { return self.refuse(&inbound, ack, busy) };
        let (inputs, notifier) = (self.services.store.inputs.clone(), self.notifier.clone());
        self.background(async move {
            let refusal = match inputs.find(&sent.key).await {
                Ok(Some(known)) if sent.is_again(&known) => return ack.send(Ack::Accepted(known.again(None))),
                Ok(Some(known)) => Refusal::Conflict { run_id: known.run_id },
                Ok(None) => busy,
                Err(error) => Refusal::Store(error.to_string()),
            };
            ack.send(Ack::Refused(refusal.clone()));
            if worth_saying(&refusal) {
                notifier.say(inbound.reply_to, refusal.to_string());
            }
        });
    }
}
