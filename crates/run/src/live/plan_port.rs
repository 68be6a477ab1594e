//! What people ask of a plan while its run works: the lane of the conversation posts it, the flow of the plan carries it
//! out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::PlanCommand;
use tokio::sync::{Notify, oneshot};

/// Most commands that wait for the flow. 16: more than people type while it stores one.
const WAITING_MAX: usize = 16;

/// Why a command cannot be posted before the plan is there.
pub const NOT_READY: &str = "The plan is not ready yet: it is being made, or begins in a moment. Repeat this then.";
/// Why a command cannot be posted after the steps.
const ENDED: &str = "All steps of the plan have ended. Nothing was changed.";
/// Why a command cannot be posted after an end before the steps: a stop, or a restart.
const INTERRUPTED: &str = "The plan was interrupted; nothing was changed.";
const FULL: &str = "Too many commands about the plan wait. Repeat this in a moment.";

/// The plan of a run, and the commands about it.
#[derive(Debug, Default)]
pub struct PlanPort {
    state: Mutex<State>, // held for a few instructions, never across an await
    posted: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the run carries out a plan, or will.
    expected: bool,
    /// The plan as people see it; `None`: there is none yet.
    shown: Option<String>,
    /// Whether the flow takes commands.
    open: bool,
    /// Whether no step is left.
    over: bool,
    waiting: VecDeque<PlanOrder>,
}

/// A command for the flow of a plan.
#[derive(Debug)]
pub struct PlanOrder {
    /// The command.
    pub command: PlanCommand,
    /// Who gave it: an id that is stable within the channel.
    pub by: Arc<str>,
    /// Takes the answer. Without an answer, [`PlanPort::closed`] says why.
    pub answer: oneshot::Sender<PlanAnswer>,
}

/// The answer to a command, for the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanAnswer {
    /// It is done and stored.
    Done(String),
    /// It is refused, and nothing has changed.
    Refused(String),
    /// The store has failed, and nothing has changed.
    Unstored(String),
}

impl State {
    fn closed(&self) -> &'static str {
        if self.over { ENDED } else { INTERRUPTED }
    }
}

impl PlanPort {
    /// Notes that the run carries out a plan.
    pub fn expect(&self) {
        self.lock().expected = true;
    }

    /// Whether the run carries out a plan.
    pub fn is_expected(&self) -> bool {
        self.lock().expected
    }

    /// Posts a command for the flow.
    ///
    /// # Errors
    /// Why the flow does not take it, as a sentence for the person.
    pub fn post(&self, command: PlanCommand, by: Arc<str>) -> Result<oneshot::Receiver<PlanAnswer>, &'static str> {
        let mut state = self.lock();
        match (state.open, state.shown.is_some()) {
            (true, _) if state.waiting.len() >= WAITING_MAX => return Err(FULL),
            (true, _) => {}
            (false, true) => return Err(state.closed()),
            (false, false) => return Err(NOT_READY),
        }
        let (answer, answered) = oneshot::channel();
        state.waiting.push_back(PlanOrder { command, by, answer });
        drop(state);
        self.posted.notify_one();
        Ok(answered)
    }

    /// The plan as people see it; `None`: there is none yet.
    pub fn shown(&self) -> Option<String> {
        self.lock().shown.clone()
    }

    /// Sets what people see of the plan.
    pub fn show(&self, text: String) {
        self.lock().shown = Some(text);
    }

    /// Takes commands from now on, until the result is dropped. Commands that wait then get no answer.
    pub fn open(&self) -> OpenPlan<'_> {
        self.lock().open = true;
        OpenPlan(self)
    }

    /// Why a command got no answer, as a sentence for the person.
    pub fn closed(&self) -> &'static str {
        self.lock().closed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port that takes commands.
#[derive(Debug)]
pub struct OpenPlan<'a>(&'a PlanPort);

impl OpenPlan<'_> {
    /// Notes that no step is left, and takes no more commands.
    pub fn end(self) {
        self.0.lock().over = true;
    }

    /// Waits for the next command.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&self) -> PlanOrder {
        loop {
            if let Some(order) = self.0.lock().waiting.pop_front() {
                return order;
            }
            self.0.posted.notified().await;
        }
    }
}

impl Drop for OpenPlan<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open = false;
        state.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_wait_for_the_flow_and_get_no_answer_after_it() {
        let port = PlanPort::default();
        let post = || port.post(PlanCommand::Hold, "alice".into());
        assert_eq!(post().err(), Some(NOT_READY));
        port.show("1. look".into());
        let open = port.open();
        let answered = post().expect("open");
        let order = open.next().await;
        order.answer.send(PlanAnswer::Done("held".into())).expect("awaited");
        assert_eq!(answered.await, Ok(PlanAnswer::Done("held".into())));
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| post().expect("room")).collect();
        assert_eq!(post().err(), Some(FULL));
        drop(open);
        for answered in waiting {
            assert!(answered.await.is_err());
        }
        assert_eq!((post().err(), port.shown().as_deref()), (Some(INTERRUPTED), Some("1. look")));
        assert_eq!(port.closed(), INTERRUPTED, "it was stopped, or continues elsewhere");
        port.open().end();
        assert_eq!((post().err(), port.closed()), (Some(ENDED), ENDED));
    }
}
