//! Converts an error that ended a run into the end of that run.

use belay_agent_loop::LoopError;
use belay_protocol::{ModelError, ModelErrorKind, ProviderFault, ProviderRefusal, RunEnd, StopReason};

use crate::cost_guard;

fn reason_of(error: &ModelError) -> StopReason {
    let fault = error.refusal.as_ref().map(|refusal| refusal.fault);
    match error.kind {
        ModelErrorKind::RateLimited { .. } => StopReason::RateLimited,
        ModelErrorKind::Overloaded { .. } if fault == Some(ProviderFault::Server) => StopReason::ProviderError,
        ModelErrorKind::Overloaded { .. } => StopReason::Overloaded,
        ModelErrorKind::Auth if fault == Some(ProviderFault::Quota) => StopReason::ProviderQuota,
        ModelErrorKind::Auth => StopReason::ProviderAuth,
        ModelErrorKind::ContextTooLong => StopReason::ContextTooLong,
        ModelErrorKind::BadRequest if fault == Some(ProviderFault::UnknownModel) => StopReason::UnknownModel,
        ModelErrorKind::BadRequest => StopReason::BadRequest,
        ModelErrorKind::Network => StopReason::Network,
    }
}

/// Adds the provider's own error details to the end.
fn with_words(end: RunEnd, refusal: &ProviderRefusal) -> RunEnd {
    let ProviderRefusal { fault, status, code, message, key_from } = refusal;
    let mut end = end.with("provider_fault", fault.word());
    if let Some(status) = status {
        end = end.with("provider_status", *status);
    }
    for (key, words) in [("provider_code", code), ("provider_message", message), ("key_from", key_from)] {
        if !words.is_empty() {
            end = end.with(key, words.as_str());
        }
    }
    end
}

/// The end of a run that failed with this error.
pub fn failure(error: LoopError) -> RunEnd {
    match error {
        LoopError::CostRefused(short) => RunEnd::of(StopReason::CostRefused)
            .with("budget", cost_guard::setting(short.budget))
            .with("needed_micro_usd", short.needed_micro_usd)
            .with("spent_micro_usd", short.spent_micro_usd)
            .with("limit_micro_usd", short.limit_micro_usd),
        LoopError::Store(_) => RunEnd::of(StopReason::Internal).with("cause", "store"),
        LoopError::Model(error) => {
            let reason = reason_of(&error);
            let end = RunEnd::of(reason).with("requests", error.attempts).with("answers_begun", error.abandoned);
            let end = match &error.refusal {
                Some(refusal) => with_words(end, refusal),
                None => end,
            };
            match error.kind {
                ModelErrorKind::RateLimited { retry_after: Some(left) }
                | ModelErrorKind::Overloaded { retry_after: Some(left) } => {
                    end.with("retry_after_s", left.as_secs().max(1))
                }
                _ => end,
            }
        }
    }
}
