//! The counters of a run, and the decision about a reply. Pure: nothing here awaits, and all of it can be stored.

use std::collections::BTreeMap;

use belay_protocol::{CallId, FinishReason, ModelReply, RunEnd, ToolCall, ToolSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::AgenticLoopConfig;
use crate::duplicates::{DISARMING_DUPLICATES, DuplicateTracker, WARNED_DUPLICATES};
use crate::intent::{announces_tool_use, leaves_call, marked};
use crate::policies::StopState;

/// From this number of truncated batches, without an executed one between them, no tools are offered.
///
/// 3: the two notices before it give the model two chances to try something smaller.
pub const DISARMING_TRUNCATIONS: u32 = 3;

/// The counters of a run. A run that is resumed from the state at the end of an iteration continues as if it had not
/// been interrupted.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct LoopState {
    /// Iterations begun; the first is 1.
    pub iteration: u32,
    /// No more tools are offered. It is never reset within a run.
    pub force_text: bool,
    /// The first cause that took the tools away, and its step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced: Option<Forced>,
    /// Nudges in a row. An executed batch, or a text that announces nothing, ends the row.
    pub nudges: u32,
    /// Truncated batches since the last executed one. Texts between them do not matter.
    pub truncations: u32,
    /// Complete failures of one batch in a row.
    pub duplicates: DuplicateTracker,
    /// Why the model stopped in its latest reply. `Length` means that the text was cut off.
    pub last_finish: FinishReason,
    /// The guardrail that acted in this iteration, for the code that reports it.
    pub braked: Option<GuardrailAction>,
    /// The state of the stop engine.
    pub stops: StopState,
    /// The stop rules that told the model something in this iteration, for the code that reports them.
    #[serde(skip)]
    pub fired: Vec<Fired>,
    /// The call of a pending approval, if its arguments differ from those in the assistant message. That message may be
    /// stored already, but the person was asked about this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<ToolCall>,
    /// The handles of calls that run, by call. A handle is removed when its call has its result. The loop does not read
    /// them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub handles: BTreeMap<CallId, Value>,
    /// The handles of calls that have a result although their tools never ended them: what they stand for may go on. The end
    /// of the run ends it. The loop does not read them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Value>,
    /// Data of the delegate that it keeps over attempts. The loop does not read it.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub delegate: Value,
}

/// The cause for taking the tools away from a run, which then had to end with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForcedBy {
    /// The limit of steps, `agent.max_tool_iterations`.
    MaxToolIterations,
    /// The guardrail of duplicate failures.
    DuplicateFailures,
    /// The guardrail of truncated calls.
    TruncatedCalls,
}

impl ForcedBy {
    /// The word in the evidence of the run's end.
    pub fn word(self) -> &'static str {
        match self {
            Self::MaxToolIterations => "max_tool_iterations",
            Self::DuplicateFailures => "duplicate_failures",
            Self::TruncatedCalls => "truncated_calls",
        }
    }
}

/// Says what took the tools away, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// The cause.
    pub by: ForcedBy,
    /// The step, from 1.
    pub step: u32,
}

/// A stop rule that has told the model something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The rule.
    pub rule: String,
    /// The figure that the rule counted.
    pub count: u64,
    /// The number of the strike, from 1; 0 for a notice.
    pub strike: u32,
}

/// A guardrail with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guardrail {
    /// A text announced a tool and called none.
    ToolIntentNudge,
    /// The length limit cut calls off.
    TruncatedCalls,
    /// Every call of the same batch failed again.
    DuplicateFailures,
}

impl Guardrail {
    /// The word in events and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::ToolIntentNudge => "tool_intent_nudge",
            Self::TruncatedCalls => "truncated_calls",
            Self::DuplicateFailures => "duplicate_failures",
        }
    }
}

/// A guardrail that has acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardrailAction {
    /// The guardrail.
    pub brake: Guardrail,
    /// Its count in the current row, from 1.
    pub count: u32,
}

/// The decision about a reply.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// The text announces a tool, or contains the markup of a call (`left`): tell the model, and ask again.
    Nudge { text: String, left: bool },
    /// A text for the delegate.
    Answer { text: String },
    /// Calls that were cut off: none of them runs or is recorded. `count` is the number of this batch in the row.
    Discard { text: String, count: u32 },
    /// Calls to run.
    Execute { text: String, calls: Vec<ToolCall> },
    /// The stop engine found a loop. The model has got feedback, and nothing that the reply asks for is done.
    HeldBack,
    /// A rule ends the run.
    End(RunEnd),
}

impl LoopState {
    /// Takes the handles of all work that may go on without the run.
    pub fn take_handles(&mut self) -> Vec<Value> {
        let mut all = std::mem::take(&mut self.left);
        all.extend(std::mem::take(&mut self.handles).into_values());
        all
    }

    /// Notes that a call has its result. `is_settled`: its tool has ended it, or has ended the work itself.
    pub fn call_ended(&mut self, call: &CallId, is_settled: bool) {
        self.left.extend(self.handles.remove(call).filter(|_| !is_settled));
    }

    /// Counts a new iteration and returns its number. `None` if all are used.
    pub(crate) fn begin_iteration(&mut self, config: &AgenticLoopConfig) -> Option<u32> {
        if self.iteration >= config.max_iterations {
            return None;
        }
        self.iteration += 1;
        self.braked = None;
        self.fired.clear();
        Some(self.iteration)
    }

    /// Takes the tools away for the rest of the run. The first cause is kept.
    pub fn force_text_by(&mut self, by: ForcedBy) {
        if !self.force_text {
            self.forced = Some(Forced { by, step: self.iteration });
        }
        self.force_text = true;
    }

    /// Writes the log line of a nudge, for [`LoopDelegate::on_tool_intent_nudge`](crate::LoopDelegate::on_tool_intent_nudge).
    pub fn log_nudge(&self) {
        tracing::debug!(iteration = self.iteration, count = self.nudges, "a tool was announced and not called");
    }

    /// Decides what follows from a reply. `tools`: those of the run. `tools_offered`: its request offered them.
    pub(crate) fn accept(
        &mut self,
        reply: ModelReply,
        tools: &ToolSet,
        tools_offered: bool,
        config: &AgenticLoopConfig,
    ) -> Step {
        self.last_finish = reply.finish;
        let ModelReply { text, tool_calls: calls, finish, .. } = reply;
        if calls.is_empty() {
            return self.accept_text(text, tools, tools_offered, config);
        }
        if finish == FinishReason::Length {
            return self.discard(text);
        }
        self.nudges = 0;
        self.truncations = 0;
        Step::Execute { text, calls }
    }

    fn accept_text(&mut self, text: String, tools: &ToolSet, tools_offered: bool, config: &AgenticLoopConfig) -> Step {
        let is_tool = |name: &str| tools.get(name).is_some();
        let left = leaves_call(&text, &is_tool);
        let announced = left || announces_tool_use(&text);
        if announced && tools_offered && config.enable_tool_intent_nudge && self.nudges < config.max_tool_intent_nudges
        {
            self.nudges += 1;
            self.braked = Some(GuardrailAction { brake: Guardrail::ToolIntentNudge, count: self.nudges });
            return Step::Nudge { text, left };
        }
        // An announcement that passes keeps its count: the row continues until the model does something else.
        if !announced {
            self.nudges = 0;
        }
        // A nudged text does not reach this line. If it reset the streak, a model that announces each repetition would
        // evade the guardrail.
        self.duplicates = DuplicateTracker::default();
        Step::Answer { text: marked(text, &is_tool) }
    }

    fn discard(&mut self, text: String) -> Step {
        self.truncations = self.truncations.saturating_add(1);
        if self.truncations >= DISARMING_TRUNCATIONS {
            self.force_text_by(ForcedBy::TruncatedCalls);
        }
        self.braked = Some(GuardrailAction { brake: Guardrail::TruncatedCalls, count: self.truncations });
        Step::Discard { text, count: self.truncations }
    }

    /// Records the end of an executed batch. Returns how often it has now failed completely in a row, if the model has
    /// to be warned.
    pub(crate) fn judge(&mut self, calls: &[ToolCall], all_failed: bool) -> Option<u32> {
        let count = self.duplicates.record(calls, all_failed);
        if count < WARNED_DUPLICATES {
            return None;
        }
        if count >= DISARMING_DUPLICATES {
            self.force_text_by(ForcedBy::DuplicateFailures);
        }
        self.braked = Some(GuardrailAction { brake: Guardrail::DuplicateFailures, count });
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;

    use super::*;

    const INTENT: &str = "Let me search for that.";

    fn text(text: &str) -> ModelReply {
        ModelReply { text: text.into(), ..ModelReply::default() }
    }

    fn calls(finish: FinishReason) -> ModelReply {
        let call = ToolCall { id: "c".into(), name: "clock".into(), arguments: Arguments::parse("") };
        ModelReply { tool_calls: vec![call], finish, ..ModelReply::default() }
    }

    /// One letter for each step: n(udge), a(nswer), d(iscard), e(xecute).
    fn play(replies: &[ModelReply], tools_offered: bool, config: &AgenticLoopConfig) -> (String, LoopState) {
        let mut state = LoopState::default();
        let letters =
            replies.iter().map(|reply| match state.accept(reply.clone(), &ToolSet::default(), tools_offered, config) {
                Step::Nudge { .. } => 'n',
                Step::Answer { .. } => 'a',
                Step::Discard { .. } => 'd',
                Step::Execute { .. } => 'e',
                Step::HeldBack | Step::End(_) => unreachable!("the counters end nothing"),
            });
        (letters.collect(), state)
    }

    #[test]
    fn each_sequence_of_replies_has_its_steps() {
        let on = AgenticLoopConfig::default();
        let off = AgenticLoopConfig { enable_tool_intent_nudge: false, ..on.clone() };
        let once = AgenticLoopConfig { max_tool_intent_nudges: 1, ..on.clone() };
        let cut = || calls(FinishReason::Length);
        let run = || calls(FinishReason::ToolCalls);
        for (name, replies, tools_offered, config, steps, nudges, truncations) in [
            ("a plain text", vec![text("4")], true, &on, "a", 0, 0),
            ("an empty text", vec![text("")], true, &on, "a", 0, 0),
            ("two nudges, then let through", vec![text(INTENT); 4], true, &on, "nnaa", 2, 0),
            ("one nudge, then let through", vec![text(INTENT); 2], true, &once, "na", 1, 0),
            ("nudges switched off", vec![text(INTENT)], true, &off, "a", 0, 0),
            ("no tools, no nudge", vec![text(INTENT)], false, &on, "a", 0, 0),
            ("a text ends the row", vec![text(INTENT), text("hm"), text(INTENT)], true, &on, "nan", 1, 0),
            ("a batch ends the row", vec![text(INTENT), run(), text(INTENT)], true, &on, "nen", 1, 0),
            ("a truncation does not", vec![text(INTENT), cut(), text(INTENT), text(INTENT)], true, &on, "ndna", 2, 1),
            ("texts do not reset truncations", vec![cut(), text("hm"), cut()], true, &on, "dad", 0, 2),
            ("a batch does", vec![cut(), cut(), run(), cut()], true, &on, "dded", 0, 1),
            ("calls without tools are still executed, to be refused", vec![run()], false, &on, "e", 0, 0),
        ] {
            let (letters, state) = play(&replies, tools_offered, config);
            assert_eq!((letters.as_str(), state.nudges, state.truncations), (steps, nudges, truncations), "{name}");
        }
    }

    #[test]
    fn the_third_truncation_takes_the_tools_away_for_good() {
        let config = AgenticLoopConfig::default();
        let mut state = LoopState::default();
        for expected in [false, false, true] {
            state.accept(calls(FinishReason::Length), &ToolSet::default(), true, &config);
            assert_eq!(state.force_text, expected);
        }
        state.accept(calls(FinishReason::ToolCalls), &ToolSet::default(), false, &config);
        assert_eq!((state.truncations, state.force_text), (0, true));
        assert_eq!(state.forced.map(|forced| forced.by), Some(ForcedBy::TruncatedCalls));
        state.force_text_by(ForcedBy::MaxToolIterations);
        assert_eq!(state.forced.map(|forced| forced.by), Some(ForcedBy::TruncatedCalls), "the first cause stays");
    }

    #[test]
    fn the_fourth_failure_of_a_batch_takes_the_tools_away() {
        let batch = calls(FinishReason::ToolCalls).tool_calls;
        let mut state = LoopState::default();
        for (warned, force_text) in
            [(None, false), (Some(2), false), (Some(3), false), (Some(4), true), (Some(5), true)]
        {
            assert_eq!((state.judge(&batch, true), state.force_text), (warned, force_text));
        }
    }

    #[test]
    fn an_answer_resets_the_streak_of_failures_and_a_nudged_text_does_not() {
        let config = AgenticLoopConfig::default();
        let batch = calls(FinishReason::ToolCalls).tool_calls;
        for (reply, next) in [(text("hm"), None), (text(INTENT), Some(2))] {
            let mut state = LoopState::default();
            state.judge(&batch, true);
            state.accept(reply, &ToolSet::default(), true, &config);
            assert_eq!(state.judge(&batch, true), next);
        }
    }

    #[test]
    fn iterations_count_from_one_and_go_on_after_a_restart() {
        let config = AgenticLoopConfig { max_iterations: 3, ..AgenticLoopConfig::default() };
        let mut state = LoopState::default();
        assert_eq!((state.begin_iteration(&config), state.begin_iteration(&config)), (Some(1), Some(2)));
        let stored = serde_json::to_string(&state).expect("serialises");
        let mut resumed: LoopState = serde_json::from_str(&stored).expect("reads back");
        assert_eq!((resumed.begin_iteration(&config), resumed.begin_iteration(&config)), (Some(3), None));
        assert_eq!(resumed.iteration, 3);
    }

    #[test]
    fn a_state_stored_by_an_older_version_still_loads() {
        let state: LoopState = serde_json::from_str(r#"{"iteration":4,"unknown":1}"#).expect("loads");
        assert_eq!(state, LoopState { iteration: 4, ..LoopState::default() });
    }
}
