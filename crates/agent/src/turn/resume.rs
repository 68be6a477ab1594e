//! Resumes a turn after an earlier attempt: completes its open calls.

use belay_agent_loop::{AdmittedCall, AgenticLoopConfig, LoopContext, LoopDelegate, LoopError, LoopOutcome};

use belay_delegates::chat::ChatDelegate;
use belay_run::approvals::ApprovalAnswer;
use belay_run::effect_gate::open_calls;
use belay_run::terminate;

/// Gives each call of the earlier attempt that has no result its result, before the model is called. If a call needs a
/// person's answer first, the run pauses. Returns the outcome, if the run does not continue to the model.
pub(super) async fn resume(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
) -> Result<Option<LoopOutcome>, LoopError> {
    let start = delegate.turn_start.min(context.messages.len());
    let open = open_calls(&context.messages[start..]);
    if !open.is_empty() {
        let services = delegate.core.services.clone();
        let tools = delegate.reasoning.tools().clone();
        // If a person has answered for the first call, none of the calls had begun, so all of them are executed
        // normally.
        let answer = open.first().and_then(|call| delegate.core.answers.get(&call.id));
        let answered = answer.is_some_and(ApprovalAnswer::is_open);
        let admit = |call| match answered {
            true => AdmittedCall { call, refused: None },
            false => services.gate.after_restart(&tools, call),
        };
        let calls = open.into_iter().map(admit).collect();
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
