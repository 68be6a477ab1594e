//! Requests about jobs, in a conversation or by a program. They run as background tasks, so the dispatcher does not
//! wait.

use belay_protocol::{Ack, AckSender, ActedOn, CommandReply, Inbound, JobRequest, Refusal, Sent};

use super::Dispatcher;
use super::routines::pass_over;
use crate::claims::{ALWAYS, Act, claim_or_wait, keep};
use crate::mail::LaneNote;
use belay_automation::jobs::{self, JobCommand};

impl Dispatcher {
    /// Handles a program's request about jobs.
    pub(super) fn job_request(&mut self, request: JobRequest, inbound: Inbound, ack: AckSender) {
        let services = self.services.clone();
        self.background(async move {
            ack.send(match jobs::request(&services.jobs, request, &inbound).await {
                Ok(job) => Ack::Job(Box::new(job)),
                Err(refusal) => Ack::Refused(refusal),
            });
        });
    }

    /// Handles a command about jobs.
    pub(super) fn job_command(
        &mut self,
        command: JobCommand,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        let (services, notifier, notes) = (self.services.clone(), self.notifier.clone(), self.notes.clone());
        self.background(async move {
            if let Some(sent) = &sent {
                // A redelivery finds the same job.
                let again_since = ALWAYS.filter(|_| !matches!(command, JobCommand::Revoke(..)));
                let act = Act { sent, is_secret: false, word: &word, claimed: None, again_since };
                if let Err(instead) = claim_or_wait(&services, &act).await {
                    return pass_over(&notifier, &notes, (sent.key.clone(), ack, inbound.reply_to), *instead).await;
                }
            }
            let (said, passed_on) = match jobs::command(&services.jobs, command, &inbound).await {
                Ok(answer) => (Ok(answer.text), answer.passed_on),
                Err(refusal @ (Refusal::Store(_) | Refusal::ShuttingDown)) => {
                    if let Some(sent) = sent {
                        // Before the refusal is sent, because the command is then given again. Fails only when the
                        // dispatcher ends.
                        let _ = notes.send(LaneNote::NotActedOn { key: sent.key }).await;
                    }
                    return ack.send(Ack::Refused(refusal));
                }
                // Answered once; the channel does not offer it again.
                Err(Refusal::Busy { what, .. }) => (Err(format!("That cannot be done now: {what}.")), None),
                Err(refusal) => (Err(refusal.to_string()), None),
            };
            let refused = said.is_err();
            if let Some(sent) = sent {
                keep(&services, ActedOn { refused, ..sent.into() }).await;
            }
            let (Ok(text) | Err(text)) = said;
            let reply = CommandReply { command: word, reply: text.clone(), resumes: None, refused };
            ack.send(Ack::Command(reply));
            notifier.say(inbound.reply_to.clone(), text);
            if let Some(passed_on) = passed_on
                && let Some(unread) = passed_on.unread().await
            {
                notifier.say(inbound.reply_to, unread);
            }
        });
    }
}
