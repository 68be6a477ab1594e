//! A message as the RPC takes it, over WebSocket and over HTTP alike.

use belay_protocol::options::EXTRA_PROMPT_MAX_BYTES;
use belay_protocol::{
    Body, DeclaredOutput, IdempotencyKey, Inbound, Principal, QueueMode, ReasoningShown, RunOptions, SessionKey,
    Thinking,
};
use serde::Deserialize;

use crate::app::App;
use crate::error::ApiError;
use crate::routes::{check_key, check_text};

/// Longest time at work that a message may ask for, in seconds: a week.
const TIMEOUT_MAX_S: u64 = 7 * 24 * 3600;

/// The parameters of `agent`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentParams {
    pub(crate) message: String,
    pub(crate) session_key: String,
    pub(crate) idempotency_key: String,
    pub(crate) thinking: Option<Thinking>,
    pub(crate) reasoning: Option<ReasoningShown>,
    pub(crate) verbose: Option<bool>,
    pub(crate) model: Option<String>,
    /// Seconds at work; 0: no limit.
    pub(crate) timeout: Option<u64>,
    pub(crate) queue_mode: Option<QueueMode>,
    pub(crate) extra_system_prompt: Option<String>,
    /// Checked by the agent, which compiles the schemas.
    #[serde(default)]
    pub(crate) outputs: Vec<DeclaredOutput>,
}

impl AgentParams {
    /// The message in our own form.
    ///
    /// # Errors
    /// A field cannot be used, or is not this principal's to set; the message names it.
    pub(crate) fn check(self, app: &App, principal: Principal, want_deltas: bool) -> Result<Inbound, ApiError> {
        let session =
            SessionKey::parse(&self.session_key).map_err(|e| ApiError::invalid(format!("sessionKey: {e}")))?;
        check_text(&self.message).map_err(|e| ApiError::invalid(format!("message: {e}")))?;
        let key = check_key(&self.idempotency_key).map_err(|e| ApiError::invalid(format!("idempotencyKey: {e}")))?;
        if self.timeout.is_some_and(|seconds| seconds > TIMEOUT_MAX_S) {
            return Err(ApiError::invalid(format!("timeout: at most {TIMEOUT_MAX_S} seconds; 0 is no limit")));
        }
        let options = RunOptions {
            queue: self.queue_mode,
            thinking: self.thinking,
            reasoning: self.reasoning,
            verbose: self.verbose,
            model: self.model,
            timeout_ms: self.timeout.map(|seconds| seconds * 1000),
            extra_prompt: self.extra_system_prompt,
            ..RunOptions::default()
        };
        check_options(&options, &principal)?;
        let key =
            IdempotencyKey { channel: app.channel.clone(), account: session.as_str().into(), message_id: key.into() };
        Ok(Inbound {
            channel: app.channel.clone(),
            session,
            principal,
            key: Some(key),
            reply_to: None,
            body: Body::Text(self.message),
            history: Vec::new(),
            want_deltas,
            outputs: self.outputs,
            relayed: false,
            options,
        })
    }
}

/// Whether this principal may ask that of a run.
///
/// # Errors
/// 403 for a model, which only operators choose; 422 for words that are too long.
pub(crate) fn check_options(options: &RunOptions, principal: &Principal) -> Result<(), ApiError> {
    if options.model.is_some() && !principal.is_operator() {
        return Err(ApiError::forbidden("model: only an operator may choose the model of a run"));
    }
    if options.extra_prompt.as_ref().is_some_and(|text| text.len() > EXTRA_PROMPT_MAX_BYTES) {
        return Err(ApiError::invalid(format!("extraSystemPrompt: at most {EXTRA_PROMPT_MAX_BYTES} bytes")));
    }
    Ok(())
}
