//! The loop itself.

use belay_protocol::RunEnd;

use crate::config::AgenticLoopConfig;
use crate::context::{LoopContext, Reasoning};
use crate::delegate::{LlmTurn, LoopDelegate, LoopOutcome, LoopSignal, TextAction};
use crate::error::LoopError;
use crate::notices;
use crate::state::Step;
use crate::stops::{BatchCheck, Ran};

/// Takes a run through model and tools until it ends.
///
/// One iteration: signals → stop policies → `before_llm_call` → `call_llm` → a text (nudged, or handed to
/// `handle_text_response`), or calls (discarded when cut off by length, held back when they go in circles, else executed,
/// then judged by the duplicate tracker and the policies) → `after_iteration`.
/// Iterations are counted in [`LoopState::iteration`](crate::LoopState::iteration), so a run that is taken up again from
/// its stored state goes on counting.
///
/// # Errors
/// What the delegate's `call_llm`, `execute_tool_calls` and `after_iteration` return, unchanged. The context is left
/// such that it can be sent: every call in it has its result.
///
/// # Cancel safety
/// Dropping the future drops whatever the delegate awaits. Dropped within `execute_tool_calls`, it leaves calls without
/// results in the context; [`LoopContext::answer_open_calls`] gives them some before the context is used again.
pub async fn run_agentic_loop<D: LoopDelegate + ?Sized>(
    delegate: &mut D,
    reasoning: &Reasoning,
    context: &mut LoopContext,
    config: &AgenticLoopConfig,
) -> Result<LoopOutcome, LoopError> {
    while let Some(iteration) = context.state.begin_iteration(config) {
        if let Some(end) = apply_signals(delegate, context, config).await? {
            return Ok(LoopOutcome::Stopped(end));
        }
        if let Some(end) = context.on_step(config, &delegate.meter()) {
            return Ok(LoopOutcome::Stopped(end));
        }
        if let Some(outcome) = delegate.before_llm_call(context, iteration).await {
            return Ok(outcome);
        }
        let step = match delegate.call_llm(reasoning, context, iteration).await? {
            LlmTurn::Reply(reply) => context.on_reply(reply, reasoning, config),
            LlmTurn::Cut { text, verdict } => context.on_aborted_stream(&text, verdict),
            LlmTurn::Stopped(end) => Step::End(end),
        };
        match step {
            Step::End(end) => return Ok(LoopOutcome::Stopped(end)),
            Step::HeldBack => {}
            Step::Nudge { text } => {
                delegate.on_tool_intent_nudge(&text, context).await;
                notices::nudge(context, text);
            }
            Step::Answer { text } => match delegate.handle_text_response(text, context).await {
                TextAction::Return(outcome) => return Ok(outcome),
                TextAction::Continue => {}
            },
            Step::Discard { text, count } => notices::discarded_calls(context, text, count),
            Step::Execute { text, calls } => {
                let (batch, admitted) = context.admit(text, calls, reasoning);
                match context.check_batch(config, &batch, &delegate.meter()) {
                    BatchCheck::End(end) => return Ok(LoopOutcome::Stopped(end)),
                    BatchCheck::HeldBack => {}
                    BatchCheck::Run(noticed) => {
                        let ending = delegate.execute_tool_calls(admitted, context).await;
                        let paused = matches!(ending, Ok(Some(LoopOutcome::NeedApproval(_))));
                        let all_failed = context.close_batch(&batch, paused);
                        if let Some(outcome) = ending? {
                            return Ok(outcome);
                        }
                        let ran = Ran { all_failed, noticed, tools: reasoning.tools() };
                        if let Some(end) = context.judge_batch(config, &batch, ran) {
                            return Ok(LoopOutcome::Stopped(end));
                        }
                    }
                }
            }
        }
        delegate.after_iteration(iteration, context).await?;
    }
    Ok(LoopOutcome::MaxIterations { iterations: context.state.iteration })
}

/// Reads signals until there is none. What the person says joins the conversation when the delegate has taken note of it;
/// where the run ends first, nothing of it has joined.
async fn apply_signals<D: LoopDelegate + ?Sized>(
    delegate: &mut D,
    context: &mut LoopContext,
    config: &AgenticLoopConfig,
) -> Result<Option<RunEnd>, LoopError> {
    let before = context.messages.len();
    let ended = loop {
        match delegate.check_signals().await {
            LoopSignal::Continue if context.messages.len() == before => return Ok(None),
            LoopSignal::Continue => match delegate.on_injected(context).await {
                Ok(()) => return Ok(None),
                Err(error) => break Err(error),
            },
            LoopSignal::Stop(reason) => break Ok(Some(RunEnd::of(reason))),
            LoopSignal::InjectMessage(message) => {
                if let Some(end) = context.inject(config, message) {
                    break Ok(Some(end));
                }
            }
        }
    };
    context.messages.truncate(before);
    ended
}
