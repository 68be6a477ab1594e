//! Answers to approval requests: a bare yes or no, a command, a program's decision, or a secret. They go to the lane of
//! the paused run. If no lane knows the question, it is looked up in the store, so that a late answer gets the correct
//! reply.

use belay_protocol::{
    Ack, AckSender, ActedOn, ApprovalId, ApprovalState, Authority, CommandReply, Decision, Inbound, Refusal,
    ReplyRoute, Secret, Sent, SessionKey, SessionLifetime,
};

use super::Dispatcher;
use super::guards::{ANSWERED, Arrival, Guarded};
use super::named::{Named, several};
use crate::agent_services::AgentServices;
use crate::mail::{LaneAnswer, LaneMail, LaneNote, LaneReply, PendingQuestion};
use crate::queue::BUSY_RETRY;
use crate::submission::{Submission, word_of as word_of_text};
use belay_run::approvals::parse_answer;

impl Dispatcher {
    /// Handles a message that answers the question of its conversation.
    ///
    /// If a person was asked for a secret, that person's next message is the secret, unless it is a command. Messages
    /// of other people in the same conversation are not answers.
    pub(super) fn take_answer(&mut self, message: Arrival) -> Guarded {
        let Arrival { inbound, text, .. } = &message;
        if self.questions.is_empty() || inbound.relayed || !matches!(message.submission, Submission::Input) {
            return Guarded::Continue(message);
        }
        let Some(waits) = self.question_in(&inbound.session) else { return Guarded::Continue(message) };
        let asked = *inbound.principal.id == *waits.asker.principal
            && Authority::from(inbound.principal.role) == waits.asker.authority;
        if !asked {
            return Guarded::Continue(message);
        }
        if inbound.is_forwarded() {
            let reminder = format!("A forwarded message cannot answer a question. {}", still_needed(waits));
            self.notifier.say(inbound.reply_to.clone(), reminder);
            return Guarded::Continue(message);
        }
        let approval = waits.approval;
        let (reply, word) = match (waits.decidable, parse_answer(text)) {
            (true, Some(decision)) => (LaneReply::Decision(decision), word_of(decision)),
            (true, None) => {
                self.notifier.say(inbound.reply_to.clone(), still_needed(waits));
                return Guarded::Continue(message);
            }
            (false, Some(Decision::Deny)) => (LaneReply::Decision(Decision::Deny), "/deny"),
            (false, _) => (LaneReply::Secret(Secret::new(text.trim().to_owned())), "/secret"),
        };
        let Arrival { inbound, ack, sent, .. } = message;
        let ack = match &sent {
            Some(sent) => self.keys.act_on(reply.acted_on(sent.clone()), ack),
            None => ack,
        };
        self.decide(approval, reply, word.to_owned(), sent, inbound, ack);
        ANSWERED
    }

    /// The question that a conversation waits for. There is at most one.
    fn question_in(&self, session: &SessionKey) -> Option<&PendingQuestion> {
        self.questions.values().find(|waits| waits.session == *session)
    }

    /// Handles `/approve`, `/always` and `/deny`.
    pub(super) fn decide_in_conversation(
        &mut self,
        decision: Decision,
        named: Option<String>,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        if inbound.relayed {
            let reply = "A relayed message cannot decide about an approval: answer it yourself.".to_owned();
            return self.refuse_decision(reply, word, sent, inbound, ack);
        }
        let approval = match named {
            None => self.question_in(&inbound.session).map(|waits| waits.approval),
            Some(named) => match self.question_named(&named, &inbound) {
                Named::One(approval) => Some(approval),
                Named::Several => {
                    let reply = several("questions", &named);
                    return self.refuse_decision(reply, word, sent, inbound, ack);
                }
                Named::Nothing => {
                    let reply = format!(
                        "{named} is not the id of a question. {word} alone answers the question of this \
                                 conversation."
                    );
                    return self.refuse_decision(reply, word, sent, inbound, ack);
                }
            },
        };
        match approval {
            Some(approval) => self.decide(approval, LaneReply::Decision(decision), word, sent, inbound, ack),
            None => self.refuse_decision("Nothing is waiting for approval.".into(), word, sent, inbound, ack),
        }
    }

    /// Refuses a decision without a question, after the store has its key. Otherwise a redelivery could answer a
    /// question asked meanwhile.
    fn refuse_decision(&mut self, reply: String, word: String, sent: Option<Sent>, inbound: Inbound, ack: AckSender) {
        let Some(sent) = sent else { return self.answer(&inbound, ack, &word, Err(reply)) };
        let (services, notifier) = (self.services.clone(), self.notifier.clone());
        self.background(async move {
            keep_refused(&services, sent.into()).await;
            let said = CommandReply { command: word, reply: reply.clone(), resumes: None, refused: true };
            ack.send(Ack::Command(said));
            notifier.say(inbound.reply_to, reply);
        });
    }

    /// Sends an answer to the lane of its run.
    pub(super) fn decide(
        &mut self,
        approval: ApprovalId,
        reply: LaneReply,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        let Inbound { principal, session: from, reply_to, key, .. } = inbound;
        let Some(session) = self.questions.get(&approval).map(|waits| waits.session.clone()) else {
            return self.explain(approval, reply_to, sent.map(|sent| reply.acted_on(sent)), ack);
        };
        let lane = self.lane(&session, SessionLifetime::Lasting);
        let answer = LaneAnswer { approval, reply, who: principal, from, word, reply_to, sent, ack };
        match lane.post(LaneMail::Answer(Box::new(answer))) {
            Ok(()) => lane.commands += 1,
            Err(mail) => {
                let LaneMail::Answer(answer) = mail else { return };
                key.iter().for_each(|key| self.keys.not_acted_on(key));
                let what = "this conversation has too many messages waiting".to_owned();
                answer.ack.send(Ack::Refused(Refusal::Busy { what, retry_after: BUSY_RETRY }));
            }
        }
    }

    /// Reports the state of a question that no longer waits, or never existed.
    fn explain(
        &mut self,
        approval: ApprovalId,
        reply_to: Option<ReplyRoute>,
        acted_on: Option<ActedOn>,
        ack: AckSender,
    ) {
        let (services, notifier, notes) = (self.services.clone(), self.notifier.clone(), self.notes.clone());
        self.background(async move {
            let refusal = match services.store.approvals.approval(approval).await {
                // It waits, but its lane has not reported it yet: the daemon has just started.
                Ok(Some(approval)) if approval.state == ApprovalState::Waiting => Refusal::Busy {
                    what: "the conversation of this question is being opened".into(),
                    retry_after: BUSY_RETRY,
                },
                Ok(Some(approval)) => Refusal::Decided(format!("This question {}.", approval.state.told())),
                Ok(None) => Refusal::Unknown(format!("There is no question {approval}.")),
                Err(error) => Refusal::Store(error.to_string()),
            };
            match (&refusal, acted_on) {
                (_, None) => {}
                // Before the refusal is sent, because the answer is then given again. Fails only when the dispatcher
                // ends.
                (Refusal::Busy { .. } | Refusal::Store(_), Some(ActedOn { key, .. })) => {
                    let _ = notes.send(LaneNote::NotActedOn { key }).await;
                }
                (_, Some(acted_on)) => keep_refused(&services, acted_on).await,
            }
            let text = refusal.to_string();
            ack.send(Ack::Refused(refusal));
            notifier.say(reply_to, text);
        });
    }
}

/// The reminder for a person whose message is not an answer.
fn still_needed(waits: &PendingQuestion) -> String {
    let what = if waits.decidable { "an answer, yes or no, to this" } else { "an answer to this" };
    let question = waits.summary.lines().next().unwrap_or_default();
    format!("Your message is queued: I still need {what}: {question}")
}

/// Stores the key of a finally refused answer, before its sender learns about the refusal.
async fn keep_refused(services: &AgentServices, acted_on: ActedOn) {
    let acted_on = ActedOn { refused: true, ..acted_on };
    if let Err(error) = services.store.dispatcher.note_acted_on(&acted_on, services.clock.now()).await {
        tracing::warn!(%error, "an answer that came again after a restart would not be recognised");
    }
}

/// The command in a text, or the command that an answer stands for. A secret is not repeated.
pub(super) fn word_of_answer(text: &str) -> String {
    match parse_answer(text) {
        _ if text.trim_start().starts_with('/') => word_of_text(text),
        Some(decision) => word_of(decision).to_owned(),
        None => "/secret".to_owned(),
    }
}

fn word_of(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve => "/approve",
        Decision::Always => "/always",
        Decision::Deny => "/deny",
    }
}
