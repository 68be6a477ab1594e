//! Records a conversation as events.

use std::collections::VecDeque;

use belay_agent_loop::policies::CallOutcome;

use crate::event::{CallArguments, TrajectoryEvent, looks_failed, outcome_of};

/// Records messages as events, and finds the call that a result belongs to.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    events: Vec<TrajectoryEvent>,
    /// Calls without a result, oldest first: id and tool.
    open: VecDeque<(Option<String>, String)>,
    /// Whether the person has sent a message.
    begun: bool,
    /// Whether the model has answered without a call. Then the next message of the person is a new request.
    answered: bool,
}

impl Recorder {
    /// Records a message of the person.
    pub(super) fn user(&mut self, text: String) {
        if !self.begun || self.answered {
            self.events.push(TrajectoryEvent::Reset);
        }
        (self.begun, self.answered) = (true, false);
        self.events.push(TrajectoryEvent::User(text));
    }

    /// Records a message in the role `user` within the request.
    pub(super) fn user_in_request(&mut self, text: String) {
        self.answered = false;
        self.events.push(TrajectoryEvent::User(text));
    }

    /// Records the beginning of a model call.
    pub(super) fn turn(&mut self) {
        self.answered = false;
        self.events.push(TrajectoryEvent::Turn);
    }

    /// Records the tokens of the model call.
    pub(super) fn usage(&mut self, input: u64, output: u64) {
        if input + output > 0 {
            self.events.push(TrajectoryEvent::Usage { input, output });
        }
    }

    /// Records a thought.
    pub(super) fn thought(&mut self, text: String) {
        if !text.is_empty() {
            self.events.push(TrajectoryEvent::Other(text));
        }
    }

    /// Records a text of the model. An empty text is recorded only if the reply contains nothing else.
    pub(super) fn assistant(&mut self, text: String, with_calls: bool) {
        if !text.is_empty() || !with_calls {
            self.answered = !with_calls;
            self.events.push(TrajectoryEvent::Assistant(text));
        }
    }

    /// Records a call.
    pub(super) fn call(&mut self, id: Option<String>, name: String, args: CallArguments) {
        self.answered = false;
        self.open.push_back((id, name.clone()));
        self.events.push(TrajectoryEvent::Tool { id: None, name, args });
    }

    /// Records a result. `ok`: as recorded; `None`: derived from the text.
    pub(super) fn result(&mut self, id: Option<&str>, name: Option<&str>, ok: Option<bool>, text: String) {
        let outcome = outcome_of(ok.unwrap_or_else(|| !looks_failed(&text)), &text);
        self.result_with_outcome(id, name, outcome, text);
    }

    /// Records a result with a known outcome.
    pub(super) fn result_with_outcome(
        &mut self,
        id: Option<&str>,
        name: Option<&str>,
        outcome: CallOutcome,
        text: String,
    ) {
        let of_id = || id.and_then(|id| self.open.iter().position(|(open, _)| open.as_deref() == Some(id)));
        let of_name = || name.and_then(|name| self.open.iter().position(|(_, open)| open == name));
        let place = of_id().or_else(of_name).or_else(|| (id.is_none() && name.is_none()).then_some(0));
        let called = place.and_then(|at| self.open.remove(at)).map(|(_, name)| name);
        let name = called.or_else(|| name.map(str::to_owned)).unwrap_or_else(|| "unknown".to_owned());
        self.events.push(TrajectoryEvent::ToolResult { id: None, name, outcome, text });
    }

    /// The recorded events.
    pub(super) fn done(self) -> Vec<TrajectoryEvent> {
        self.events
    }
}
