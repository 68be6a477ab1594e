//! The goal of a run with declared outputs. The run gets reminders of missing outputs, ends when all are submitted,
//! and gets a closing turn when something else ends it before.

use std::sync::Arc;

use belay_agent_loop::{
    AgenticLoopConfig, LoopContext, LoopDelegate, LoopOutcome, LoopState, Reasoning, StopRules, TextAction,
    run_agentic_loop,
};
use belay_protocol::{DeclaredOutput, Message, Prompt, RunEnd, StopLayer, StopReason, TextFormat, Tool, ToolSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::emit;
use super::outputs::{Declared, listed};
use belay_run::core::{CLOSING_MAX_TOKENS, RunCore};

/// Reminders after consecutive texts; one more text ends the run. 2, like the nudges of the loop: a model that ignores
/// the second will ignore a third.
const MAX_NUDGES: u32 = 2;

/// The longest text that the end of a run keeps, in bytes. 16 KiB: more than most answers, and a small part of a record.
const SAID_MAX_BYTES: usize = 16 * 1024;

/// The outputs that a run must submit, and the reminders so far.
pub struct Goal {
    /// The declared outputs.
    pub declared: Arc<Declared>,
    nudges: u32,
    /// The latest text that was not the answer, for the end of the run.
    said: String,
}

/// The part of a goal that outlasts an attempt. The values are not part of it: the conversation contains them.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Memo {
    outputs: Vec<DeclaredOutput>,
    nudges: u32,
}

impl Memo {
    /// Adds this memo to the delegate's state, beside the entries of others. The next checkpoint stores it.
    fn write(self, delegate: &mut Value) {
        let Ok(Value::Object(own)) = serde_json::to_value(self) else { return }; // plain data always serialises
        match delegate.as_object_mut() {
            Some(others) => others.extend(own),
            None => *delegate = Value::Object(own),
        }
    }
}

/// A run with a goal, for its closing turn.
pub trait GoalRun: LoopDelegate {
    /// The run core.
    fn core(&mut self) -> &mut RunCore;
    /// The goal of the run.
    fn goal(&self) -> Option<&Goal>;
}

impl Goal {
    /// A goal without submitted outputs or reminders.
    pub fn new(declared: Declared) -> Self {
        Self { declared: Arc::new(declared), nudges: 0, said: String::new() }
    }

    /// The initial loop state of a run with these outputs.
    pub fn beginning(outputs: Vec<DeclaredOutput>) -> LoopState {
        let mut state = LoopState::default();
        if !outputs.is_empty() {
            Memo { outputs, nudges: 0 }.write(&mut state.delegate);
        }
        state
    }

    /// The goal of a run that begins or resumes: its declared outputs, with the values that its messages have
    /// submitted so far. `None`: the run has no declared outputs.
    ///
    /// # Errors
    /// The stored declaration is not valid any more: an earlier version accepted it, and this one does not.
    pub fn of(state: &LoopState, own: &[Arc<Message>]) -> Result<Option<Self>, String> {
        let Memo { outputs, nudges } = serde_json::from_value(state.delegate.clone()).unwrap_or_default();
        if outputs.is_empty() {
            return Ok(None);
        }
        let declared = Declared::compile(outputs)?;
        declared.replay(own);
        Ok(Some(Self { declared: Arc::new(declared), nudges, said: String::new() }))
    }

    /// Begins another attempt. If all outputs were submitted, they are wanted anew.
    pub(crate) fn again(&mut self) {
        self.nudges = 0;
        if self.declared.reached() {
            self.declared.clear();
        }
    }

    /// Counts only the values of these messages.
    pub(crate) fn count_only(&self, messages: &[Arc<Message>]) {
        self.declared.clear();
        self.declared.replay(messages);
    }

    /// The tools that submit the outputs.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        emit::tools(&self.declared)
    }

    /// The text about the outputs in the system prompt.
    pub(crate) fn teaching(&self) -> String {
        if self.declared.is_empty() {
            return "When the task is done, call complete_task with the result, or answer with the result as text: \
                    either ends the task."
                .into();
        }
        let outputs: Vec<String> =
            self.declared.declarations().map(|output| format!("- {}", emit::said(output))).collect();
        format!(
            "Your result is not text but these outputs:\n{}\nSubmit each with emit_value as soon as you have it, or \
             all at once with complete_task. The task is complete when all of them are submitted. Text is not an \
             answer: nobody reads it.",
            outputs.join("\n")
        )
    }

    /// The form of a text that is the answer.
    pub(crate) fn format(&self) -> Option<TextFormat> {
        emit::format(&self.declared)
    }

    /// Prompt and tools of the closing turn: only the tools that submit outputs.
    fn closing_reasoning(&self) -> Reasoning {
        let prompt = || Prompt::new(self.teaching());
        let tools = Arc::new(ToolSet::new(self.tools()));
        Reasoning::new(prompt(), prompt(), tools, CLOSING_MAX_TOKENS, 1).with_format(self.format())
    }

    /// Whether a text is the answer as it is. `is_call`: it is also a call of a tool.
    pub(crate) fn is_answer(&self, text: &str, is_call: bool) -> bool {
        !self.declared.is_empty() && self.declared.is_answer(text, is_call)
    }

    /// Takes a text that has the missing outputs as the answer. Answers another one with a reminder, or with the end of the
    /// run.
    pub(crate) fn on_text(&mut self, text: &str, context: &mut LoopContext, closing: bool) -> TextAction {
        // Without tools, the model could not follow a reminder.
        let last = self.nudges >= MAX_NUDGES || context.state.force_text || closing;
        if !self.declared.is_empty()
            && self.declared.take_text(text, last)
            && let Some(end) = self.reached()
        {
            return TextAction::Return(LoopOutcome::Stopped(end));
        }
        if !text.trim().is_empty() {
            context.push(Message::assistant(text).for_run());
            self.said = text[..text.floor_char_boundary(SAID_MAX_BYTES)].to_owned();
        }
        if last {
            return TextAction::Return(LoopOutcome::Stopped(self.missed()));
        }
        self.nudges += 1;
        self.remember(context);
        context.push(Message::system(self.reminder()).for_run());
        TextAction::Continue
    }

    fn reminder(&self) -> String {
        if self.declared.is_empty() {
            return "Your message was empty. Call complete_task with the result, answer with the result as text, or \
                    continue working."
                .into();
        }
        format!(
            "Still missing: {}. Text does not submit them: call emit_value for each of them, or complete_task with all \
             outputs at once. If you do not have them yet, continue with the other tools first.",
            listed(&self.declared.missing())
        )
    }

    /// Called after a batch. Returns the end of the run when all outputs are submitted.
    pub(crate) fn on_batch(&mut self, context: &mut LoopContext) -> Option<RunEnd> {
        // The calls ran concurrently. A replay in order makes the later of two values for one name count, as after a
        // restart.
        let batch = context.messages.iter().rposition(|message| !message.tool_calls().is_empty());
        self.declared.replay(&context.messages[batch.unwrap_or(context.messages.len())..]);
        if self.nudges > 0 {
            self.nudges = 0;
            self.remember(context);
        }
        self.reached()
    }

    /// The end of the run when all outputs are submitted.
    pub fn reached(&self) -> Option<RunEnd> {
        self.declared.reached().then(|| RunEnd::of(StopReason::Goal).with("outputs", self.declared.names()))
    }

    /// The end of a run with missing outputs.
    pub fn missed(&self) -> RunEnd {
        if self.declared.is_empty() {
            return RunEnd::of(StopReason::EmptyReply).with("nudges", self.nudges);
        }
        let missing: Vec<&str> = self.declared.missing().iter().map(|output| output.name.as_str()).collect();
        self.with_text(RunEnd::of(StopReason::MissingOutputs).with("missing", missing).with("nudges", self.nudges))
    }

    /// The end with the latest text that was not the answer.
    fn with_text(&self, end: RunEnd) -> RunEnd {
        if self.declared.is_empty() || self.said.is_empty() { end } else { end.with("text", self.said.as_str()) }
    }

    /// The message before the closing turn.
    fn last_words(&self, end: &RunEnd) -> String {
        let why = match end.reason {
            StopReason::ActiveTime | StopReason::WallClock => "The time limit is reached.",
            StopReason::MaxIterations => "The step limit is reached.",
            StopReason::MissingOutputs | StopReason::EmptyReply => "You stopped without submitting what is missing.",
            _ => "This run must end now.",
        };
        let what = if self.declared.is_empty() {
            "Call complete_task now, with the best result that you have".to_owned()
        } else {
            let missing = listed(&self.declared.missing());
            format!(
                "Call complete_task now, or emit_value for what is missing ({missing}), with the best values that \
                     you have"
            )
        };
        format!(
            "{why} This is your last message. {what}, and state in it what is unfinished because of the interruption. \
             No other tool is available, and nothing else is read."
        )
    }

    /// Stores the number of reminders in the delegate's state.
    fn remember(&self, context: &mut LoopContext) {
        if self.declared.is_empty() {
            return;
        }
        let outputs = self.declared.declarations().cloned().collect();
        Memo { outputs, nudges: self.nudges }.write(&mut context.state.delegate);
    }
}

/// The closing turn of a run with a goal: one model call that offers only the tools that submit outputs. If all
/// outputs are submitted after it, the run has reached its goal, and its end also names the interruption. Otherwise
/// `end` remains.
///
/// # Cancel safety
/// Dropped midway, the run still ends with `end`.
pub async fn last_chance<D: GoalRun>(delegate: &mut D, context: &mut LoopContext, end: RunEnd) -> RunEnd {
    let Some((reasoning, words)) = delegate.goal().map(|goal| (goal.closing_reasoning(), goal.last_words(&end))) else {
        return end;
    };
    let core = delegate.core();
    let time = match core.closing_time(context) {
        Ok(time) => time,
        Err(why) => return end.with("closing", why),
    };
    if core.stopped().is_some() || core.parent_is_late() {
        return end.with("closing", "stopped");
    }
    core.closing = Some(Instant::now() + time);
    context.state.force_text = false;
    context.push(Message::system(words).for_run());
    // The stop rules have ended the run already. The cost and the time of this call have limits of their own.
    let config = AgenticLoopConfig {
        max_iterations: context.state.iteration.saturating_add(1),
        enable_tool_intent_nudge: false,
        max_tool_intent_nudges: 0,
        rules: Arc::new(StopRules::none()),
    };
    let outcome = run_agentic_loop(delegate, &reasoning, context, &config).await;
    delegate.core().closing = None;
    let closing = match outcome {
        Ok(LoopOutcome::Stopped(reached)) if reached.reason == StopReason::Goal => {
            return reached.with("interrupted", end.reason.word()).with("closing", "answered");
        }
        // The parent's time limit also ends this turn.
        Ok(LoopOutcome::Stopped(_)) if delegate.core().parent_is_late() => "timeout",
        // A stop by a person takes precedence over the outcome.
        Ok(LoopOutcome::Stopped(stopped)) if stopped.reason.layer() == StopLayer::Operator => return stopped,
        Ok(LoopOutcome::Stopped(other)) => match other.reason {
            StopReason::ActiveTime | StopReason::WallClock => "timeout",
            StopReason::RunCost | StopReason::SessionCost => "no_reserve",
            _ => "not_reached",
        },
        Ok(_) => "not_reached",
        Err(_) => "failed",
    };
    let end = delegate.goal().map_or(end.clone(), |goal| goal.with_text(end));
    end.with("closing", closing)
}
