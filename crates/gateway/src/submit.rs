//! The parameters of an RPC message, for WebSocket and HTTP.

use belay_protocol::options::EXTRA_PROMPT_MAX_BYTES;
use belay_protocol::{
    Body, DeclaredOutput, IdempotencyKey, Inbound, Principal, QueueMode, ReasoningShown, RunOptions, SessionKey,
    Thinking,
};
use serde::Deserialize;

use crate::app::App;
use crate::checks::{check_key, check_text};
use crate::error::ApiError;

/// Longest timeout of a message. A week: longer than any run should take; 0 is no limit.
const TIMEOUT_MAX_MS: u64 = 7 * 24 * 3600 * 1000;

/// Longest timeout for a client that is no operator. 10 minutes: the default for runs. More, or no limit, would exceed
/// the operator's limit.
const CLIENT_TIMEOUT_MAX_MS: u64 = 600_000;

/// The parameters of `agent`.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentParams {
    pub(crate) message: String,
    pub(crate) session_key: String,
    pub(crate) idempotency_key: String,
    pub(crate) thinking: Option<Thinking>,
    pub(crate) reasoning: Option<ReasoningShown>,
    pub(crate) verbose: Option<bool>,
    pub(crate) model: Option<String>,
    /// Active time in seconds; 0: no limit, for operators only.
    pub(crate) timeout: Option<u64>,
    pub(crate) queue_mode: Option<QueueMode>,
    pub(crate) extra_system_prompt: Option<String>,
    /// Checked by the agent.
    pub(crate) callback_url: Option<String>,
    /// Checked by the agent, which compiles the schemas.
    #[serde(default)]
    pub(crate) outputs: Vec<DeclaredOutput>,
}

impl AgentParams {
    /// Converts the parameters to an inbound message.
    ///
    /// # Errors
    /// A field is invalid, or this principal may not set it; the message names it.
    pub(crate) fn check(self, app: &App, principal: Principal, want_deltas: bool) -> Result<Inbound, ApiError> {
        let session =
            SessionKey::parse(&self.session_key).map_err(|e| ApiError::invalid(format!("sessionKey: {e}")))?;
        check_text(&self.message).map_err(|e| ApiError::invalid(format!("message: {e}")))?;
        let key = check_key(&self.idempotency_key).map_err(|e| ApiError::invalid(format!("idempotencyKey: {e}")))?;
        let options = RunOptions {
            queue: self.queue_mode,
            thinking: self.thinking,
            reasoning: self.reasoning,
            verbose: self.verbose,
            model: self.model,
            // A value that is far too large stays too large.
            timeout_ms: self.timeout.map(|seconds| seconds.saturating_mul(1000)),
            extra_prompt: self.extra_system_prompt,
            callback_url: self.callback_url,
            ..RunOptions::default()
        };
        check_options(&options, "timeout", &principal)?;
        let key =
            IdempotencyKey { channel: app.channel.clone(), account: session.as_str().into(), message_id: key.into() };
        Ok(Inbound {
            key: Some(key),
            want_deltas,
            outputs: self.outputs,
            options,
            ..Inbound::new(app.channel.clone(), session, principal, Body::Text(self.message))
        })
    }
}

/// Checks whether this principal may use these options. `timeout` is the name of that field in the request.
///
/// # Errors
/// 403 for a model, which only operators choose, and for a timeout above the client limit. 422 for texts that are too
/// long, and for a timeout above the limit for everybody.
pub(crate) fn check_options(options: &RunOptions, timeout: &str, principal: &Principal) -> Result<(), ApiError> {
    if options.model.is_some() && !principal.is_operator() {
        return Err(ApiError::forbidden("model: only an operator may choose the model of a run"));
    }
    if options.timeout_ms.is_some_and(|ms| ms > TIMEOUT_MAX_MS) {
        return Err(ApiError::invalid(format!(
            "{timeout}: at most {} s, a week; 0 is no limit",
            TIMEOUT_MAX_MS / 1000
        )));
    }
    let too_long = |ms: u64| ms == 0 || ms > CLIENT_TIMEOUT_MAX_MS;
    if options.timeout_ms.is_some_and(too_long) && !principal.is_operator() {
        let most = CLIENT_TIMEOUT_MAX_MS / 1000;
        return Err(ApiError::forbidden(format!(
            "{timeout}: only an operator may ask for no limit, or more than {most} s"
        )));
    }
    if options.extra_prompt.as_ref().is_some_and(|text| text.len() > EXTRA_PROMPT_MAX_BYTES) {
        return Err(ApiError::invalid(format!("extraSystemPrompt: at most {EXTRA_PROMPT_MAX_BYTES} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use belay_protocol::PrincipalRole;

    use super::*;

    #[test]
    fn nobody_asks_for_more_than_a_week() {
        let operator = Principal { id: "somebody".into(), role: PrincipalRole::Operator };
        for (ms, may) in [(604_800_000, true), (604_800_001, false), (u64::MAX, false), (0, true)] {
            let options = RunOptions { timeout_ms: Some(ms), ..RunOptions::default() };
            let refused = check_options(&options, "timeout", &operator).err().map(|error| error.status.as_u16());
            assert_eq!(refused, (!may).then_some(422), "{ms}");
        }
    }

    #[test]
    fn only_an_operator_asks_for_no_limit_or_for_a_long_time() {
        for (timeout_ms, client_may) in
            [(None, true), (Some(1), true), (Some(600_000), true), (Some(600_001), false), (Some(0), false)]
        {
            let options = RunOptions { timeout_ms, ..RunOptions::default() };
            for (role, may) in [(PrincipalRole::Client, client_may), (PrincipalRole::Operator, true)] {
                let checked = check_options(&options, "timeout", &Principal { id: "somebody".into(), role });
                assert_eq!(checked.is_ok(), may, "{timeout_ms:?} {role:?}");
            }
        }
    }
}
