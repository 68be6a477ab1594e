//! What is asked of routines: by programs, by commands, and by messages that set them off. Each is an errand, since the store is
//! asked.

use belay_protocol::{Ack, AckSender, CommandReply, Inbound, RoutineRequest};

use super::{Dispatcher, worth_saying};
use crate::mail::LaneNote;
use crate::routines::{self, By, RoutineCommand};

/// The word that stands for a message which has set a routine off.
const WORD: &str = "/routine";

impl Dispatcher {
    pub(super) fn routine_request(&mut self, request: RoutineRequest, inbound: &Inbound, ack: AckSender) {
        let (house, by) = (self.house.clone(), By::of(inbound));
        self.errand(async move {
            ack.send(match routines::request(&house, request, &by).await {
                Ok(answer) => Ack::Routine(answer),
                Err(refusal) => Ack::Refused(refusal),
            });
        });
    }

    pub(super) fn routine_command(&mut self, command: RoutineCommand, word: String, inbound: Inbound, ack: AckSender) {
        let (house, speaker, by) = (self.house.clone(), self.speaker.clone(), By::of(&inbound));
        self.errand(async move {
            let reply = routines::command(&house, command, &by).await;
            ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone(), resumes: None }));
            speaker.say(inbound.reply_to, reply);
        });
    }

    /// Whether a message sets routines off instead of being answered, or has done so before.
    pub(super) fn sets_off(&self, text: &str, inbound: &Inbound) -> bool {
        let before = inbound.key.as_ref().is_some_and(|key| self.command_keys.contains(key));
        let words_alone = inbound.outputs.is_empty() && inbound.history.is_empty();
        before || (words_alone && !self.house.routines.events().for_message(inbound, text).is_empty())
    }

    /// Sets off the routines that wait for a message, which is not answered otherwise.
    pub(super) fn set_off(&mut self, text: String, inbound: Inbound, ack: AckSender) {
        if self.was_acted_on(&inbound) {
            let reply = "This was delivered before, and acted on.".to_owned();
            return ack.send(Ack::Command(CommandReply { command: WORD.into(), reply, resumes: None }));
        }
        let names = self.house.routines.events().for_message(&inbound, &text);
        let (house, speaker, notes, by) =
            (self.house.clone(), self.speaker.clone(), self.notes.clone(), By::of(&inbound));
        let key = inbound.key.clone();
        self.errand(async move {
            match routines::start(&house, &names, &text, &by).await {
                Ok(reply) => {
                    // The claims know the message too: where this fails, a second delivery fires nothing all the same.
                    if let Some(key) = &key
                        && let Err(error) = house.store.threads.note_acted_on(key, house.clock.now()).await
                    {
                        tracing::warn!(%error, "a message that set a routine off would not be recognised after a restart");
                    }
                    ack.send(Ack::Command(CommandReply { command: WORD.into(), reply: reply.clone(), resumes: None }));
                    speaker.say(inbound.reply_to, reply);
                }
                Err(refusal) => {
                    if let Some(key) = key {
                        // The agent has ended where nobody takes it.
                        let _ = notes.send(LaneNote::NotActedOn { key }).await;
                    }
                    if worth_saying(&refusal) {
                        speaker.say(inbound.reply_to, refusal.to_string());
                    }
                    ack.send(Ack::Refused(refusal));
                }
            }
        });
    }
}
