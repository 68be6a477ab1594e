//! Claims the key of a command or an answer before anything changes. The dispatcher knows the keys of recent messages; the
//! store knows all keys, of all nodes. So a "yes" that was once a message approves nothing when its platform delivers it
//! again.

use belay_protocol::{Ack, AckSender, ApprovalId, ReplyRoute, Sent, UnixMillis};

use super::Lane;
use super::port::{not_acted_on, note};
use crate::claims::{ALWAYS, Act, claim};
use crate::mail::{LaneAnswer, LaneCommand, LaneNote, LaneReply};

impl Lane {
    /// Returns the command if its key is claimed for it, or if it has none. Otherwise answers it and returns `None`.
    pub(super) async fn first_command(&self, mut command: LaneCommand) -> Option<LaneCommand> {
        let Some(sent) = &command.sent else { return Some(command) };
        let again_since = ALWAYS.filter(|_| command.order.may_be_repeated());
        let act = Act { sent, is_secret: false, word: &command.word, claimed: command.claimed, again_since };
        let Err(instead) = claim(&self.services, &act).await else {
            command.claimed = Some(self.services.boot);
            return Some(command);
        };
        let LaneCommand { sent, ack, reply_to, .. } = command;
        self.pass_over(sent, ack, reply_to, *instead).await;
        None
    }

    /// Same as [`Self::first_command`], for an answer to an approval request.
    pub(super) async fn first_answer(&self, mut answer: LaneAnswer) -> Option<LaneAnswer> {
        let Some(sent) = &answer.sent else { return Some(answer) };
        let is_secret = matches!(answer.reply, LaneReply::Secret(_));
        let again_since = self.asked_at(answer.approval);
        let act = Act { sent, is_secret, word: &answer.word, claimed: answer.claimed, again_since };
        let Err(instead) = claim(&self.services, &act).await else {
            answer.claimed = Some(self.services.boot);
            return Some(answer);
        };
        let LaneAnswer { sent, ack, reply_to, .. } = answer;
        self.pass_over(sent, ack, reply_to, *instead).await;
        None
    }

    /// The time since which an answer may be given twice: the question is decided once, and an earlier delivery that came
    /// after the question was for the same question.
    fn asked_at(&self, approval: ApprovalId) -> Option<UnixMillis> {
        let paused = self.state.paused().filter(|paused| paused.approval.id == approval);
        paused.map_or(ALWAYS, |paused| Some(paused.approval.asked_at))
    }

    /// Answers without acting. The key belongs to an earlier delivery, or may be tried again.
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
