//! A job in a worker: the whole task is one call of `run_in_worker`, which passes the effect gate like any call.
//! Process, link, limits and end are those of every worker; the result of the worker is the result of the job.

use std::sync::Arc;

use belay_agent_loop::{AdmittedCall, LoopContext, LoopDelegate, LoopError, LoopOutcome};
use belay_protocol::{Arguments, Message, MessageBody, RunEnd, StopReason, ToolCall, ToolResult, ToolStatus};
use serde_json::{Value, json};

use crate::chat::ChatDelegate;
use belay_automation::jobs::{JobContext, text};
use belay_run::own_tools::RUN_IN_WORKER;

/// Runs the job in a worker.
///
/// # Errors
/// The store does not answer.
pub(super) async fn drive(
    turn: &mut ChatDelegate,
    context: &mut LoopContext,
    job: &JobContext,
) -> Result<LoopOutcome, LoopError> {
    let Some(workers) = turn.children.workers.clone() else {
        turn.summary = Some("Workers are not available any more.".to_owned());
        return Ok(LoopOutcome::Stopped(StopReason::Internal.into()));
    };
    let (budget, most) = (job.budget, &workers.config);
    let worked_at = |message: &Arc<Message>| message.tool_calls().iter().any(|call| call.name == RUN_IN_WORKER);
    let mut arguments = json!({
        "task": job.job.task,
        "max_turns": budget.max_steps.clamp(1, most.turns()),
        "max_time_s": (budget.max_time_ms / 1000).clamp(1, most.max_time_s),
    });
    if context.messages.iter().any(worked_at) {
        arguments["context"] = json!(text::WORKED_AT);
    }
    let call = ToolCall {
        id: format!("worker-{}", context.messages.len()).as_str().into(), // a new id after a restart
        name: RUN_IN_WORKER.to_owned(),
        arguments: Arguments::parse(&arguments.to_string()),
    };
    context.push(Message::assistant_calls("", vec![call.clone()]));
    if let Some(outcome) = turn.execute_tool_calls(vec![AdmittedCall { call, refused: None }], context).await? {
        return Ok(outcome);
    }
    let Some(MessageBody::Tool(result)) = context.messages.last().map(|message| &message.body) else {
        return Ok(LoopOutcome::Stopped(StopReason::Internal.into()));
    };
    let (end, said) = read(result);
    Ok(match end {
        None => {
            context.push(Message::assistant(&said));
            LoopOutcome::Response(said)
        }
        Some(reason) => {
            turn.summary = Some(said);
            LoopOutcome::Stopped(RunEnd::of(reason))
        }
    })
}

/// Reads the result of the call: the worker's text, or the reason of the failure with a line for people.
fn read(result: &ToolResult) -> (Option<StopReason>, String) {
    // People read it, and the first line of a marked result is a marker.
    let text = belay_text::untrusted::without(&result.text);
    let text = text.trim_end();
    let (facts, line) = text.split_once('\n').unwrap_or((text, text));
    let facts: Value = serde_json::from_str(facts).unwrap_or_default();
    let word = |key: &str| facts.get(key).and_then(Value::as_str);
    if result.status == ToolStatus::Success {
        return (None, word("result").unwrap_or(text).to_owned());
    }
    let reason = word("reason").and_then(StopReason::from_word).filter(|reason| !reason.user_line().is_empty());
    (Some(reason.unwrap_or(StopReason::GaveUp)), line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_the_workers_own_words_and_a_failure_has_its_reason() {
        for (status, text, expected) in [
            (ToolStatus::Success, "{\"result\":\"42\",\"turns\":2}\nThe worker completed its task.", (None, "42")),
            (ToolStatus::Success, "{\"result\":\"4… (cut)", (None, "{\"result\":\"4… (cut)")),
            (
                ToolStatus::Error,
                "{\"reason\":\"max_iterations\"}\nThe worker used up its steps.",
                (Some(StopReason::MaxIterations), "The worker used up its steps."),
            ),
            (ToolStatus::Error, "the walls are missing", (Some(StopReason::GaveUp), "the walls are missing")),
            (
                ToolStatus::Error,
                "<untrusted source=\"run_in_worker\" id=\"0123456789ab\">\nno container\n</untrusted id=\"0123456789ab\">",
                (Some(StopReason::GaveUp), "no container"),
            ),
            (
                ToolStatus::Success,
                "<untrusted source=\"w\" id=\"0123456789ab\">\n{\"result\":\"42\"}\nDone.\n</untrusted id=\"0123456789ab\">",
                (None, "42"),
            ),
        ] {
            let result = ToolResult { call_id: "c".into(), name: RUN_IN_WORKER.into(), status, text: text.into() };
            assert_eq!(read(&result), (expected.0, expected.1.to_owned()), "{text}");
        }
    }
}
