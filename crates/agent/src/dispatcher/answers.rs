//! Answers to approval requests: a bare yes or no, a command, a program's decision, or a secret. They go to the lane of
//! the paused run. If no lane knows the question, it is looked up in the store, so that a late answer gets the correct
//! reply.

use std::sync::Arc;

use belay_protocol::{
    Ack, AckSender, ActedOn, ApprovalId, ApprovalRequest, ApprovalState, Authority, ChannelId, CommandReply, Decision,
    Inbound, Principal, Refusal, ReplyRoute, RunId, Secret, Sent, SessionKey, SessionLifetime, StoreError,
};

use serde_json::Value;
use tokio::sync::mpsc;

use super::Dispatcher;
use super::guards::{ANSWERED, Arrival, Guarded};
use super::named::{IdPart, Named, several};
use super::questions::{Ambiguous, Asked, WorkQuestion, asked_anywhere, named_anywhere};
use super::routines::pass_over;
use crate::agent_services::AgentServices;
use crate::answering::{Stored, may_answer, store_answer};
use crate::claims::{Act, claim_or_wait, keep, word_of};
use crate::mail::{LaneAnswer, LaneMail, LaneNote, LaneReply, PendingQuestion};
use crate::notifier::Notifier;
use crate::queue::BUSY_RETRY;
use crate::submission::Submission;
use belay_run::approvals::shown_line;
use belay_run::live::LiveRun;
use belay_run::retry::until_stored;

impl Dispatcher {
    /// Guard: handles a message that answers a question. In a cluster, a plain yes or no may answer the question of another
    /// node.
    pub(super) fn take_answer(&mut self, message: Arrival) -> Guarded {
        match is_plain(&message) && self.services.cluster.is_some() {
            true => self.look_up_questions(message),
            false => self.answer_question(message, None),
        }
    }

    /// Guard: handles a message from another node that answers a question of this node. That node has handled a plain yes or
    /// no already.
    pub(super) fn take_secret(&mut self, message: Arrival) -> Guarded {
        match is_plain(&message) {
            true => Guarded::Continue(message),
            false => self.answer_question(message, None),
        }
    }

    /// Handles a message that answers a question. `asked`: the questions of all nodes; `None`: only those of this node
    /// count.
    ///
    /// If a person was asked for a secret, that person's next message is the secret, unless it is a command. Messages
    /// of other people in the same conversation are not answers.
    pub(super) fn answer_question(&mut self, message: Arrival, asked: Option<Asked>) -> Guarded {
        let Arrival { inbound, text, .. } = &message;
        if !may_be_answer(&message) || (asked.is_none() && self.questions.is_empty()) {
            return Guarded::Continue(message);
        }
        let asked = asked.unwrap_or_else(|| self.asked_here(inbound));
        let decision = Decision::from_words(text);
        let Some(waits) = asked.of_conversation else {
            return match (asked.of_work, decision) {
                (Some(WorkQuestion::One(question)), decision) if takes_text(&question, decision) => {
                    self.take_form(&question, asked.is_next, message)
                }
                (Some(WorkQuestion::Several(all)), None) if !inbound.is_relayed() && forms(&all).count() > 1 => {
                    let reply = several_forms(&all);
                    let Arrival { inbound, ack, sent, .. } = message;
                    self.refuse_decision(reply, "/form".to_owned(), sent, inbound, ack);
                    ANSWERED
                }
                (Some(work), Some(decision)) => self.take_plain_answer(work, asked.is_next, decision, message),
                _ => {
                    if asked.waits_for_second {
                        self.notifier.notify(inbound.reply_to.clone(), SECOND_WAITS.to_owned());
                    }
                    Guarded::Continue(message)
                }
            };
        };
        let work = asked.of_work.filter(|_| decision.is_some());
        let waits = &waits;
        let asked = *inbound.principal.id == *waits.asker.principal
            && Authority::from(inbound.principal.role) == waits.asker.authority;
        if !asked {
            return Guarded::Continue(message);
        }
        if inbound.is_relayed() {
            let reminder = format!("A text that somebody else wrote cannot answer a question. {}", still_needed(waits));
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

    /// Handles a plain yes or no while autonomous work waits for an answer in this conversation. It is the answer only
    /// if the question is the newest message of the conversation, no other run of the conversation works, and no other
    /// question waits. Otherwise the message goes to the model, and the person learns how to answer.
    fn take_plain_answer(
        &mut self,
        work: WorkQuestion,
        is_next: bool,
        decision: Decision,
        message: Arrival,
    ) -> Guarded {
        let inbound = &message.inbound;
        match work {
            WorkQuestion::One(PendingQuestion { approval, .. }) if is_next && !inbound.is_relayed() => {
                let reply = LaneReply::Decision(decision);
                let Arrival { inbound, ack, sent, .. } = message;
                let ack = match &sent {
                    Some(sent) => self.keys.act_on(reply.acted_on(sent.clone()), ack),
                    None => ack,
                };
                self.decide(approval, reply, word_of(decision).to_owned(), sent, inbound, ack);
                ANSWERED
            }
            WorkQuestion::One(PendingQuestion { approval, .. }) => {
                let reminder = format!(
                    "A question waits for an answer too. Your message did not answer it: /approve {approval} or /deny {approval} does."
                );
                self.notifier.notify(inbound.reply_to.clone(), reminder);
                Guarded::Continue(message)
            }
            WorkQuestion::Several(_) => {
                let reminder = "Several questions wait for an answer. Your message answered none of them: use /approve ID or \
                                /deny ID with the id of the question.";
                self.notifier.notify(inbound.reply_to.clone(), reminder.to_owned());
                Guarded::Continue(message)
            }
        }
    }

    /// Handles a text while an MCP server waits for a form to be filled in. It is the answer under the same conditions as a
    /// plain yes. Otherwise the message goes to the model, and the person learns how to refuse.
    fn take_form(&mut self, question: &PendingQuestion, is_next: bool, message: Arrival) -> Guarded {
        let (approval, inbound) = (question.approval, &message.inbound);
        let has_files = inbound.provenance.as_ref().is_some_and(|facts| facts.has_files());
        if !is_next || inbound.is_relayed() || has_files {
            let reminder = format!(
                "A form of an MCP server waits for an answer too, and your message was not taken for it. /deny {approval} \
                 gives the server nothing."
            );
            self.notifier.notify(inbound.reply_to.clone(), reminder);
            return Guarded::Continue(message);
        }
        let reply = LaneReply::Form(Value::from(message.text.clone()));
        let Arrival { inbound, ack, sent, .. } = message;
        let ack = match &sent {
            Some(sent) => self.keys.act_on(reply.acted_on(sent.clone()), ack),
            None => ack,
        };
        self.decide(approval, reply, "/form".to_owned(), sent, inbound, ack);
        ANSWERED
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
        let approval = match named {
            None if self.services.cluster.is_some() => {
                return self.decide_anywhere(decision, None, word, sent, inbound, ack);
            }
            None => match self.asked_here(&inbound).meant() {
                Ok(question) => question.map(|question| question.approval),
                Err(Ambiguous) => return self.refuse_decision(MORE_THAN_ONE.to_owned(), word, sent, inbound, ack),
            },
            Some(named) => match self.question_named(&named, &inbound) {
                Named::One(approval) => Some(approval),
                Named::Several => {
                    let reply = several("questions", &named);
                    return self.refuse_decision(reply, word, sent, inbound, ack);
                }
                // Another node may ask it, or it may be over.
                Named::Nothing if IdPart::parse(&named).is_some() => {
                    return self.decide_anywhere(decision, Some(named), word, sent, inbound, ack);
                }
                Named::Nothing => return self.refuse_decision(no_question(&named, &word), word, sent, inbound, ack),
            },
        };
        match approval {
            Some(approval) => self.decide(approval, LaneReply::Decision(decision), word, sent, inbound, ack),
            None => self.refuse_decision(NOTHING_WAITS.into(), word, sent, inbound, ack),
        }
    }

    /// Answers the question of a conversation, which any node may ask: the store knows the question. `named`: a part of
    /// its id.
    fn decide_anywhere(
        &mut self,
        decision: Decision,
        named: Option<String>,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        let replying = self.replying();
        self.background(async move {
            let services = &replying.services;
            let meant = match &named {
                None => asked_anywhere(services, &inbound).await.map(|asked| {
                    let meant = asked.meant().map_err(|Ambiguous| MORE_THAN_ONE.to_owned())?;
                    meant.map(|question| question.approval).ok_or_else(|| NOTHING_WAITS.to_owned())
                }),
                Some(named) => named_anywhere(services, named, &inbound).await.map(|meant| match meant {
                    Named::One(approval) => Ok(approval),
                    Named::Several => Err(several("questions", named)),
                    Named::Nothing => Err(no_question(named, &word)),
                }),
            };
            let refusal = match meant {
                Ok(Ok(approval)) => {
                    let Inbound { principal: who, session: from, channel: through, reply_to, .. } = inbound;
                    let (reply, claimed, forwarded) = (LaneReply::Decision(decision), None, None);
                    let answer = LaneAnswer {
                        approval,
                        reply,
                        who,
                        from,
                        through,
                        word,
                        reply_to,
                        sent,
                        claimed,
                        forwarded,
                        ack,
                    };
                    return replying.answer(answer).await;
                }
                Ok(Err(refusal)) => refusal,
                Err(error) => format!("The questions of this conversation cannot be read: {error}"),
            };
            replying.refuse(refusal, word, sent, inbound.reply_to, ack).await;
        });
    }

    /// Refuses a decision without a question, after the store has its key. Otherwise a redelivery could answer a
    /// question asked meanwhile.
    fn refuse_decision(&mut self, reply: String, word: String, sent: Option<Sent>, inbound: Inbound, ack: AckSender) {
        if sent.is_none() {
            return self.answer(&inbound, ack, &word, Err(reply));
        }
        let replying = self.replying();
        self.background(async move { replying.refuse(reply, word, sent, inbound.reply_to, ack).await });
    }

    fn replying(&self) -> Replying {
        let (services, notifier, notes) = (self.services.clone(), self.notifier.clone(), self.notes.clone());
        Replying { services, notifier, notes }
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
        let Inbound { principal, session: from, channel: through, reply_to, .. } = inbound;
        let answer = LaneAnswer {
            approval,
            reply,
            who: principal,
            from,
            through,
            word,
            reply_to,
            sent,
            claimed: None,
            forwarded: None,
            ack,
        };
        let paused = self.questions.get(&approval).filter(|waits| !waits.in_place);
        let Some(session) = paused.map(|waits| waits.session.clone()) else {
            let replying = self.replying();
            return self.background(async move { replying.answer(answer).await });
        };
        self.post_answer(&session, Box::new(answer));
    }

    /// Puts an answer into the lane of its run.
    pub(super) fn post_answer(&mut self, session: &SessionKey, answer: Box<LaneAnswer>) {
        let key = answer.sent.as_ref().map(|sent| sent.key.clone());
        let lane = self.lane(session, SessionLifetime::Lasting);
        match lane.post(LaneMail::Answer(answer)) {
            Ok(()) => lane.commands += 1,
            Err(mail) => {
                let LaneMail::Answer(answer) = mail else { return };
                key.iter().for_each(|key| self.keys.not_acted_on(key));
                let what = "this conversation has too many messages waiting".to_owned();
                answer.ack.send(Ack::Refused(Refusal::Busy { what, retry_after: BUSY_RETRY }));
            }
        }
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

/// Whether a message may be an answer. A command is none. A relayed text is none either, but its sender learns why.
fn may_be_answer(message: &Arrival) -> bool {
    matches!(message.submission, Submission::Input)
}

/// Whether a text fills in the form of this question. A plain no refuses, unless it is a value.
fn takes_text(question: &PendingQuestion, decision: Option<Decision>) -> bool {
    question.form.as_ref().is_some_and(|form| decision != Some(Decision::Deny) || form.takes_no())
}

/// The questions among these that a text fills in.
fn forms(questions: &[PendingQuestion]) -> impl Iterator<Item = &PendingQuestion> {
    questions.iter().filter(|question| question.form.is_some())
}

/// The reply to a text that could fill in several forms: each of them, and how it is answered.
fn several_forms(questions: &[PendingQuestion]) -> String {
    let mut open: Vec<_> = forms(questions).collect();
    open.sort_unstable_by_key(|question| question.approval);
    let line = |question: &PendingQuestion| {
        let (approval, summary) = (question.approval, question.summary.lines().next().unwrap_or_default());
        format!(
            "- {}: `belay approvals approve {approval} --set FIELD=VALUE` fills it in, /deny {approval} gives its server \
             nothing.",
            shown_line(summary)
        )
    };
    let lines: Vec<_> = open.into_iter().map(line).collect();
    format!(
        "Several forms of MCP servers wait, so your message was taken for none of them, and the model does not get it. A \
         message fills in a form when no other question waits.\n{}",
        lines.join("\n")
    )
}

/// Whether a message is a plain yes or no.
fn is_plain(message: &Arrival) -> bool {
    may_be_answer(message) && Decision::from_words(&message.text).is_some()
}

/// Answers in a background task.
struct Replying {
    services: Arc<AgentServices>,
    notifier: Notifier,
    notes: mpsc::Sender<LaneNote>,
}

impl Replying {
    /// Answers a question that no lane here waits for. A paused run waits for it in the lane of another node, or a run that
    /// another run has started asks, and the store takes the answer. Otherwise reports the state of the question, which no
    /// longer waits or never existed.
    async fn answer(self, answer: LaneAnswer) {
        let Self { services, notifier, notes } = &self;
        let asked = services.store.approvals.approval(answer.approval).await;
        if let Ok(Some(asked)) = &asked
            && services.cluster.is_some()
            && asked.state_at(services.clock.now()) == ApprovalState::Waiting
            && !asked.is_in_place()
        {
            let (session, answer) = (asked.session.clone(), Box::new(answer));
            // Fails only when the dispatcher ends.
            let _ = notes.send(LaneNote::Answer { session, answer }).await;
            return;
        }
        let LaneAnswer { approval, reply, who, from, through, word, reply_to, sent, claimed, forwarded: _, ack } =
            answer;
        if let Some(sent) = &sent {
            let is_secret = matches!(reply, LaneReply::Secret(_));
            // The question is decided once, and an earlier delivery that came after it was for the same question.
            let again_since = asked.as_ref().ok().and_then(|asked| asked.as_ref().map(|asked| asked.asked_at));
            let act = Act { sent, is_secret, word: &word, claimed, again_since };
            if let Err(instead) = claim_or_wait(services, &act).await {
                return pass_over(notifier, notes, (sent.key.clone(), ack, reply_to), *instead).await;
            }
        }
        let acted_on = sent.map(|sent| reply.acted_on(sent));
        let refusal = match decide_in_place(services, notes, (approval, asked), reply, (&who, &through), &from).await {
            Ok((resumes, text)) => {
                if resumes.is_some() {
                    // Also if no run waits for it, as after a restart. Fails only when the dispatcher ends.
                    let _ = notes.send(LaneNote::Unasked { approval, withdraw: false }).await;
                }
                if let Some(acted_on) = acted_on {
                    keep(services, acted_on).await;
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
            // Before the refusal is sent, because the answer is then given again. Fails only when the dispatcher ends.
            (Refusal::Busy { .. } | Refusal::Store(_), Some(ActedOn { key, .. })) => {
                let _ = notes.send(LaneNote::NotActedOn { key }).await;
            }
            (_, Some(acted_on)) => keep_refused(services, acted_on).await,
        }
        if let (Refusal::Invalid(_), Some(route)) = (&refusal, &reply_to) {
            services.work_questions.refuses(approval, route);
        }
        let text = refusal.to_string();
        ack.send(Ack::Refused(refusal));
        notifier.say(reply_to, text);
    }

    /// Refuses an answer for good, after the store has its key.
    async fn refuse(
        self,
        reply: String,
        word: String,
        sent: Option<Sent>,
        reply_to: Option<ReplyRoute>,
        ack: AckSender,
    ) {
        let Self { services, notifier, notes } = &self;
        if let Some(sent) = sent {
            let act = Act { sent: &sent, is_secret: false, word: &word, claimed: None, again_since: None };
            if let Err(instead) = claim_or_wait(services, &act).await {
                return pass_over(notifier, notes, (sent.key, ack, reply_to), *instead).await;
            }
            keep_refused(services, sent.into()).await;
        }
        ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone(), resumes: None, refused: true }));
        notifier.say(reply_to, reply);
    }
}

/// Stores the answer to a question of a run that another run has started. Returns the run tree if the call is decided,
/// and the text for the sender.
async fn decide_in_place(
    services: &AgentServices,
    notes: &mpsc::Sender<LaneNote>,
    (approval, asked): (ApprovalId, Result<Option<ApprovalRequest>, StoreError>),
    reply: LaneReply,
    who: (&Principal, &ChannelId),
    from: &SessionKey,
) -> Result<(Option<RunId>, String), Refusal> {
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

/// The reminder while a second person is asked.
const SECOND_WAITS: &str = "Your message is queued: a call of this conversation still waits for the approval of a second person. /stop ends it.";

/// The reply to a decision without a question.
const NOTHING_WAITS: &str = "Nothing is waiting for approval.";

/// The refusal of a name that no waiting question has.
fn no_question(named: &str, word: &str) -> String {
    format!("{named} is not the id of a question. {word} alone answers the question of this conversation.")
}

/// The reply to an answer that could mean several questions.
const MORE_THAN_ONE: &str =
    "More than one question waits here, so an answer needs the id of its question: /approve ID or /deny ID.";

/// The reminder for a person whose message is not an answer.
fn still_needed(waits: &PendingQuestion) -> String {
    let what = if waits.decidable { "an answer, yes or no, to this" } else { "an answer to this" };
    let question = shown_line(waits.summary.lines().next().unwrap_or_default());
    format!("Your message is queued: I still need {what}: {question}")
}

/// Stores the key of a finally refused answer, before its sender learns about the refusal.
async fn keep_refused(services: &AgentServices, acted_on: ActedOn) {
    keep(services, ActedOn { refused: true, ..acted_on }).await;
}
