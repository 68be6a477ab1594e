//! Checks whether the key of a command or an answer was used before. The dispatcher knows the keys of recent messages;
//! the store knows all keys, and is asked before anything changes. So a "yes" that was once a message approves nothing
//! when its platform delivers it again.

use belay_protocol::{Ack, AckSender, Refusal, ReplyRoute, Sent};

use super::Lane;
use super::port::{not_acted_on, note};
use crate::agent_services::AgentServices;
use crate::mail::{LaneAnswer, LaneCommand, LaneNote};

impl Lane {
    /// Returns the command if no message used its key before. Otherwise answers it and returns `None`.
    pub(super) async fn first_command(&self, command: LaneCommand) -> Option<LaneCommand> {
        let Some(instead) = used_before(&self.services, command.sent.as_ref()).await else { return Some(command) };
        let LaneCommand { sent, ack, reply_to, .. } = command;
        self.pass_over(sent, ack, reply_to, instead).await;
        None
    }

    /// Same as [`Self::first_command`], for an answer to an approval request.
    pub(super) async fn first_answer(&self, answer: LaneAnswer) -> Option<LaneAnswer> {
        let Some(instead) = used_before(&self.services, answer.sent.as_ref()).await else { return Some(answer) };
        let LaneAnswer { sent, ack, reply_to, .. } = answer;
        self.pass_over(sent, ack, reply_to, instead).await;
        None
    }

    /// Answers without acting. The key belongs to the earlier message, or may be tried again.
    async fn pass_over(&self, sent: Option<Sent>, ack: AckSender, reply_to: Option<ReplyRoute>, instead: Ack) {
        not_acted_on(&self.port.notes, sent.map(|sent| sent.key)).await;
        let refused = match &instead {
            Ack::Refused(refusal) => Some(refusal.to_string()),
            _ => None,
        };
        ack.send(instead);
        let say = reply_to.zip(refused);
        note(&self.port.notes, LaneNote::Commanded { session: self.lease.session.clone(), say }).await;
    }
}

/// The acknowledgement for a key that a message has used already; `None`: the key is new.
pub(crate) async fn used_before(services: &AgentServices, sent: Option<&Sent>) -> Option<Ack> {
    let sent = sent?;
    Some(match services.store.inputs.find(&sent.key).await {
        Ok(None) => return None,
        Ok(Some(known)) if sent.is_again(&known) => Ack::Accepted(known.again(None)),
        Ok(Some(known)) => Ack::Refused(Refusal::Conflict { run_id: known.run_id }),
        Err(error) => Ack::Refused(Refusal::Store(error.to_string())),
    })
}
