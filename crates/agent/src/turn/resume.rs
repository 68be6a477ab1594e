//! Resumes a turn after an earlier attempt: completes its open calls.

use belay_agent_loop::{AgenticLoopConfig, LoopContext, LoopDelegate, LoopError, LoopOutcome};

use belay_delegates::chat::ChatDelegate;
use belay_run::terminate;

/// Gives each call of the earlier attempt that has no result its result, before the model is called. If a call needs a
/// person's answer first, the run pauses. Returns the outcome, if the run does not continue to the model.
pub(super) async fn resume(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
) -> Result<Option<LoopOutcome>, LoopError> {
    let start = delegate.turn_start.min(context.messages.len());
    let tools = delegate.reasoning.tools().clone();
    let calls = delegate.open_calls(context, &tools);
    if !calls.is_empty() {
        if let Some(outcome) = delegate.execute_tool_calls(calls, context).await? {
            return Ok(Some(outcome));
        }
        let config = AgenticLoopConfig::with_rules(delegate.core.rules.clone());
        if let Some(end) = context.judge_last_batch(&config, &tools) {
            return Ok(Some(LoopOutcome::Stopped(end)));
        }
        delegate.after_iteration(context.state.iteration, context).await?;
    }
    let ended = terminate::ended(&context.messages[start..]);
    Ok(ended.map(|ended| {
        let end = ended.end(context.state.iteration);
        delegate.summary = ended.summary;
        LoopOutcome::Stopped(end)
    }))
}
