//! One execution of a step: a child run of an executor, from its task to the outcome for the plan.

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    Reasoning, TextAction, run_agentic_loop,
};
use belay_protocol::{Durability, Message, ModelErrorKind, RunEnd, StopLayer, StopReason, ToolSet};

use super::executors::Executor;
use super::inbox::PlanInbox;
use super::texts;
use crate::subagent::{ChildServices, binder};
use belay_run::compaction::Shortener;
use belay_run::core::{RunCore, failure};
use belay_run::judge;
use belay_run::model_call::ModelCall;
use belay_run::terminate::Terminated;
use belay_run::unattended::{Manner, Texts, last_words};
use std::sync::Arc;

/// The second text in a row ends an executor: other executors continue with the rest of the plan.
const MANNER: Manner = Manner { nudge: texts::NUDGE, empty: texts::EMPTY, second_is_end: true };

/// The end of a plan's child run, from the view of the plan.
#[derive(Debug)]
pub(super) enum ChildEnd {
    /// It has a result.
    Done(String),
    /// The model reports that it cannot be done.
    GaveUp(String),
    /// It has no result; another attempt may have one.
    Failed(String),
    /// The whole plan ends with it: the run was stopped, a limit of the run is reached, or the model cannot be called.
    Over(RunEnd),
}

/// The input of one execution.
pub(super) struct Execution<'a> {
    /// The child's run core.
    pub(super) core: RunCore,
    /// Lets the child start other runs.
    pub(super) children: &'a Arc<ChildServices>,
    pub(super) executor: &'a Executor,
    pub(super) task: String,
    /// Most steps.
    pub(super) limit: u32,
    /// Receives the messages to the run.
    pub(super) inbox: PlanInbox,
}

/// Runs an executor on its task. Returns the end, and the number of steps that began.
///
/// # Errors
/// The store does not answer.
pub(super) async fn execute(execution: Execution<'_>) -> (Result<ChildEnd, LoopError>, u32) {
    let Execution { core, children, executor, task, limit, inbox } = execution;
    let rules = core.rules.clone();
    let mut context = LoopContext::new(vec![Message::user(&task).into()]);
    let config = AgenticLoopConfig { max_iterations: limit, ..AgenticLoopConfig::with_rules(rules) };
    let tools = executor.tools_for(&core.briefing);
    let reasoning = executor.reasoning.with_words(&core.briefing.rules()).with_tools(tools.clone());
    let mut delegate = StepDelegate {
        core,
        children,
        tools,
        task,
        inbox,
        shortener: Shortener::default(),
        start: 0,
        limit,
        texts: Texts::default(),
        ended: None,
    };
    let outcome = run_agentic_loop(&mut delegate, &reasoning, &mut context, &config).await;
    let StepDelegate { mut core, ended, .. } = delegate;
    let end = match (ended, outcome) {
        _ if core.stopped().is_some() => Ok(ChildEnd::Over(StopReason::ParentStopped.into())),
        (Some(Terminated { success, summary }), Ok(_)) => {
            let said = summary.or_else(|| last_words(&context, 0));
            Ok(if success {
                ChildEnd::Done(said.unwrap_or_else(|| "Done.".to_owned()))
            } else {
                ChildEnd::GaveUp(said.unwrap_or_else(|| "it reports that it cannot do this".to_owned()))
            })
        }
        (None, outcome) => end_of_child(outcome),
        (_, Err(error)) => Err(error),
    };
    // Written even after a failure of the store, so that the events of the child include its end.
    let written = core.journal.write(&context, Durability::Relaxed).await;
    (end.and_then(|end| Ok(written.map(|()| end)?)), context.state.iteration)
}

/// Maps the end of a child run to the end for its plan.
///
/// # Errors
/// The store does not answer.
pub(super) fn end_of_child(outcome: Result<LoopOutcome, LoopError>) -> Result<ChildEnd, LoopError> {
    Ok(match outcome {
        Ok(LoopOutcome::Response(text)) if text.trim().is_empty() => {
            ChildEnd::Failed("it ended without an answer".to_owned())
        }
        Ok(LoopOutcome::Response(text)) => ChildEnd::Done(text),
        Ok(LoopOutcome::Stopped(end)) => match end.reason.layer() {
            // The step limit belongs to the child alone; every other limit belongs to the whole run.
            StopLayer::Operator => ChildEnd::Over(end),
            StopLayer::Budget if end.reason != StopReason::MaxIterations => ChildEnd::Over(end),
            _ => ChildEnd::Failed(end.line()),
        },
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            ChildEnd::Failed(format!("it did not finish within its {iterations} steps"))
        }
        Ok(LoopOutcome::NeedApproval(pending)) => {
            ChildEnd::Failed(format!("{} needs an approval, and nobody can be asked", pending.call.name))
        }
        Err(error @ LoopError::Store(_)) => return Err(error),
        Err(error) => {
            // The plan ends when neither another attempt nor another step can help: the day's budget is used up, or
            // the provider does not answer after all retries. A request that is refused or too long fails only this
            // execution.
            let hopeless = match &error {
                LoopError::Model(error) => match error.kind {
                    ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest => false,
                    ModelErrorKind::Auth
                    | ModelErrorKind::Network
                    | ModelErrorKind::Overloaded { .. }
                    | ModelErrorKind::RateLimited { .. } => true,
                },
                _ => true,
            };
            let end = failure(error);
            if hopeless { ChildEnd::Over(end) } else { ChildEnd::Failed(end.reason.user_line().to_owned()) }
        }
    })
}

/// Adapts the loop to an executor. It works autonomously; a single text ends it only if it reports a finished step.
struct StepDelegate<'a> {
    core: RunCore,
    children: &'a Arc<ChildServices>,
    /// The tools of the executor that the run may use.
    tools: Arc<ToolSet>,
    task: String,
    inbox: PlanInbox,
    shortener: Shortener,
    /// The index of the task in the context.
    start: usize,
    /// Most model calls.
    limit: u32,
    texts: Texts,
    /// Set when the model ended the step with `terminate`.
    ended: Option<Terminated>,
}

#[async_trait]
impl LoopDelegate for StepDelegate<'_> {
    async fn check_signals(&mut self) -> LoopSignal {
        match self.core.stopped() {
            Some(reason) => LoopSignal::Stop(reason),
            None => self.inbox.take().await.map_or(LoopSignal::Continue, LoopSignal::InjectMessage),
        }
    }

    async fn on_injected(&mut self, _context: &LoopContext) -> Result<(), LoopError> {
        self.texts.forget(); // only texts after the new message count
        self.inbox.keep().await
    }

    fn meter(&self) -> Meter {
        self.core.meter()
    }

    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome> {
        if let Some(end) = self.core.at_step().await {
            return Some(LoopOutcome::Stopped(end));
        }
        if iteration == self.limit {
            context.push(Message::system(texts::LAST_CALL).for_run());
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

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        self.texts.hear(&text, &MANNER, &self.task, &mut self.core, context).await
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        self.texts.forget();
        let bind = binder(self.children, &self.core, context, &self.tools);
        let ended = self.core.execute(calls, context, &self.tools, &bind).await?.ended;
        if let Some(reason) = self.core.stopped() {
            return Ok(Some(LoopOutcome::Stopped(reason.into())));
        }
        Ok(ended.map(|ended| {
            let end = ended.end(context.state.iteration);
            self.ended = Some(ended);
            LoopOutcome::Stopped(end)
        }))
    }

    async fn on_tool_intent_nudge(&mut self, _text: &str, context: &LoopContext) {
        self.core.note_nudge(context);
    }

    async fn after_iteration(&mut self, iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.core.after_step(iteration).await;
        self.core.note_guardrails(context);
        Ok(())
    }
}
