//! Groups the events of a recording into steps: the text, the calls and the results of one model call.

use belay_agent_loop::policies::CallOutcome;
use belay_trajectory::TrajectoryEvent;

/// One model call with its calls and results.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// The text: the complete answer, or its pieces.
    pub(super) text: String,
    /// The calls.
    pub(super) calls: Vec<Call>,
    whole: bool,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The tool.
    pub(super) name: String,
    /// Its canonical arguments.
    pub(super) arguments: String,
    /// Its result, if it has arrived: the outcome and the text.
    pub(super) result: Option<(CallOutcome, String)>,
    id: Option<String>,
}

/// Groups events into steps. If a recording does not contain the beginnings of model calls, one begins with a text or a
/// call of the model after a result, after a message of the person, or after a complete answer.
#[derive(Debug, Default)]
pub(super) struct Steps {
    open: Option<Step>,
    begun: u64,
    /// Whether the recording contains the beginnings of model calls.
    has_turns: bool,
    /// Whether the recording contains results.
    results: bool,
    /// Calls of this request before the first result.
    bare_calls: u64,
}

impl Steps {
    /// Processes the next event. Returns the step that it ends.
    pub(super) fn observe(&mut self, event: &TrajectoryEvent) -> Option<Step> {
        match event {
            TrajectoryEvent::Reset => {
                (self.open, self.begun, self.bare_calls) = (None, 0, 0);
                None
            }
            TrajectoryEvent::Turn => {
                self.has_turns = true;
                self.begin()
            }
            TrajectoryEvent::User(_) => self.open.take(),
            TrajectoryEvent::Text(text) => {
                let ended = self.enter(|step| step.whole || !step.calls.is_empty());
                let step = self.open.get_or_insert_default();
                if !step.whole {
                    step.text.push_str(text);
                }
                ended
            }
            TrajectoryEvent::Assistant(text) => {
                let ended = self.enter(|step| step.whole || !step.calls.is_empty());
                let step = self.open.get_or_insert_default();
                // A further answer after a complete one, in a recording with the beginnings of model calls: the step
                // contains both.
                if step.whole && !step.text.is_empty() && !text.is_empty() {
                    step.text.push('\n');
                    step.text.push_str(text);
                } else {
                    text.clone_into(&mut step.text);
                }
                step.whole = true;
                ended
            }
            TrajectoryEvent::Tool { id, name, args } => {
                self.bare_calls += u64::from(!self.results);
                let ended = self.enter(|step| step.calls.iter().any(|call| call.result.is_some()));
                self.open.get_or_insert_default().calls.push(Call {
                    name: name.clone(),
                    arguments: args.arguments().canonical(),
                    result: None,
                    id: id.clone(),
                });
                ended
            }
            TrajectoryEvent::ToolResult { id, name, outcome, text } => {
                self.results = true;
                let waiting = |call: &&mut Call| {
                    call.result.is_none()
                        && if id.is_some() && call.id.is_some() { call.id == *id } else { call.name == *name }
                };
                let calls = self.open.iter_mut().flat_map(|step| &mut step.calls);
                if let Some(call) = calls.into_iter().find(waiting) {
                    call.result = Some((*outcome, text.clone()));
                }
                None
            }
            _ => None,
        }
    }

    /// Number of steps in this request, including the open one. In a recording that contains only calls, each call
    /// counts as a step, because a batch cannot be distinguished from calls of different steps.
    pub(super) fn begun(&self) -> u64 {
        if self.has_turns || self.results { self.begun } else { self.begun.max(self.bare_calls) }
    }

    fn begin(&mut self) -> Option<Step> {
        self.begun += 1;
        self.open.replace(Step::default())
    }

    /// Enters the open step, or begins a new one if that is over.
    fn enter(&mut self, is_over: impl Fn(&Step) -> bool) -> Option<Step> {
        match &self.open {
            Some(step) if self.has_turns || !is_over(step) => None,
            _ => self.begin(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::events;
    use super::*;

    #[test]
    fn steps_are_told_or_found() {
        for (text, begun, ended) in [
            (". f(x) f=1 . f(y) f=2 .", 3, "[f] [f]"),
            (". f(x) f(y) f=1 f=2 :done", 1, ""),
            ("f(x) f=1 f(y) f=2 :done", 3, "[f] [f]"),
            ("f(x) f(y) f=1 f=2 f(z)", 2, "[ff]"),
            ("f(x) f(y) f(z)", 3, ""),
            (":one :two :three", 3, "one[] two[]"),
            ("~on ~e :one ~two", 2, "one[]"),
            (":let_me f(x) f=1 :done @more :again", 3, "let me[f] done[]"),
            (". ~a ~b @stop .", 2, "ab[]"),
            (". f(x) reset . g(x)", 1, ""),
        ] {
            let mut steps = Steps::default();
            let ends = events(text).iter().filter_map(|event| steps.observe(event)).collect::<Vec<_>>();
            let shown = |step: &Step| {
                format!("{}[{}]", step.text, step.calls.iter().map(|call| call.name.as_str()).collect::<String>())
            };
            assert_eq!(ends.iter().map(shown).collect::<Vec<_>>().join(" "), ended, "{text}");
            assert_eq!(steps.begun(), begun, "{text}");
        }
    }

    #[test]
    fn results_go_to_the_oldest_open_call_of_that_name() {
        let mut steps = Steps::default();
        let ended = events(". f(x) g(y) f(z) g=1 f=2 f!3 .").iter().filter_map(|event| steps.observe(event)).last();
        let results: Vec<_> = ended.unwrap().calls.into_iter().map(|call| call.result.unwrap().1).collect();
        assert_eq!(results, ["2", "1", "3"]);
    }
}
