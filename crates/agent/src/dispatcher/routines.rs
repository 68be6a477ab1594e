//! What is asked of routines: by programs, by commands, and by messages that set them off. Each is an errand, since the store is
//! asked.

use std::sync::Arc;

use belay_protocol::{Ack, AckSender, ActedOn, CommandReply, Inbound, Refusal, RoutineRequest, Sent};
use tokio::sync::mpsc;

use super::Dispatcher;
use crate::agent_services::AgentServices;
use crate::mail::LaneNote;
use crate::speaker::Speaker;
use belay_automation::routines::{self, By, RoutineCommand, Waiting};

/// The word that stands for a message which has set a routine off.
const WORD: &str = "/routine";

impl Dispatcher {
    pub(super) fn routine_request(&mut self, request: RoutineRequest, inbound: &Inbound, ack: AckSender) {
        let (services, by) = (self.services.clone(), By::of(inbound));
        self.errand(async move {
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
            (self.services.clone(), By::of(&inbound), self.answer_of(word, sent, inbound, ack));
        self.errand(async move {
            let said = routines::command(&services.routines, command, &by).await;
            answer.give(said).await;
        });
    }

    /// The routines that a message sets off instead of being answered.
    pub(super) fn waiting_for(&self, text: &str, inbound: &Inbound) -> Vec<Waiting> {
        let words_alone = inbound.outputs.is_empty() && inbound.history.is_empty();
        if words_alone { self.services.routines.board.events().for_message(inbound, text) } else { Vec::new() }
    }

    /// Sets off the routines that wait for a message, which is not answered otherwise.
    pub(super) fn set_off(
        &mut self,
        waiting: Vec<Waiting>,
        text: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) {
        let (services, by) = (self.services.clone(), By::of(&inbound));
        let answer = self.answer_of(WORD.to_owned(), sent, inbound, ack);
        self.errand(async move {
            let said = routines::start(&services.routines, &waiting, &text, &by).await;
            answer.give(said).await;
        });
    }

    /// Who gives the answer to what an errand does.
    pub(super) fn answer_of(&self, word: String, sent: Option<Sent>, inbound: Inbound, ack: AckSender) -> Answer {
        let (services, speaker, notes) = (self.services.clone(), self.speaker.clone(), self.notes.clone());
        Answer { services, speaker, notes, word, sent, inbound, ack }
    }
}

/// The answer to what an errand does, on its way.
pub(super) struct Answer {
    services: Arc<AgentServices>,
    speaker: Speaker,
    notes: mpsc::Sender<LaneNote>,
    word: String,
    sent: Option<Sent>,
    inbound: Inbound,
    ack: AckSender,
}

impl Answer {
    /// Gives the answer. What could not be stored may come again; everything else is recognised then.
    pub(super) async fn give(self, said: Result<String, Refusal>) {
        let Self { services, speaker, notes, word, sent, inbound, ack } = self;
        let again = matches!(said, Err(Refusal::Store(_) | Refusal::ShuttingDown));
        match sent {
            // The agent has ended where nobody takes it.
            Some(Sent { key, .. }) if again => drop(notes.send(LaneNote::NotActedOn { key }).await),
            Some(sent) => {
                let (acted_on, at) = (ActedOn::from(sent), services.clock.now());
                if let Err(error) = services.store.threads.note_acted_on(&acted_on, at).await {
                    tracing::warn!(%error, "what was done about routines would not be recognised after a restart");
                }
            }
            None => {}
        }
        match said {
            Err(refusal) if again => ack.send(Ack::Refused(refusal)),
            said => {
                let refused = said.is_err();
                let reply = said.unwrap_or_else(|refusal| refusal.to_string());
                ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone(), resumes: None, refused }));
                speaker.say(inbound.reply_to, reply);
            }
        }
    }
}
