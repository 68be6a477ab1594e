//! Look-ups in the store before a message is handled. Only a node of a cluster makes them: another node may have carried out
//! the same command, or may ask the question that a plain yes answers.
//!
//! Meanwhile later messages of the conversation wait here, so that all keep their order. A stop, a freeze and a shutdown do
//! not wait.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use belay_protocol::{Ack, Body, Envelope, FreezeRequest, Refusal, SessionKey, StoreError};
use tokio::task::Id;
use tokio::time::timeout;

use super::guards::{ANSWERED, Arrival, GUARDS, Guarded};
use super::questions::{Asked, asked_anywhere};
use super::{Dispatcher, Flow, MAILBOX_EXTRA, TaskEnd, worth_saying};
use crate::claims::{ALWAYS, Act, claim_or_wait};
use crate::queue::BUSY_RETRY;
use crate::submission::{Command, Submission, word_of};

/// How long a stop, a freeze or a shutdown waits for the claim of its key. 250 ms: a person does not notice it. After it, it
/// takes place without a claim.
const STOP_CLAIM: Duration = Duration::from_millis(250);

/// The look-ups in progress.
#[derive(Default)]
pub(super) struct LookUps {
    /// The conversation of each look-up.
    tasks: HashMap<Id, SessionKey>,
    conversations: HashMap<SessionKey, Held>,
}

/// A conversation with look-ups in progress.
#[derive(Default)]
struct Held {
    look_ups: usize,
    /// Later messages, in order.
    waiting: VecDeque<Envelope>,
}

/// The result of a look-up, with its message.
pub(crate) struct LookedUp {
    message: Arrival,
    found: Found,
}

enum Found {
    /// The claim of a command. The error is the acknowledgement to send instead of carrying it out.
    Claimed(Result<(), Box<Ack>>),
    /// The open questions of all nodes.
    Asked(Result<Box<Asked>, StoreError>),
}

impl Dispatcher {
    /// Holds a message back if its conversation waits for a look-up. Otherwise returns it.
    pub(super) fn hold_back(&mut self, envelope: Envelope) -> Option<Envelope> {
        let most = self.services.queue.cap + MAILBOX_EXTRA;
        let Some(held) = self.look_ups.conversations.get_mut(&envelope.inbound.session) else { return Some(envelope) };
        let (Body::Text(text) | Body::Edit(text)) = &envelope.inbound.body else { return Some(envelope) };
        if matches!(word_of(text).as_str(), "/stop" | "/interrupt" | "/freeze" | "/quit") {
            return Some(envelope);
        }
        if held.waiting.len() < most {
            held.waiting.push_back(envelope);
            return None;
        }
        let what = "too many messages of this conversation are being accepted".to_owned();
        self.refuse(&envelope.inbound, envelope.ack, Refusal::Busy { what, retry_after: BUSY_RETRY });
        None
    }

    /// Claims the key of a command that acts at once, before it is carried out.
    pub(super) fn claim_first(&mut self, message: Arrival) -> Guarded {
        let Some(sent) = message.sent.clone() else { return Guarded::Continue(message) };
        let (is_stop, once) = match &message.submission {
            Submission::Command(command) => (
                matches!(
                    command,
                    Command::Stop(_)
                        | Command::Interrupt
                        | Command::Quit
                        | Command::Freeze(FreezeRequest::Freeze { .. })
                ),
                matches!(command, Command::Quit | Command::Freeze(FreezeRequest::Thaw(_))),
            ),
            _ => (false, false),
        };
        if is_stop && self.has_many_tasks() {
            return Guarded::Continue(message); // a stop needs no store
        }
        let (services, word) = (self.services.clone(), word_of(&message.text));
        self.look_up(message, async move {
            let again_since = ALWAYS.filter(|_| !once);
            let act = Act { sent: &sent, is_secret: false, word: &word, claimed: None, again_since };
            let claiming = claim_or_wait(&services, &act);
            if !is_stop {
                return Found::Claimed(claiming.await);
            }
            Found::Claimed(match timeout(STOP_CLAIM, claiming).await {
                Ok(Err(instead)) if !matches!(*instead, Ack::Refused(Refusal::Store(_))) => Err(instead),
                Ok(_) | Err(_) => Ok(()), // a stop needs no store
            })
        })
    }

    /// Reads the open questions of all nodes, before a plain yes or no is handled.
    pub(super) fn look_up_questions(&mut self, message: Arrival) -> Guarded {
        let (services, inbound) = (self.services.clone(), message.inbound.clone());
        self.look_up(message, async move { Found::Asked(asked_anywhere(&services, &inbound).await.map(Box::new)) })
    }

    fn look_up(&mut self, message: Arrival, finding: impl Future<Output = Found> + Send + 'static) -> Guarded {
        if self.has_many_tasks() {
            message.sent.iter().for_each(|sent| self.keys.not_acted_on(&sent.key));
            let what = "too many answers are under way".to_owned();
            return self.refused(message, Refusal::Busy { what, retry_after: BUSY_RETRY });
        }
        let session = message.inbound.session.clone();
        let task = self.tasks.spawn(async move {
            let found = finding.await;
            TaskEnd::LookedUp(Box::new(LookedUp { message, found }))
        });
        self.look_ups.tasks.insert(task.id(), session.clone());
        self.look_ups.conversations.entry(session).or_default().look_ups += 1;
        ANSWERED
    }

    /// Handles the end of a look-up, and then the messages that waited for it. `None`: it crashed, and its message was
    /// never accepted.
    pub(super) fn look_up_ended(&mut self, task: Id, looked_up: Option<LookedUp>) -> Flow {
        let mut flow = looked_up.map_or(Flow::Continue, |looked_up| self.looked_up(looked_up));
        let Some(session) = self.look_ups.tasks.remove(&task) else { return flow };
        let Some(held) = self.look_ups.conversations.get_mut(&session) else { return flow };
        held.look_ups = held.look_ups.saturating_sub(1);
        if held.look_ups > 0 {
            return flow;
        }
        let waiting = self.look_ups.conversations.remove(&session).map(|held| held.waiting).unwrap_or_default();
        for envelope in waiting {
            // One of them may need a look-up too: then the others wait again.
            if self.route(envelope) == Flow::ShutDown {
                flow = Flow::ShutDown;
            }
        }
        flow
    }

    fn looked_up(&mut self, LookedUp { message, found }: LookedUp) -> Flow {
        match found {
            Found::Claimed(Ok(())) => self.carry_out(message),
            Found::Claimed(Err(instead)) => {
                message.sent.iter().for_each(|sent| self.keys.not_acted_on(&sent.key));
                if let Ack::Refused(refusal) = &*instead
                    && worth_saying(refusal)
                {
                    self.notifier.say(message.inbound.reply_to, refusal.to_string());
                }
                message.ack.send(*instead);
                Flow::Continue
            }
            Found::Asked(Ok(asked)) => match self.answer_question(message, Some(*asked)) {
                Guarded::Continue(message) => self.pass(message, GUARDS),
                Guarded::Break(flow) => flow,
            },
            Found::Asked(Err(error)) => {
                self.refuse(&message.inbound, message.ack, Refusal::Store(error.to_string()));
                Flow::Continue
            }
        }
    }
}
