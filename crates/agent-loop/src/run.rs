//! The loop itself.

use belay_protocol::Message;

use crate::config::AgenticLoopConfig;
use crate::context::{LoopContext, Reasoning};
use crate::delegate::{LlmTurn, LoopDelegate, LoopOutcome, LoopSignal, TextAction};
use crate::error::LoopError;
use crate::notices;
use crate::state::Step;

/// Takes a run through model and tools until it ends.
///
/// One iteration: signals → `before_llm_call` → `call_llm` → a text (nudged, or handed to `handle_text_response`), or
/// calls (discarded when cut off by length, else executed, then judged by the duplicate tracker) → `after_iteration`.
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
        match delegate.check_signals().await {
            LoopSignal::Continue => {}
            LoopSignal::Stop(reason) => return Ok(LoopOutcome::Stopped(reason)),
            LoopSignal::InjectMessage(text) => context.push(Message::user(text)),
        }
        if let Some(outcome) = delegate.before_llm_call(context, iteration).await {
            return Ok(outcome);
        }
        let reply = match delegate.call_llm(reasoning, context, iteration).await? {
            LlmTurn::Reply(reply) => reply,
            LlmTurn::Stopped(reason) => return Ok(LoopOutcome::Stopped(reason)),
        };
        match context.state.accept(reply, reasoning.offered(&context.state).is_some(), config) {
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
                let ending = delegate.execute_tool_calls(admitted, context).await;
                let all_failed = context.settle(&batch, matches!(ending, Ok(Some(LoopOutcome::NeedApproval(_)))));
                if let Some(outcome) = ending? {
                    return Ok(outcome);
                }
                if let Some(count) = context.state.judge(batch.tool_calls(), all_failed) {
                    notices::duplicate_failures(context, count);
                }
            }
        }
        delegate.after_iteration(iteration, context).await?;
    }
    Ok(LoopOutcome::MaxIterations { iterations: context.state.iteration })
}
