//! Requests about routines: by programs, by commands, and by messages that trigger them. Each is a background task,
//! because it queries the store.

use std::sync::Arc;

use belay_protocol::{
    Ack, AckSender, ActedOn, CommandReply, IdempotencyKey, Inbound, Refusal, ReplyRoute, RoutineRequest, Sent,
};
use tokio::sync::mpsc;

use super::guards::{ANSWERED, Arrival, Guarded};
use super::{Dispatcher, worth_saying};
use crate::agent_services::AgentServices;
use crate::claims::{ALWAYS, Act, claim_or_wait, keep};
use crate::mail::LaneNote;
use crate::notifier::Notifier;
use crate::submission::Submission;
use belay_automation::routines::{self, RoutineCommand, RoutineRequester};

/// The command word in the reply to a message that triggered a routine.
const WORD: &str = "/routine";

impl Dispatcher {
    pub(super) fn routine_request(&mut self, request: RoutineRequest, inbound: &Inbound, ack: AckSender) {
        let (services, by) = (self.services.clone(), RoutineRequester::of(inbound));
        self.background(async move {
            ack.send(match routines::request(&services.routines, request, &by).await {
                Ok(answer) => Ack::Routine(answer),
                Err(refusal) => Ack::Refused(refusal),
            });
        });
    }

    pub(super) fn routine_command(
        &mut self,
        command: RoutineCommand,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        let (services, by, answer) =
            (self.services.clone(), RoutineRequester::of(&inbound), self.answer_of(word, sent, inbound, ack));
        let once = matches!(command, RoutineCommand::Revoke(..));
        self.background(async move {
            answer.carry_out(!once, routines::command(&services.routines, command, &by)).await;
        });
    }

    /// Guard: starts the routines that this message triggers. Such a message gets no other answer.
    pub(super) fn trigger_routines(&mut self, message: Arrival) -> Guarded {
        let Arrival { inbound, text, .. } = &message;
        let words_alone = inbound.outputs.is_empty() && inbound.history.is_empty() && !inbound.is_relayed();
        if !words_alone || inbound.options.text_only || message.submission != Submission::Input {
            return Guarded::Continue(message);
        }
        let waiting = self.services.routines.registry.events().for_message(inbound, text);
        if waiting.is_empty() {
            return Guarded::Continue(message);
        }
        let Arrival { inbound, ack, text, sent, .. } = self.first_command(message)?;
        let (services, by) = (self.services.clone(), RoutineRequester::of(&inbound));
        let answer = self.answer_of(WORD.to_owned(), sent, inbound, ack);
        self.background(async move {
            // A redelivery finds the same routine runs.
            answer.carry_out(true, routines::start(&services.routines, &waiting, &text, &by)).await;
        });
        ANSWERED
    }

    /// Prepares the answer for a background task.
    pub(super) fn answer_of(
        &self,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) -> BackgroundAnswer {
        let (services, notifier, notes) = (self.services.clone(), self.notifier.clone(), self.notes.clone());
        BackgroundAnswer { services, notifier, notes, word, sent, inbound, ack }
    }
}

/// The future answer of a background task.
pub(super) struct BackgroundAnswer {
    services: Arc<AgentServices>,
    notifier: Notifier,
    notes: mpsc::Sender<LaneNote>,
    word: String,
    sent: Option<Sent>,
    inbound: Inbound,
    ack: AckSender,
}

impl BackgroundAnswer {
    /// Claims the key, does the work and sends its answer. `may_repeat`: after the end of a daemon in between, a redelivery
    /// does the work again; otherwise its outcome is unknown.
    pub(super) async fn carry_out(self, may_repeat: bool, work: impl Future<Output = Result<String, Refusal>>) {
        if let Some(sent) = &self.sent {
            let again_since = ALWAYS.filter(|_| may_repeat);
            let act = Act { sent, is_secret: false, word: &self.word, claimed: None, again_since };
            if let Err(instead) = claim_or_wait(&self.services, &act).await {
                return self.pass_over(*instead).await;
            }
        }
        let said = work.await;
        self.give(said).await;
    }

    async fn pass_over(self, instead: Ack) {
        let Self { notifier, notes, sent, inbound, ack, .. } = self;
        if let Some(Sent { key, .. }) = sent {
            pass_over(&notifier, &notes, (key, ack, inbound.reply_to), instead).await;
        }
    }

    /// Sends the answer. If the store failed or the agent shuts down, the request may come again under the same key.
    /// Otherwise its key is stored, so that a redelivery is recognised.
    async fn give(self, said: Result<String, Refusal>) {
        let Self { services, notifier, notes, word, sent, inbound, ack } = self;
        let again = matches!(said, Err(Refusal::Store(_) | Refusal::ShuttingDown));
        match sent {
            // Fails only when the agent has ended.
            Some(Sent { key, .. }) if again => drop(notes.send(LaneNote::NotActedOn { key }).await),
            Some(sent) => keep(&services, ActedOn::from(sent)).await,
            None => {}
        }
        match said {
            Err(refusal) if again => ack.send(Ack::Refused(refusal)),
            said => {
                let refused = said.is_err();
                let reply = said.unwrap_or_else(|refusal| refusal.to_string());
                ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone(), resumes: None, refused }));
                notifier.say(inbound.reply_to, reply);
            }
        }
    }
}

/// Sends this acknowledgement instead of acting: the key belongs to an earlier delivery, or may be tried again.
pub(super) async fn pass_over(
    notifier: &Notifier,
    notes: &mpsc::Sender<LaneNote>,
    (key, ack, reply_to): (IdempotencyKey, AckSender, Option<ReplyRoute>),
    instead: Ack,
) {
    // Fails only when the agent has ended.
    let _ = notes.send(LaneNote::NotActedOn { key }).await;
    if let Ack::Refused(refusal) = &instead
        && worth_saying(refusal)
    {
        notifier.say(reply_to, refusal.to_string());
    }
    ack.send(instead);
}
