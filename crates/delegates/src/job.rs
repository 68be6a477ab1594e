//! The delegate of a job's attempt, which no person follows.
//!
//! It wraps the chat delegate of the turn, which stores, compacts, waits for the end of an outage and lets messages
//! join.

use std::sync::Arc;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    Reasoning, TextAction, run_agentic_loop,
};
use belay_protocol::{Message, RunEnd, RunsIn, StopLayer, StopReason, Tool, ToolSet};

use super::job_worker;
use super::subagent::Goal;
use crate::chat::ChatDelegate;
use belay_automation::jobs::{JobContext, text};
use belay_run::core::failure;
use belay_run::find_tools::with_finder;
use belay_run::judge;
use belay_run::own_tools::TERMINATE;
use belay_run::own_tools::manages_work;
use belay_run::prompt::Briefing;
use belay_run::services::RunServices;
use belay_run::terminate::Terminate;
use belay_run::unattended::{Manner, Texts, last_words};

/// A job continues until it ends itself or has used its steps.
const MANNER: Manner = Manner { nudge: text::NUDGE, empty: text::EMPTY, second_is_end: false };

/// Runs an attempt at a job to its end. Unless a person ended it, the summary of the turn is the last text of the
/// model.
/// # Errors
/// The store does not answer.
/// The store does not answer.
pub async fn drive(
    turn: &mut ChatDelegate,
    context: &mut LoopContext,
    job: &JobContext,
) -> Result<LoopOutcome, LoopError> {
    if job.job.runs_in == RunsIn::Worker {
        return job_worker::drive(turn, context, job).await;
    }
    let reasoning = turn.reasoning.clone();
    let (limit, rules) = (job.budget.max_steps, turn.core.rules.clone());
    let config = AgenticLoopConfig { max_iterations: limit, ..AgenticLoopConfig::with_rules(rules) };
    let mut delegate = JobDelegate { turn, job, texts: Texts::default() };
    let end = match run_agentic_loop(&mut delegate, &reasoning, context, &config).await {
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            RunEnd::of(StopReason::MaxIterations).with("iterations", iterations).with("max_steps", limit)
        }
        Ok(LoopOutcome::Stopped(end)) => end,
        Ok(answered) => return Ok(answered),
        Err(error @ LoopError::Store(_)) => return Err(error),
        Err(error) => {
            tracing::warn!(run = %turn.core.live.id, detail = %error, "a job's attempt failed");
            failure(error)
        }
    };
    if turn.summary.is_none() && end.reason.layer() != StopLayer::Operator {
        turn.summary = last_words(context, turn.turn_start);
    }
    Ok(LoopOutcome::Stopped(end))
}

/// Adapts the loop to a job.
struct JobDelegate<'a> {
    turn: &'a mut ChatDelegate,
    job: &'a JobContext,
    texts: Texts,
}

#[async_trait]
impl LoopDelegate for JobDelegate<'_> {
    async fn check_signals(&mut self) -> LoopSignal {
        self.turn.check_signals().await
    }

    async fn on_injected(&mut self, context: &LoopContext) -> Result<(), LoopError> {
        self.texts.forget(); // only texts after the new message count
        self.turn.on_injected(context).await
    }

    fn meter(&self) -> Meter {
        self.turn.meter()
    }

    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome> {
        if let Some(end) = self.turn.core.at_step().await {
            return Some(LoopOutcome::Stopped(end));
        }
        if iteration == self.job.budget.max_steps {
            context.push(Message::system(text::LAST_CALL).for_run());
        }
        let start = self.turn.turn_start;
        judge::consult(&mut self.turn.core, context, start).await
    }

    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        self.turn.call_llm(reasoning, context, iteration).await
    }

    fn is_answer(&self, text: &str, is_call: bool) -> bool {
        self.turn.is_answer(text, is_call)
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        if self.turn.goal.is_some() {
            return self.turn.handle_text_response(text, context).await; // a text submits no outputs
        }
        self.texts.hear(&text, &MANNER, &self.job.job.task, &mut self.turn.core, context).await
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        self.texts.forget();
        self.turn.execute_tool_calls(calls, context).await
    }

    async fn on_tool_intent_nudge(&mut self, text: &str, context: &LoopContext) {
        self.turn.on_tool_intent_nudge(text, context).await;
    }

    async fn after_iteration(&mut self, iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.turn.core.after_step(iteration).await;
        self.turn.after_iteration(iteration, context).await
    }
}

/// Prompts and tools for a job: the tools of a conversation without those that create autonomous work, `terminate`, and
/// those that submit the outputs of its goal.
pub fn reasoning(services: &RunServices, briefing: &Briefing, goal: Option<&Goal>) -> Arc<Reasoning> {
    let lends = |name: &str| !manages_work(name) && name != TERMINATE;
    let all = services.tools_of(briefing);
    let lent = all.iter().filter(|tool| lends(&tool.spec().name));
    let tools = lent.cloned().chain([Arc::new(Terminate::new()) as Arc<dyn Tool>]);
    let tools: Vec<_> = tools.chain(goal.map(Goal::tools).unwrap_or_default()).collect();
    let tools = if briefing.tools.is_none() { with_finder(tools) } else { tools };
    let role = goal.map_or(text::ROLE.into(), |goal| format!("{}\n\n{}", text::ROLE, goal.teaching()));
    let reasoning = services.ask_with(briefing, Arc::new(ToolSet::new(tools)), Some(&role));
    Arc::new(reasoning.with_format(goal.and_then(Goal::format)))
}
