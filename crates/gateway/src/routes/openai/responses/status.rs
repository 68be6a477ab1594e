//! The status of a response, and what else its run says.

use belay_protocol::{RunRecord, RunStatus, StopLayer, UsedTokens};
use serde_json::{Value, json};

use crate::routes::openai::outcome::{End, Outcome};

/// The status of a response.
pub(super) fn status_of(outcome: &Outcome) -> &'static str {
    let run = &outcome.run;
    match &outcome.end {
        End::Calls(_) => "completed",
        End::Text { finish: "length" | "content_filter", .. } => "incomplete",
        End::Text { .. } if run.reason.is_some_and(|reason| reason.layer() == StopLayer::Operator) => "cancelled",
        End::Text { .. } => "completed",
        End::Error(_) => match run.status {
            RunStatus::Failed => "failed",
            RunStatus::Accepted | RunStatus::Queued => "queued",
            _ => "in_progress",
        },
    }
}

/// The data for programs that know Belay.
pub(super) fn belay_of(outcome: &Outcome) -> Value {
    let run: &RunRecord = &outcome.run;
    let mut belay = match &outcome.end {
        End::Text { belay: Some(belay), .. } => belay.clone(),
        _ => json!({}),
    };
    belay["run_id"] = json!(run.run_id);
    belay["session"] = json!(run.session);
    belay["status"] = json!(run.status);
    belay["reason"] = json!(run.reason);
    belay["cost_micro_usd"] = json!(run.cost_micro_usd);
    belay
}

/// The usage in the format of this API.
pub(super) fn usage(used: UsedTokens) -> Value {
    json!({
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input.saturating_add(used.output),
    })
}
