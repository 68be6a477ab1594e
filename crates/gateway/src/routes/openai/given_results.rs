//! The results that a request brings, against the calls that wait for them.

use belay_protocol::{ApprovalId, ClientCall, ClientResult, client_call_id};

use super::error::OpenAiError;
use super::request::ChatRequest;
use crate::foreign::shown;

/// Most calls that an error names.
const NAMED: usize = 10;

/// The ids of these calls for the client.
pub(super) fn ids_of(request: ApprovalId, calls: &[ClientCall]) -> Vec<String> {
    (0..calls.len()).map(|at| client_call_id(request, at)).collect()
}

/// Refuses results of calls that do not wait, and that the client does not show: they are of nothing. `open`: the calls that
/// wait.
pub(super) fn refuse_unknown(
    request: &ChatRequest,
    given: &[(String, String)],
    open: &[String],
) -> Result<(), OpenAiError> {
    let known = request.shown_calls();
    let unknown = given.iter().map(|(id, _)| id).filter(|id| !open.contains(id) && !known.contains(*id));
    let unknown: Vec<String> = unknown.take(NAMED).map(|id| format!("\"{}\"", shown(id))).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let message = format!(
        "there is no call {}; these calls wait for their results: {}. Nothing was taken",
        unknown.join(", "),
        open.join(", ")
    );
    Err(OpenAiError::invalid("messages", "invalid_value", message))
}

/// The results of these calls. Of two results of a call the first one counts.
pub(super) fn matched(
    request: ApprovalId,
    calls: &[ClientCall],
    given: &[(String, String)],
) -> Result<Vec<ClientResult>, OpenAiError> {
    let mut results = Vec::with_capacity(calls.len());
    let mut missing = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let id = client_call_id(request, at);
        match given.iter().find(|(given, _)| *given == id) {
            Some((_, text)) => results.push(ClientResult::of(call.id.clone(), text)),
            None => missing.push(id),
        }
    }
    if missing.is_empty() {
        return Ok(results);
    }
    let message = format!(
        "each call needs its result (a message of role tool, or a function_call_output); these calls have none: {}. Nothing \
         was taken; send all results together",
        missing.join(", ")
    );
    Err(OpenAiError::invalid("messages", "invalid_value", message))
}
