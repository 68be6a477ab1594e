//! Decides which deltas of a run may be shown, from the facts that were delivered. Pure.
//!
//! A delta arrives at once. A fact that precedes it is shown when it is on disk, which may be a moment later. So a
//! delta of a step waits until the previous step is complete: its model call, and the results of its tools. In the
//! other direction, a fact that is ready early waits for the deltas before it.

use std::collections::HashMap;

use belay_protocol::{CallId, Event, EventKind, RunId};

/// The position of a delta in its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FragmentPosition {
    /// In the model's answer of that step.
    Step(u32),
    /// In the output of that tool call.
    Call(CallId),
}

/// How many facts of the live run have been delivered.
#[derive(Debug, Default)]
pub(crate) struct Order {
    run: Option<RunId>,
    /// The run has started, or resumed after an approval request.
    at_work: bool,
    /// The step of the last model call. Calls of child runs are ignored: they occur while the run's own tools work.
    called: u32,
    /// Tool calls that have begun and not ended, with their number per id. The child runs of a tool report their calls
    /// under the same run, and models may reuse ids in each run.
    calls: HashMap<CallId, u32>,
    /// Up to this step, nothing is waited for. `some_calls`: nor before the output of tools, because `calls` may be
    /// incomplete.
    waived: u32,
    some_calls: bool,
}

impl Order {
    /// Joins a run late, at that step. The facts before were not delivered and are not waited for. The step's own model
    /// call may be among them: the next step waits only for known calls.
    pub(crate) fn join(&mut self, run: RunId, step: u32) {
        if self.run != Some(run) {
            *self = Self {
                run: Some(run),
                at_work: true,
                called: step,
                waived: step.max(1),
                some_calls: true,
                ..Self::default()
            };
        }
    }

    /// Records a delivered fact.
    pub(crate) fn record(&mut self, fact: &Event) {
        if matches!(fact.kind, EventKind::RunStarted { .. }) && fact.run_id != self.run {
            *self = Self { run: fact.run_id, ..Self::default() };
        }
        if fact.run_id != self.run {
            return;
        }
        match &fact.kind {
            EventKind::RunStarted { .. } => {
                self.at_work = true;
                self.calls.clear();
            }
            EventKind::ApprovalRequested { .. } => self.at_work = false,
            EventKind::ModelCalled { step, .. } if self.calls.is_empty() => self.called = self.called.max(*step),
            EventKind::ToolStarted { call_id, .. } => {
                *self.calls.entry(call_id.clone()).or_default() += 1;
            }
            EventKind::ToolFinished { call_id, .. } => {
                if let Some(open) = self.calls.get_mut(call_id) {
                    *open -= 1;
                }
                self.calls.retain(|_, open| *open > 0);
            }
            _ => {}
        }
    }

    /// Whether everything before a delta has been delivered.
    pub(crate) fn allows(&self, position: &FragmentPosition) -> bool {
        match position {
            FragmentPosition::Step(step) if *step <= self.waived => true,
            FragmentPosition::Step(step) => self.at_work && *step <= self.called + 1 && self.calls.is_empty(),
            FragmentPosition::Call(call) => self.some_calls || self.calls.contains_key(call),
        }
    }

    /// Records that a delta has waited long enough. It is shown, and so are later ones at the same position.
    pub(crate) fn waive(&mut self, position: &FragmentPosition) {
        match position {
            FragmentPosition::Step(step) => self.waived = *step,
            FragmentPosition::Call(_) => self.some_calls = true,
        }
    }

    /// Whether an item at that position belongs before a fact that would be delivered next. `None`: lost deltas.
    pub(crate) fn precedes(&self, position: Option<&FragmentPosition>, fact: &Event) -> bool {
        match (&fact.kind, position) {
            (EventKind::RunEnded { .. }, _) => true,
            (EventKind::ModelCalled { step, .. }, Some(FragmentPosition::Step(of))) => {
                of <= step && self.calls.is_empty()
            }
            (EventKind::ToolFinished { .. }, Some(position @ FragmentPosition::Call(_))) => self.allows(position),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Seq, ToolStatus, UnixMillis};

    use super::*;

    /// `start`, `model STEP`, `tool CALL`, `result CALL`, `question`; another word is a fact without influence.
    fn fact(run: RunId, words: &str) -> Event {
        let (word, of) = words.split_once(' ').unwrap_or((words, ""));
        let (call_id, name) = (CallId::from(of), String::new());
        let kind = match word {
            "start" => EventKind::RunStarted { attempt: 1 },
            "model" => EventKind::model_called(of.parse().unwrap_or(0), None, None),
            "tool" => EventKind::ToolStarted { call_id, name, arguments: String::new() },
            "result" => EventKind::ToolFinished {
                call_id,
                name,
                status: ToolStatus::Success,
                took_ms: 0,
                result: String::new(),
            },
            "question" => EventKind::ApprovalRequested {
                approval: belay_protocol::ApprovalId::new(),
                call_id,
                name,
                kind: String::new(),
                summary: String::new(),
                detail: String::new(),
            },
            _ => EventKind::RunAccepted,
        };
        Event { seq: Seq(1), at: UnixMillis(0), session: Some("s".into()), run_id: Some(run), kind }
    }

    fn after(facts: &[&str]) -> (RunId, Order) {
        let (run, mut order) = (RunId::new(), Order::default());
        facts.iter().for_each(|words| order.record(&fact(run, words)));
        (run, order)
    }

    fn step(step: u32) -> FragmentPosition {
        FragmentPosition::Step(step)
    }

    #[test]
    fn a_fragment_waits_until_the_step_before_it_is_complete() {
        for (facts, position, expected) in [
            (&["accepted"][..], step(1), false),
            (&["accepted", "start"], step(1), true),
            (&["start"], step(2), false),
            (&["start", "model 1"], step(2), true),
            (&["start", "model 1", "tool a", "tool b", "result a"], step(2), false),
            (&["start", "model 1", "tool a", "tool b", "result a", "result b"], step(2), true),
            // A child run of the tool calls the model too.
            (&["start", "model 1", "tool a", "model 1", "model 2", "result a"], step(3), false),
            (&["start", "model 3", "model 1"], step(4), true),
            // The child run's calls may have the same id as the tool's own call.
            (&["start", "model 1", "tool a", "tool a", "result a"], step(2), false),
            (&["start", "model 1", "tool a", "tool a", "result a"], FragmentPosition::Call("a".into()), true),
            (&["start", "model 1", "tool a", "tool a", "result a", "model 1", "result a"], step(2), true),
            (&["start", "model 1", "result a", "tool a"], step(2), false),
            (&["start", "model 1", "question"], step(2), false),
            (&["start", "model 1", "question", "start"], step(2), true),
            (&["start", "model 1"], FragmentPosition::Call("a".into()), false),
            (&["start", "model 1", "tool a"], FragmentPosition::Call("a".into()), true),
        ] {
            assert_eq!(after(facts).1.allows(&position), expected, "{facts:?} {position:?}");
        }
    }

    #[test]
    fn facts_of_other_runs_decide_nothing_and_another_run_begins_anew() {
        let (_, mut order) = after(&["start", "model 1"]);
        let other = RunId::new();
        order.record(&fact(other, "tool a"));
        assert!(order.allows(&step(2)));
        order.record(&fact(other, "start"));
        assert_eq!((order.allows(&step(1)), order.allows(&step(2))), (true, false));
    }

    #[test]
    fn who_comes_late_waits_for_nothing_that_is_over_and_then_like_everybody() {
        let (run, mut order) = (RunId::new(), Order::default());
        order.join(run, 3);
        let allowed = [3, 4, 5].map(|of| order.allows(&step(of)));
        assert_eq!(allowed, [true, true, false], "the call of the step may be over and its tools at work");
        assert!(order.allows(&FragmentPosition::Call("of a tool that was at work".into())));
        order.record(&fact(run, "model 3"));
        assert_eq!((order.allows(&step(4)), order.allows(&step(5))), (true, false));
        order.record(&fact(run, "model 4"));
        assert!(order.allows(&step(5)));
        let (run, mut order) = after(&["start"]);
        order.join(run, 3);
        assert!(!order.allows(&step(3)), "it was there from the start");
    }

    #[test]
    fn what_has_waited_for_long_enough_opens_the_way_for_what_is_behind_it() {
        let (_, mut order) = after(&["start"]);
        order.waive(&step(2));
        assert_eq!((order.allows(&step(2)), order.allows(&step(3))), (true, false));
        order.waive(&FragmentPosition::Call("a".into()));
        assert!(order.allows(&FragmentPosition::Call("b".into())));
    }

    #[test]
    fn a_fact_waits_for_the_fragments_that_belong_before_it() {
        let (run, order) = after(&["start"]);
        let (_, busy) = after(&["start", "model 1", "tool a"]);
        let call = FragmentPosition::Call("a".into());
        for (order, position, words, expected) in [
            (&order, &step(1), "model 1", true),
            (&order, &step(2), "model 1", false),
            (&order, &step(1), "other", false),
            (&order, &call, "model 1", false),
            (&busy, &step(2), "model 2", false),
            (&busy, &call, "result a", true),
            (&busy, &FragmentPosition::Call("b".into()), "result a", false),
            (&busy, &step(2), "result a", false),
        ] {
            assert_eq!(order.precedes(Some(position), &fact(run, words)), expected, "{position:?} {words}");
        }
    }
}
