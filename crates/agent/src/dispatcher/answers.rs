//! Answers to approval requests: a bare yes or no, a command, a program's decision, or a secret. They go to the lane of
//! the paused run. If no lane knows the question, it is looked up in the store, so that a late answer gets the correct
//! reply.

use std::sync::Arc;

use belay_protocol::{
    Ack, AckSender, ActedOn, ApprovalId, ApprovalState, Authority, ChannelId, CommandReply, Decision, Inbound,
    Principal, Refusal, RunId, Secret, Sent, SessionKey, SessionLifetime,
};

use tokio::sync::mpsc;

use super::Dispatcher;
use super::guards::{ANSWERED, Arrival, Guarded};
use super::named::{Named, several};
use crate::agent_services::AgentServices;
use crate::answering::{Stored, may_answer, store_answer};
use crate::lane::used_before;
use crate::mail::{LaneAnswer, LaneMail, LaneNote, LaneReply, PendingQuestion};
use crate::queue::BUSY_RETRY;
use crate::submission::{Submission, word_of as word_of_text};
use belay_run::approvals::parse_answer;
use belay_run::live::LiveRun;
use belay_run::retry::until_stored;

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
        let decision = parse_answer(text);
        let work = decision.and_then(|_| self.work_question_in(inbound));
        let Some(waits) = self.question_in(&inbound.session) else {
            return match (work, decision) {
                (Some(work), Some(decision)) => self.take_plain_answer(work, decision, message),
                _ => {
                    let holds = |waits: &PendingQuestion| waits.of_second && !waits.in_place;
                    if self.questions.values().any(|waits| holds(waits) && waits.session == inbound.session) {
                        self.notifier.notify(inbound.reply_to.clone(), SECOND_WAITS.to_owned());
                    }
                    Guarded::Continue(message)
                }
            };
        };
        let asked = *inbound.principal.id == *waits.asker.principal
            && Authority::from(inbound.principal.role) == waits.asker.authority;
        if !asked {
            return Guarded::Continue(message);
        }
        if inbound.is_forwarded() {
            let reminder = format!("A forwarded message cannot answer a question. {}", still_needed(waits));
            self.notifier.notify(inbound.reply_to.clone(), reminder);
            return Guarded::Continue(message);
        }
        let approval = waits.approval;
        if work.is_some() && waits.decidable {
            let reply = format!("{MORE_THAN_ONE} This conversation: /approve {approval} or /deny {approval}.");
            let Arrival { inbound, ack, sent, .. } = message;
            self.refuse_decision(reply, "/approve".to_owned(), sent, inbound, ack);
            return ANSWERED;
        }
        let has_files = inbound.provenance.as_ref().is_some_and(|facts| facts.has_files());
        if !waits.decidable && has_files && decision != Some(Decision::Deny) {
            // A file is no secret, and its words are those of Belay or of a transcript.
            self.notifier.notify(inbound.reply_to.clone(), still_needed(waits));
            return Guarded::Continue(message);
        }
        let (reply, word) = match (waits.decidable, decision) {
            (true, Some(decision)) => (LaneReply::Decision(decision), word_of(decision)),
            (true, None) => {
                self.notifier.notify(inbound.reply_to.clone(), still_needed(waits));
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
        self.questions.values().find(|waits| !waits.of_work && waits.session == *session)
    }

    /// The questions that autonomous work asks the sender in this conversation.
    fn work_question_in(&self, inbound: &Inbound) -> Option<WorkQuestion> {
        let authority = Authority::from(inbound.principal.role);
        let asked = |waits: &&PendingQuestion| {
            waits.of_work
                && waits.asked_in == inbound.session
                && *waits.asker.principal == *inbound.principal.id
                && waits.asker.authority == authority
        };
        let mut asked = self.questions.values().filter(asked).map(|waits| waits.approval);
        let first = asked.next()?;
        Some(if asked.next().is_some() { WorkQuestion::Several } else { WorkQuestion::One(first) })
    }

    /// Handles a plain yes or no while autonomous work waits for an answer in this conversation. It is the answer only
    /// if the question is the newest message of the conversation, no other run of the conversation works, and no other
    /// question waits. Otherwise the message goes to the model, and the person learns how to answer.
    fn take_plain_answer(&mut self, work: WorkQuestion, decision: Decision, message: Arrival) -> Guarded {
        let inbound = &message.inbound;
        let waits_here = |approval| self.questions.get(&approval).filter(|waits| waits.in_place).map(|waits| waits.run);
        let waiting = match work {
            WorkQuestion::One(approval) => waits_here(approval),
            WorkQuestion::Several => None,
        };
        // The run of a turn may work on while a run that it has started asks.
        let is_quiet =
            self.lanes.get(&inbound.session).is_none_or(|lane| lane.runs.iter().all(|run| Some(run.id) == waiting));
        match work {
            WorkQuestion::One(approval)
                if is_quiet && !inbound.is_forwarded() && self.services.work_questions.is_newest(approval) =>
            {
                let reply = LaneReply::Decision(decision);
                let Arrival { inbound, ack, sent, .. } = message;
                let ack = match &sent {
                    Some(sent) => self.keys.act_on(reply.acted_on(sent.clone()), ack),
                    None => ack,
                };
                self.decide(approval, reply, word_of(decision).to_owned(), sent, inbound, ack);
                ANSWERED
            }
            WorkQuestion::One(approval) => {
                let reminder = format!(
                    "A question waits for an answer too. Your message did not answer it: /approve {approval} or /deny {approval} does."
                );
                self.notifier.notify(inbound.reply_to.clone(), reminder);
                Guarded::Continue(message)
            }
            WorkQuestion::Several => {
                let reminder = "Several questions wait for an answer. Your message answered none of them: use /approve ID or \
                                /deny ID with the id of the question.";
                self.notifier.notify(inbound.reply_to.clone(), reminder.to_owned());
                Guarded::Continue(message)
            }
        }
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
            None => {
                match (self.question_in(&inbound.session).map(|waits| waits.approval), self.work_question_in(&inbound))
                {
                    (asked, None) => asked,
                    (None, Some(WorkQuestion::One(approval))) => Some(approval),
                    (Some(_), Some(_)) | (None, Some(WorkQuestion::Several)) => {
                        return self.refuse_decision(MORE_THAN_ONE.to_owned(), word, sent, inbound, ack);
                    }
                }
            }
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
        let Inbound { principal, session: from, channel: through, reply_to, key, .. } = inbound;
        let answer = LaneAnswer { approval, reply, who: principal, from, through, word, reply_to, sent, ack };
        let paused = self.questions.get(&approval).filter(|waits| !waits.in_place);
        let Some(session) = paused.map(|waits| waits.session.clone()) else { return self.answer_in_store(answer) };
        let lane = self.lane(&session, SessionLifetime::Lasting);
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

    /// Answers a question that no lane waits for: a run that another run has started asks, and the store takes the answer.
    /// Otherwise reports the state of the question, which no longer waits or never existed.
    fn answer_in_store(&mut self, answer: LaneAnswer) {
        let (services, notifier, notes) = (self.services.clone(), self.notifier.clone(), self.notes.clone());
        self.background(async move {
            let LaneAnswer { approval, reply, who, from, through, word, reply_to, sent, ack } = answer;
            if let Some(instead) = used_before(&services, sent.as_ref()).await {
                if let Some(Sent { key, .. }) = sent {
                    let _ = notes.send(LaneNote::NotActedOn { key }).await; // fails only when the dispatcher ends
                }
                ack.send(instead);
                return;
            }
            let acted_on = sent.map(|sent| reply.acted_on(sent));
            let refusal = match decide_in_place(&services, &notes, approval, reply, (&who, &through), &from).await {
                Ok((resumes, text)) => {
                    if resumes.is_some() {
                        // Also if no run waits for it, as after a restart. Fails only when the dispatcher ends.
                        let _ = notes.send(LaneNote::Unasked { approval, withdraw: false }).await;
                    }
                    if let Some(acted_on) = acted_on {
                        keep(&services, acted_on).await;
                    }
                    let said = CommandReply { command: word, reply: text.clone(), resumes, refused: false };
                    ack.send(Ack::Command(said));
                    notifier.say(reply_to, text);
                    return services.asker.answered(approval);
                }
                Err(refusal) => refusal,
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

    /// Forgets a question that no run waits for in its place any more. `withdraw`: nobody has answered it, and its run
    /// tree goes on.
    pub(super) fn unasked(&mut self, approval: ApprovalId, withdraw: bool) {
        self.services.work_questions.ended(approval);
        self.questions.remove(&approval);
        if withdraw {
            let services = self.services.clone();
            self.background(async move {
                let questions = &services.store.child_questions;
                let withdrawn =
                    until_stored(&services.draining, || questions.withdraw(approval, services.clock.now())).await;
                if withdrawn == Some(true) {
                    tracing::info!(%approval, "a question is withdrawn: its call has ended");
                }
            });
        }
    }

    /// The runs that do nothing but wait in their place for a person, or whose parts do.
    pub(super) fn waiting_in_place(&self) -> Vec<Arc<LiveRun>> {
        let mut runs: Vec<RunId> =
            self.questions.values().filter(|waits| waits.in_place).map(|waits| waits.run).collect();
        runs.sort_unstable();
        runs.dedup();
        runs.into_iter().filter_map(|run| self.find(run)).collect()
    }
}

/// Stores the answer to a question of a run that another run has started. Returns the run tree if the call is decided,
/// and the text for the sender.
async fn decide_in_place(
    services: &AgentServices,
    notes: &mpsc::Sender<LaneNote>,
    approval: ApprovalId,
    reply: LaneReply,
    who: (&Principal, &ChannelId),
    from: &SessionKey,
) -> Result<(Option<RunId>, String), Refusal> {
    let asked = services.store.approvals.approval(approval).await;
    let Some(asked) = asked.map_err(|error| Refusal::Store(error.to_string()))? else {
        return Err(Refusal::Unknown(format!("There is no question {approval}.")));
    };
    match asked.state_at(services.clock.now()) {
        ApprovalState::Waiting if !asked.is_in_place() => Err(Refusal::Busy {
            // It waits, but its lane has not reported it yet: the daemon has just started.
            what: "the conversation of this question is being opened".into(),
            retry_after: BUSY_RETRY,
        }),
        ApprovalState::Waiting => {
            may_answer(services, &asked, &reply, who, from)?;
            Ok(match store_answer(services, notes, &asked, reply, who).await? {
                Stored::Decided(text) => (Some(asked.run_id), text),
                Stored::FirstYes(_, text) => (None, text),
            })
        }
        state => Err(Refusal::Decided(format!("This question {}.", state.told()))),
    }
}

/// The questions of autonomous work for one person in one conversation.
#[derive(Clone, Copy)]
enum WorkQuestion {
    One(ApprovalId),
    Several,
}

/// The reminder while a second person is asked.
const SECOND_WAITS: &str = "Your message is queued: a call of this conversation still waits for the approval of a second person. /stop ends it.";

/// The reply to an answer that could mean several questions.
const MORE_THAN_ONE: &str =
    "More than one question waits here, so an answer needs the id of its question: /approve ID or /deny ID.";

/// The reminder for a person whose message is not an answer.
fn still_needed(waits: &PendingQuestion) -> String {
    let what = if waits.decidable { "an answer, yes or no, to this" } else { "an answer to this" };
    let question = waits.summary.lines().next().unwrap_or_default();
    format!("Your message is queued: I still need {what}: {question}")
}

/// Stores the key of a finally refused answer, before its sender learns about the refusal.
async fn keep_refused(services: &AgentServices, acted_on: ActedOn) {
    keep(services, ActedOn { refused: true, ..acted_on }).await;
}

/// Stores the key of an answer, before its sender learns the result.
async fn keep(services: &AgentServices, acted_on: ActedOn) {
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
