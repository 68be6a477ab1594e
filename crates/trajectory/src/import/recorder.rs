//! Records a conversation as events.

use std::collections::VecDeque;

use belay_agent_loop::policies::CallOutcome;

use crate::event::{CallArguments, TrajectoryEvent, looks_failed, outcome_of};

/// Most calls that wait for a result. The oldest is forgotten when another one comes.
const OPEN: usize = 512;

/// Records messages as events, and finds the call that a result belongs to.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    events: Vec<TrajectoryEvent>,
    /// Calls whose result is not yet recorded, oldest first.
    open: VecDeque<Open>,
    /// Whether the person has sent a message.
    begun: bool,
    /// Whether the model has answered without a call. Then the next message of the person is a new request.
    answered: bool,
    /// Whether a part of the model call was skipped. Then an answer without text is not an empty one.
    has_skipped: bool,
    /// Whether a compaction was recorded and nothing but thoughts behind it. Some programs write several records of one.
    is_compacted: bool,
    /// The kinds of skipped parts that nobody has taken yet.
    skipped: Vec<String>,
}

#[derive(Debug)]
struct Open {
    id: Option<String>,
    name: String,
    /// A result that came before that of an older call of the same tool. A recording has them in the order of the calls.
    result: Option<(CallOutcome, String)>,
}

impl Recorder {
    /// Records a message of the person.
    pub(super) fn user(&mut self, text: String) {
        self.settle();
        if !self.begun || self.answered {
            self.events.push(TrajectoryEvent::Reset);
        }
        (self.begun, self.answered, self.is_compacted) = (true, false, false);
        self.events.push(TrajectoryEvent::User(text));
    }

    /// The person has gone back to an earlier message: what they say next is a new request, and the work since then does
    /// not count for it.
    pub(super) fn rewound(&mut self) {
        self.answered = true;
    }

    /// Records a message in the role `user` within the request.
    pub(super) fn user_in_request(&mut self, text: String) {
        self.answered = false;
        self.events.push(TrajectoryEvent::User(text));
    }

    /// Records the beginning of a model call.
    pub(super) fn turn(&mut self) {
        self.settle();
        (self.answered, self.has_skipped, self.is_compacted) = (false, false, false);
        self.events.push(TrajectoryEvent::Turn);
    }

    /// Records the tokens of the model call.
    pub(super) fn usage(&mut self, input: u64, output: u64) {
        if input.saturating_add(output) > 0 {
            self.events.push(TrajectoryEvent::Usage { input, output });
        }
    }

    /// Records a thought.
    pub(super) fn thought(&mut self, text: String) {
        if !text.is_empty() {
            self.events.push(TrajectoryEvent::Other(text));
        }
    }

    /// Records that the context was shortened. The tokens are 0 if they are unknown.
    pub(super) fn compacted(&mut self, before: u64, after: u64) {
        if !std::mem::replace(&mut self.is_compacted, true) {
            self.events.push(TrajectoryEvent::Compacted { before, after });
        }
    }

    /// Counts a part of a message, by its kind, that has no event.
    pub(super) fn skip(&mut self, kind: &str) {
        self.has_skipped = true;
        self.skipped.push(kind.to_owned());
    }

    /// Whether a part of the model call was skipped.
    pub(super) fn has_skipped(&self) -> bool {
        self.has_skipped
    }

    /// Records a text of the model. An empty text is recorded only if the reply contains nothing else, not even a part
    /// that was skipped.
    pub(super) fn assistant(&mut self, text: String, with_calls: bool) {
        let is_event = !text.is_empty() || !(with_calls || self.has_skipped);
        if is_event || !with_calls {
            self.answered = !with_calls;
        }
        if is_event {
            self.events.push(TrajectoryEvent::Assistant(text));
        }
    }

    /// Records a call.
    pub(super) fn call(&mut self, id: Option<String>, name: String, args: CallArguments) {
        self.answered = false;
        if self.open.len() == OPEN {
            self.open.pop_front();
        }
        self.open.push_back(Open { id, name: name.clone(), result: None });
        self.events.push(TrajectoryEvent::Tool { id: None, name, args });
    }

    /// Whether the call with this id, or the oldest one of this tool, still waits for its result.
    pub(super) fn awaits(&self, id: Option<&str>, name: Option<&str>) -> bool {
        self.place(id, name).is_some()
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
        let Some(at) = self.place(id, name) else {
            let name = name.unwrap_or("unknown").to_owned();
            return self.events.push(TrajectoryEvent::ToolResult { id: None, name, outcome, text });
        };
        self.open[at].result = Some((outcome, text));
        // It waits for the results of older calls of the same tool, and those that wait for it come with it.
        let name = self.open[at].name.clone();
        while let Some(oldest) = self.open.iter().position(|open| open.name == name) {
            if self.open[oldest].result.is_none() {
                break;
            }
            self.release(oldest);
        }
    }

    /// The call that a result with this id or of this tool belongs to.
    fn place(&self, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let waits =
            |wanted: &dyn Fn(&Open) -> bool| self.open.iter().position(|open| open.result.is_none() && wanted(open));
        let of_id = || id.and_then(|id| waits(&|open| open.id.as_deref() == Some(id)));
        let of_name = || name.and_then(|name| waits(&|open| open.name == name));
        of_id().or_else(of_name).or_else(|| if id.is_none() && name.is_none() { waits(&|_| true) } else { None })
    }

    fn release(&mut self, at: usize) {
        if let Some(Open { name, result, .. }) = self.open.remove(at) {
            let (outcome, text) = result.unwrap_or((CallOutcome::NotExecuted, String::new()));
            self.events.push(TrajectoryEvent::ToolResult { id: None, name, outcome, text });
        }
    }

    /// Records the results that still wait for that of an older call: that call has none.
    fn settle(&mut self) {
        while let Some(held) = self.open.iter().position(|open| open.result.is_some()) {
            let name = self.open[held].name.clone();
            let oldest = self.open.iter().position(|open| open.name == name).unwrap_or(held);
            self.release(oldest);
        }
    }

    /// Adds what was recorded elsewhere.
    pub(super) fn add(&mut self, mut other: Self) {
        self.skipped.append(&mut other.skipped);
        self.events.extend(other.done());
    }

    /// Takes the kinds of the parts that were skipped since the last time.
    pub(super) fn take_skipped(&mut self) -> Vec<String> {
        std::mem::take(&mut self.skipped)
    }

    /// Takes the events that were recorded since the last time.
    pub(super) fn take(&mut self) -> Vec<TrajectoryEvent> {
        std::mem::take(&mut self.events)
    }

    /// The recorded events.
    pub(super) fn done(mut self) -> Vec<TrajectoryEvent> {
        self.settle();
        self.events
    }
}
