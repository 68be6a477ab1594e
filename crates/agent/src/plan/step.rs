//! One execution of a step: a child run of an executor, from its task to what the plan makes of its end.

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    Reasoning, TextAction, run_agentic_loop,
};
use belay_protocol::{Durability, Message, MessageBody, ModelErrorKind, RunEnd, StopLayer, StopReason};

use super::executors::Executor;
use super::words;
use crate::compaction::{Roomy, Shortener};
use crate::completion::signals_completion;
use crate::completion_check;
use crate::core::RunCore;
use crate::judge;
use crate::reply::{self, Reply};
use crate::subagent::binder;
use crate::terminate::Terminated;
use crate::turn::failure;

/// How a child run of a plan ended, as far as the plan cares.
#[derive(Debug)]
pub(super) enum ChildEnd {
    /// With a result.
    Done(String),
    /// It says that it cannot be done.
    GaveUp(String),
    /// It did not come to a result; another attempt may.
    Failed(String),
    /// The whole plan is at its end with it: somebody said stop, a limit of the run is reached, or the model cannot be
    /// asked.
    Over(RunEnd),
}

/// Runs an executor on its task. `core`: the child's own.
///
/// # Errors
/// The store does not answer.
pub(super) async fn execute(core: RunCore, executor: &Executor, task: String) -> Result<ChildEnd, LoopError> {
    let rules = core.rules.clone();
    let mut context = LoopContext::new(vec![Message::user(&task).into()]);
    let config = AgenticLoopConfig { max_iterations: executor.max_steps, rules, ..AgenticLoopConfig::default() };
    let limit = executor.max_steps;
    let reasoning = executor.reasoning.with_words(&core.briefing.rules());
    let mut delegate = StepDelegate {
        core,
        executor,
        task,
        shortener: Shortener::default(),
        start: 0,
        limit,
        nudged: false,
        ended: None,
    };
    let outcome = run_agentic_loop(&mut delegate, &reasoning, &mut context, &config).await;
    let StepDelegate { mut core, ended, .. } = delegate;
    let end = match (ended, outcome) {
        _ if core.stopped().is_some() => Ok(ChildEnd::Over(StopReason::ParentStopped.into())),
        (Some(Terminated { success, summary }), Ok(_)) => {
            let said = summary.or_else(|| last_words(&context));
            Ok(match success {
                true => ChildEnd::Done(said.unwrap_or_else(|| "Done.".to_owned())),
                false => ChildEnd::GaveUp(said.unwrap_or_else(|| "it says that it cannot do this".to_owned())),
            })
        }
        (None, outcome) => end_of_child(outcome),
        (_, Err(error)) => Err(error),
    };
    // Also where the store has not answered before: what has begun is to be seen to have ended.
    let written = core.journal.write(&context, Durability::Relaxed).await;
    let end = end?;
    written?;
    Ok(end)
}

/// What the end of a child run means to its plan.
///
/// # Errors
/// The store does not answer.
pub(super) fn end_of_child(outcome: Result<LoopOutcome, LoopError>) -> Result<ChildEnd, LoopError> {
    Ok(match outcome {
        Ok(LoopOutcome::Response(text)) if text.trim().is_empty() => {
            ChildEnd::Failed("it ended without a word".to_owned())
        }
        Ok(LoopOutcome::Response(text)) => ChildEnd::Done(text),
        Ok(LoopOutcome::Stopped(end)) => match end.reason.layer() {
            // The steps of a child are its own; everything else that is limited is the whole run's.
            StopLayer::Operator => ChildEnd::Over(end),
            StopLayer::Budget if end.reason != StopReason::MaxIterations => ChildEnd::Over(end),
            _ => ChildEnd::Failed(end.reason.user_line().to_owned()),
        },
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            ChildEnd::Failed(format!("it came to no end within its {iterations} steps"))
        }
        Ok(LoopOutcome::NeedApproval(pending)) => {
            ChildEnd::Failed(format!("{} needs an approval, and nobody can be asked", pending.call.name))
        }
        Err(error @ LoopError::Store(_)) => return Err(error),
        Err(error) => {
            // What no other attempt, and no other step, can mend ends the plan: the day's money, and a provider that does
            // not answer after all retries. A request that is refused or too long is this execution's own trouble.
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

/// The last text of the executor.
fn last_words(context: &LoopContext) -> Option<String> {
    let said = context.messages.iter().rev().filter(|said| matches!(said.body, MessageBody::Assistant { .. }));
    said.map(|message| message.text().trim()).find(|text| !text.is_empty()).map(str::to_owned)
}

/// Adapts the loop to an executor: it works by itself, and a text is not yet an end.
struct StepDelegate<'a> {
    core: RunCore,
    executor: &'a Executor,
    task: String,
    shortener: Shortener,
    /// Where the task stands in the context.
    start: usize,
    /// Model calls.
    limit: u32,
    /// Whether the text before this one was answered with a notice.
    nudged: bool,
    /// How it ended itself by `terminate`.
    ended: Option<Terminated>,
}

#[async_trait]
impl LoopDelegate for StepDelegate<'_> {
    async fn check_signals(&mut self) -> LoopSignal {
        self.core.stopped().map_or(LoopSignal::Continue, LoopSignal::Stop)
    }

    fn meter(&self) -> Meter {
        self.core.meter()
    }

    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome> {
        if iteration == self.limit {
            context.push(Message::system(words::LAST_CALL).for_run());
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
        Roomy { core, shortener, start }.call(reasoning, context, iteration).await
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        let text = match reply::shape(&text) {
            Reply::Text(text) => text,
            Reply::OnlyEchoes | Reply::Empty | Reply::Silent => String::new(),
        };
        if !text.is_empty() {
            context.push(Message::assistant(&text));
        }
        if !self.nudged && !signals_completion(&text) {
            self.nudged = true;
            context.push(Message::system(words::NUDGE).for_run());
            return TextAction::Continue;
        }
        if self.core.house.config.completion_check && !text.is_empty() {
            let step = context.state.iteration;
            // A store that does not answer shows itself at the next write; the text stands.
            let missing = completion_check::missing(&mut self.core, &self.task, &text, step).await.ok().flatten();
            if let Some(missing) = missing {
                let notice =
                    format!("A check of this answer says that something is missing: {missing}. {}", words::NUDGE);
                context.push(Message::system(notice).for_run());
                return TextAction::Continue;
            }
        }
        TextAction::Return(LoopOutcome::Response(text))
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        self.nudged = false;
        let tools = self.executor.reasoning.tools();
        let bind = binder(&self.core, context, tools);
        let ended = self.core.execute(calls, context, tools, &bind).await?.ended;
        if let Some(reason) = self.core.stopped() {
            return Ok(Some(LoopOutcome::Stopped(reason.into())));
        }
        Ok(ended.map(|ended| {
            let end = ended.end(context.state.iteration);
            self.ended = Some(ended);
            LoopOutcome::Stopped(end)
        }))
    }

    async fn after_iteration(&mut self, _iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.core.note_brakes(context);
        Ok(())
    }
}
