//! Follows one run: its events to the editor, the editor's answers to its questions, and a stop to the run.

use std::collections::HashMap;
use std::time::Duration;

use agent_client_protocol::v1::schema::StopReason;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::daemon::Trouble;
use crate::endpoint::read_panic;
use crate::events::RunEvents;
use crate::permission::Asking;
use crate::place::Place;
use crate::turn::{Step, Turn};

/// Longest time for the end of a run after its stop. 10 s: the daemon kills what does not end before.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Said when a stop could not be confirmed.
pub(crate) const MAY_GO_ON: &str =
    "\n\nThe stop could not be confirmed: the run may go on in the daemon. `belay status` shows what runs.\n\n";

/// The end of a followed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// In the protocol's words.
    For(StopReason),
    /// Its message became part of another run.
    Joined,
}

/// The part of the run that an editor is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Everything.
    All,
    /// Nothing: another prompt of this editor tells it.
    Nothing,
}

/// A followed run.
pub(crate) struct Follow {
    place: Place,
    run: String,
    telling: Telling,
    turn: Turn,
    events: RunEvents,
    /// The open questions, by id: cancelled when one is answered elsewhere.
    questions: HashMap<String, CancellationToken>,
    asking: JoinSet<()>,
}

impl Follow {
    /// Follows a run from its first event. `context_tokens`: the length of the model's context; 0: unknown.
    pub(crate) fn new(place: Place, run: String, telling: Telling, context_tokens: u64) -> Self {
        let events = RunEvents::new(place.daemon.clone(), run.clone());
        let (turn, questions) = (Turn::new(context_tokens), HashMap::new());
        Self { place, run, telling, turn, events, questions, asking: JoinSet::new() }
    }

    /// Follows the run to its end. `stop` stops it.
    ///
    /// # Errors
    /// As [`RunEvents::next`].
    pub(crate) async fn follow_to_the_end(&mut self, stop: &CancellationToken) -> Result<Ended, Trouble> {
        let ended = self.read(stop).await;
        // Before the answer of the prompt: no update and no question may follow it.
        self.questions.drain().for_each(|(_, question)| question.cancel());
        while let Some(asked) = self.asking.join_next().await {
            read_panic(asked);
        }
        if self.telling == Telling::All && matches!(ended, Ok(Ended::For(_))) {
            for update in self.turn.left_over() {
                self.place.link.update(&self.place.session, update).await;
            }
        }
        ended
    }

    async fn read(&mut self, stop: &CancellationToken) -> Result<Ended, Trouble> {
        let mut deadline = None;
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled(), if deadline.is_none() => {
                    let limit = Instant::now() + STOP_LIMIT;
                    deadline = Some(limit);
                    self.place.daemon.stop(&self.run, limit).await;
                    continue;
                }
                () = until(deadline) => return Ok(self.unconfirmed().await),
                event = self.events.next(self.turn.place.cursor()) => match event {
                    Ok(event) => event,
                    Err(_) if deadline.is_some() => return Ok(self.unconfirmed().await),
                    Err(trouble) => return Err(trouble),
                },
            };
            let steps = self.turn.event(&event);
            let is_end = steps.iter().any(|step| matches!(step, Step::Ended(_)));
            // The editor has asked for this end: the line about it tells nothing new.
            let is_told = self.telling == Telling::All && !(is_end && deadline.is_some());
            for step in steps {
                match step {
                    Step::Update(update) if is_told => self.place.link.update(&self.place.session, *update).await,
                    Step::Ask(question) if is_told && deadline.is_none() => self.ask(question, stop),
                    Step::Answered(question) => {
                        if let Some(question) = self.questions.remove(&question) {
                            question.cancel();
                        }
                    }
                    Step::Ended(reason) => return Ok(Ended::For(reason)),
                    Step::Joined => return Ok(Ended::Joined),
                    Step::Update(_) | Step::Ask(_) => {}
                }
            }
            while let Some(asked) = self.asking.try_join_next() {
                read_panic(asked);
            }
        }
    }

    /// The end of a stopped run whose own end was not seen.
    async fn unconfirmed(&self) -> Ended {
        if self.telling == Telling::All {
            self.place.link.say(&self.place.session, MAY_GO_ON).await;
        }
        Ended::For(StopReason::Cancelled)
    }

    /// Passes a question on. The events go on meanwhile, since one of them may say that it is answered.
    fn ask(&mut self, question: String, stop: &CancellationToken) {
        let answered = CancellationToken::new();
        self.questions.insert(question.clone(), answered.clone());
        let asking = Asking { place: self.place.clone(), question, answered, stop: stop.clone() };
        self.asking.spawn(asking.ask());
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
