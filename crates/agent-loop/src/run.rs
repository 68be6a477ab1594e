//! The inner loop.

use std::ops::ControlFlow::{self, Break, Continue};

use belay_protocol::{RunEnd, ToolCall};

use crate::config::AgenticLoopConfig;
use crate::context::{LoopContext, Reasoning};
use crate::delegate::{LlmTurn, LoopDelegate, LoopOutcome, LoopSignal, TextAction};
use crate::error::LoopError;
use crate::notices;
use crate::state::Step;
use crate::stops::{BatchCheck, Ran};

/// The result of one phase: continue with `T`, or leave the loop with this result.
type Flow<T = ()> = ControlFlow<Result<LoopOutcome, LoopError>, T>;

/// Runs the model and its tool calls in turn until the run ends.
///
/// One iteration: signals → stop policies → `before_llm_call` → `call_llm` → the reply → `after_iteration`. A text is
/// nudged, or passed to `handle_text_response`. Calls are discarded if the length limit cut them off, and held back if
/// the stop engine finds a loop. Otherwise they are executed, and the duplicate tracker and the policies judge their
/// results.
///
/// [`LoopState::iteration`](crate::LoopState::iteration) counts the iterations, so a run that is resumed from its
/// stored state continues the count.
///
/// # Errors
/// The errors of the delegate's `on_injected`, `call_llm`, `execute_tool_calls` and `after_iteration`, unchanged. The
/// context remains valid for a request: every call in it has its result.
///
/// # Cancel safety
/// Dropping the future drops the delegate's current operation. If it is dropped within `execute_tool_calls`, calls in
/// the context may have no results. [`LoopContext::answer_open_calls`] adds them before the context is used again.
pub async fn run_agentic_loop<D: LoopDelegate + ?Sized>(
    delegate: &mut D,
    reasoning: &Reasoning,
    context: &mut LoopContext,
    config: &AgenticLoopConfig,
) -> Result<LoopOutcome, LoopError> {
    if context.state.iteration == 0 {
        context.observe_request(config);
    }
    while let Some(iteration) = context.state.begin_iteration(config) {
        if let Break(end) = run_iteration(delegate, reasoning, context, config, iteration).await {
            return end;
        }
    }
    Ok(LoopOutcome::MaxIterations { iterations: context.state.iteration })
}

/// One model call and the actions that follow from the reply. Each `?` leaves the loop.
async fn run_iteration<D: LoopDelegate + ?Sized>(
    delegate: &mut D,
    reasoning: &Reasoning,
    context: &mut LoopContext,
    config: &AgenticLoopConfig,
    iteration: u32,
) -> Flow {
    apply_signals(delegate, context, config).await?;
    stop_if(context.on_step(config, &delegate.meter()))?;
    end_if(delegate.before_llm_call(context, iteration).await)?;
    let step = match or_fail(delegate.call_llm(reasoning, context, iteration).await)? {
        LlmTurn::Reply(reply)
            if reply.tool_calls.is_empty() && delegate.is_answer(&reply.text, reasoning.is_call(&reply.text)) =>
        {
            context.state.last_finish = reply.finish;
            Step::Answer { text: reply.text }
        }
        LlmTurn::Reply(reply) => context.on_reply(reply, reasoning, config),
        LlmTurn::Cut { text, verdict } => context.on_aborted_stream(&text, verdict),
        LlmTurn::Stopped(end) => Step::End(end),
    };
    match step {
        Step::End(end) => stop_if(Some(end))?,
        // The stop engine found a repetition and has told the model. Nothing that the reply asks for is done.
        Step::HeldBack => {}
        // First brake, the tool-intent nudge: a text announces a tool, or contains a call, and calls none.
        Step::Nudge { text, left } => {
            delegate.on_tool_intent_nudge(&text, context).await;
            notices::nudge(context, text, left);
        }
        Step::Answer { text } => match delegate.handle_text_response(text, context).await {
            TextAction::Return(outcome) => end_if(Some(outcome))?,
            TextAction::Continue => {}
        },
        // Second brake, truncated calls: the length limit cut the batch off, and none of it runs.
        Step::Discard { text, count } => notices::discarded_calls(context, text, count),
        Step::Execute { text, calls } => run_batch(delegate, reasoning, context, config, text, calls).await?,
    }
    or_fail(delegate.after_iteration(iteration, context).await)
}

/// Runs a batch of calls, unless the stop engine holds it back, and judges its results.
async fn run_batch<D: LoopDelegate + ?Sized>(
    delegate: &mut D,
    reasoning: &Reasoning,
    context: &mut LoopContext,
    config: &AgenticLoopConfig,
    text: String,
    calls: Vec<ToolCall>,
) -> Flow {
    // Third brake, unavailable tool: a call of it is refused with the list of tools.
    let (batch, admitted) = context.admit(text, calls, reasoning);
    let noticed = match context.check_batch(config, &batch, &delegate.meter(), reasoning.tools()) {
        BatchCheck::Run(noticed) => noticed,
        BatchCheck::HeldBack => return Continue(()),
        BatchCheck::End(end) => return stop_if(Some(end)),
    };
    let ending = delegate.execute_tool_calls(admitted, context).await;
    // Before an error leaves the loop: in every case, each call in the context gets its result.
    let paused = matches!(ending, Ok(Some(LoopOutcome::NeedApproval(_))));
    let all_failed = context.close_batch(&batch, paused);
    end_if(or_fail(ending)?)?;
    // Fourth brake, duplicate failures: every call of the same batch fails again. Then the stop policies.
    stop_if(context.judge_batch(config, &batch, Ran { all_failed, noticed, tools: reasoning.tools() }))
}

/// Reads signals until there is none. Messages of the person join the conversation when the delegate has stored them.
/// If the run ends first, none of them has joined.
async fn apply_signals<D: LoopDelegate + ?Sized>(
    delegate: &mut D,
    context: &mut LoopContext,
    config: &AgenticLoopConfig,
) -> Flow {
    let before = context.messages.len();
    let end = loop {
        match delegate.check_signals().await {
            LoopSignal::Continue if context.messages.len() == before => return Continue(()),
            LoopSignal::Continue => match delegate.on_injected(context).await {
                Ok(()) => return Continue(()),
                Err(error) => break Err(error),
            },
            LoopSignal::Stop(reason) => break Ok(LoopOutcome::Stopped(RunEnd::of(reason))),
            LoopSignal::InjectMessage(message) => {
                if let Some(end) = context.inject(config, message) {
                    break Ok(LoopOutcome::Stopped(end));
                }
            }
        }
    };
    context.messages.truncate(before);
    Break(end)
}

/// Leaves the loop if a rule or a signal ends the run.
fn stop_if(end: Option<RunEnd>) -> Flow {
    end_if(end.map(LoopOutcome::Stopped))
}

/// Leaves the loop if the run has an outcome.
fn end_if(outcome: Option<LoopOutcome>) -> Flow {
    outcome.map_or(Continue(()), |outcome| Break(Ok(outcome)))
}

/// Leaves the loop with an error of the delegate.
fn or_fail<T>(result: Result<T, LoopError>) -> Flow<T> {
    result.map_or_else(|error| Break(Err(error)), Continue)
}
