//! The delegate of a subagent: adapts the shared loop to a run that another run has started.
//!
//! A subagent has no conversation with a person. It ends when all declared outputs are submitted or, without declared
//! outputs, with its first text. Its context is compacted like that of a conversation.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    Reasoning, TextAction, run_agentic_loop,
};
use belay_protocol::{RunEnd, StopLayer, StopReason, Termination};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::goal::{Goal, GoalRun, last_chance};
use super::lanes::ChildServices;
use super::spawn::binder;
use belay_run::compaction::Shortener;
use belay_run::core::{RunCore, failure};
use belay_run::judge;
use belay_run::model_call::ModelCall;
use belay_run::reply::{self, Reply};

/// Adapts the loop to a subagent.
pub(crate) struct SubagentDelegate {
    core: RunCore,
    children: Arc<ChildServices>,
    goal: Goal,
    reasoning: Arc<Reasoning>,
    shortener: Shortener,
    /// The index of its task in the context.
    start: usize,
    /// Its text: the final text, or the summary of `terminate`.
    result: Option<String>,
}

/// The end of a subagent.
#[derive(Debug)]
pub(super) struct SubagentEnd {
    pub termination: Termination,
    pub end: RunEnd,
    /// Its text. `None`: it wrote none, or it had declared outputs.
    pub result: Option<String>,
    /// The submitted outputs.
    pub outputs: Map<String, Value>,
    /// Steps, without the closing turn.
    pub turns: u32,
    pub duration: Duration,
}

/// Runs a subagent to its end.
///
/// # Cancel safety
/// Do not drop it: cancel its token. It then returns within the grace period of its tools.
pub(super) async fn run(
    children: Arc<ChildServices>,
    core: RunCore,
    goal: Goal,
    reasoning: Arc<Reasoning>,
    context: &mut LoopContext,
    max_turns: u32,
) -> (SubagentEnd, RunCore) {
    let began = Instant::now();
    let config = AgenticLoopConfig { max_iterations: max_turns, ..AgenticLoopConfig::with_rules(core.rules.clone()) };
    let mut delegate = SubagentDelegate {
        core,
        children,
        goal,
        reasoning: reasoning.clone(),
        shortener: Shortener::default(),
        start: 0,
        result: None,
    };
    let outcome = run_agentic_loop(&mut delegate, &reasoning, context, &config).await;
    let mut end = delegate.end_of(outcome, max_turns);
    let turns = context.state.iteration;
    delegate.core.note_guardrails(context);
    if deserves_a_last_chance(end.reason) {
        end = last_chance(&mut delegate, context, end).await;
    }
    let SubagentDelegate { core, goal, result, .. } = delegate;
    let result = goal.declared.result().or(result);
    let outputs = goal.declared.values();
    (SubagentEnd { termination: termination(end.reason), end, result, outputs, turns, duration: began.elapsed() }, core)
}

fn deserves_a_last_chance(reason: StopReason) -> bool {
    matches!(termination(reason), Termination::MaxTurns | Termination::Timeout)
        || matches!(reason, StopReason::MissingOutputs | StopReason::EmptyReply)
}

/// The termination for a stop reason. A limit of the whole run tree is an error of the subagent: only its own limits
/// of steps and time have words of their own.
fn termination(reason: StopReason) -> Termination {
    match reason {
        StopReason::Goal | StopReason::FinalText | StopReason::Terminated => Termination::Goal,
        StopReason::MaxIterations => Termination::MaxTurns,
        StopReason::ActiveTime | StopReason::WallClock => Termination::Timeout,
        reason if reason.layer() == StopLayer::Operator => Termination::Aborted,
        _ => Termination::Error,
    }
}

impl SubagentDelegate {
    fn end_of(&self, outcome: Result<LoopOutcome, LoopError>, max_turns: u32) -> RunEnd {
        match outcome {
            Ok(LoopOutcome::Response(_)) => RunEnd::of(StopReason::FinalText),
            // A reported success without all outputs is no success.
            Ok(LoopOutcome::Stopped(end)) if end.reason == StopReason::Terminated => {
                if self.goal.declared.is_empty() {
                    end
                } else {
                    self.goal.missed()
                }
            }
            Ok(LoopOutcome::Stopped(end)) => end,
            Ok(LoopOutcome::MaxIterations { iterations }) => {
                RunEnd::of(StopReason::MaxIterations).with("iterations", iterations).with("max_turns", max_turns)
            }
            Ok(LoopOutcome::NeedApproval(pending)) => {
                RunEnd::of(StopReason::ApprovalUnavailable).with("tool", pending.call.name)
            }
            Err(error) => {
                belay_run::log_failure!(warn, error, run = %self.core.live.id, detail = %error, "a subagent failed");
                failure(error)
            }
        }
    }
}

impl GoalRun for SubagentDelegate {
    fn core(&mut self) -> &mut RunCore {
        &mut self.core
    }

    fn goal(&self) -> Option<&Goal> {
        Some(&self.goal)
    }
}

#[async_trait]
impl LoopDelegate for SubagentDelegate {
    async fn check_signals(&mut self) -> LoopSignal {
        self.core.stopped().map_or(LoopSignal::Continue, LoopSignal::Stop)
    }

    fn meter(&self) -> Meter {
        self.core.meter()
    }

    async fn before_llm_call(&mut self, context: &mut LoopContext, _iteration: u32) -> Option<LoopOutcome> {
        // The closing turn is one call, which the judge does not examine.
        if self.core.closing.is_some() {
            return None;
        }
        judge::consult(&mut self.core, context, self.start).await
    }

    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        let Self { core, shortener, start, .. } = self;
        ModelCall { core, shortener, start }.call(reasoning, context, iteration).await
    }

    fn is_answer(&self, text: &str, is_call: bool) -> bool {
        self.goal.is_answer(text, is_call)
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        let closing = self.core.closing.is_some();
        // The loop has marked what is nothing but a call.
        if self.goal.is_answer(&text, false) {
            return self.goal.on_text(&text, context, closing);
        }
        match reply::shape(&text) {
            Reply::Text(text) if self.goal.declared.is_empty() && !closing => {
                let text = text + reply::cut_note(context.state.last_finish).1;
                self.result = Some(text.clone());
                TextAction::Return(LoopOutcome::Response(text))
            }
            Reply::Text(text) => self.goal.on_text(&text, context, closing),
            Reply::Empty | Reply::OnlyEchoes | Reply::Silent => self.goal.on_text("", context, closing),
        }
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        let tools = self.reasoning.tools().clone();
        let bind = binder(&self.children, &self.core, context, &tools);
        let ended = self.core.execute(calls, context, &tools, &bind).await?.ended;
        if let Some(reason) = self.core.stopped() {
            return Ok(Some(LoopOutcome::Stopped(reason.into())));
        }
        if let Some(end) = self.goal.on_batch(context) {
            return Ok(Some(LoopOutcome::Stopped(end)));
        }
        Ok(ended.map(|ended| {
            let end = ended.end(context.state.iteration);
            self.result = ended.summary;
            LoopOutcome::Stopped(end)
        }))
    }

    async fn on_tool_intent_nudge(&mut self, _text: &str, context: &LoopContext) {
        self.core.note_nudge(context);
    }

    async fn after_iteration(&mut self, _iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.core.note_guardrails(context);
        Ok(())
    }
}
