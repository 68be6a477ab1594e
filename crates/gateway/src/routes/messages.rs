//! `POST /api/v1/messages`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belay_protocol::{
    Accepted, Ack, Body, ChannelId, CommandReply, DeclaredOutput, IdempotencyKey, Inbound, Principal, QueueMode,
    ReasoningShown, RunId, RunOptions, SessionKey, Thinking, UnixMillis,
};
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::checks::{check_key, check_text};
use crate::config::GatewayConfig;
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody};
use crate::files::{NewFile, take_all};
use crate::goal::NewGoal;
use crate::submit::check_options;

/// A message from a client.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMessage {
    session: String,
    text: String,
    idempotency_key: Option<String>,
    wait_ms: Option<u64>,
    attachments: Option<Vec<NewFile>>,
    /// Checked by the agent, which compiles the schemas.
    #[serde(default)]
    outputs: Vec<DeclaredOutput>,
    goal: Option<NewGoal>,
    thinking: Option<Thinking>,
    reasoning: Option<ReasoningShown>,
    verbose: Option<bool>,
    queue: Option<QueueMode>,
    timeout_ms: Option<u64>,
    /// Operators only.
    model: Option<String>,
    /// Checked by the agent.
    callback_url: Option<String>,
}

/// The answer for a committed message.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AcceptedMessage"))]
pub(crate) struct AcceptedBody {
    run_id: RunId,
    session: SessionKey,
    /// `queued`: a freeze keeps its run from beginning.
    #[cfg_attr(test, schemars(extend("enum" = ["accepted", "queued"])))]
    status: &'static str,
    accepted_at: UnixMillis,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
    /// What the person is told while a freeze keeps the run from beginning: by whom, since when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    frozen: Option<String>,
}

impl From<&Accepted> for AcceptedBody {
    fn from(accepted: &Accepted) -> Self {
        Self {
            run_id: accepted.run_id,
            session: accepted.session.clone(),
            status: if accepted.frozen.is_some() { "queued" } else { "accepted" },
            accepted_at: accepted.accepted_at,
            duplicate: accepted.duplicate,
            frozen: accepted.frozen.clone(),
        }
    }
}

/// The reply to a command, which starts no run.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnsweredCommand {
    /// Tells it from a run.
    #[cfg_attr(test, schemars(extend("enum" = ["command"])))]
    status: &'static str,
    #[serde(flatten)]
    reply: CommandReply,
}

impl From<CommandReply> for AnsweredCommand {
    fn from(reply: CommandReply) -> Self {
        Self { status: "command", reply }
    }
}

/// Accepts a message. With `wait_ms` it waits until the run has ended or waits for approval.
pub(crate) async fn send(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JsonBody(mut message): JsonBody<NewMessage>,
) -> Result<Response, ApiError> {
    let files = message.attachments.take().unwrap_or_default();
    let (inbound, wait) = message.check(&app.config, app.channel.clone(), principal.clone())?;
    let inbound = Inbound { provenance: take_all(&app, &principal, &files).await?, ..inbound };
    let accepted = match app.ask(inbound).await? {
        Ack::Accepted(accepted) => accepted,
        Ack::Command(reply) => return Ok(Json(AnsweredCommand::from(reply)).into_response()),
        other => return Err(ApiError::unexpected(&other)),
    };
    let body = AcceptedBody::from(&accepted);
    if let Some(limit) = wait
        && let Some(run) = app.wait_for_run(accepted.run_id, accepted.watch, limit).await?
        && run.status.is_ended_or_paused()
    {
        return Ok(Json(&*run).into_response());
    }
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

impl NewMessage {
    /// A message without options.
    #[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "a build without tools of MCP"))]
    pub(crate) fn plain(session: String, text: String, idempotency_key: Option<String>, wait_ms: Option<u64>) -> Self {
        Self { session, text, idempotency_key, wait_ms, ..Self::default() }
    }

    /// Converts the request to an inbound message, and returns how long to wait for its run.
    pub(crate) fn check(
        self,
        config: &GatewayConfig,
        channel: ChannelId,
        principal: Principal,
    ) -> Result<(Inbound, Option<Duration>), ApiError> {
        let session = SessionKey::parse(&self.session).map_err(|e| ApiError::invalid(format!("session: {e}")))?;
        let text = match self.goal {
            Some(goal) => goal.written(&self.text)?,
            None => self.text,
        };
        check_text(&text).map_err(|e| ApiError::invalid(format!("text: {e}")))?;
        let wait = self.wait_ms.map(Duration::from_millis);
        if wait.is_some_and(|wait| wait > config.max_wait()) {
            return Err(ApiError::invalid(format!("wait_ms: at most {}", config.max_wait_ms)));
        }
        let key = match self.idempotency_key {
            Some(text) => Some(IdempotencyKey {
                channel: channel.clone(),
                account: session.as_str().into(),
                message_id: check_key(&text).map_err(|e| ApiError::invalid(format!("idempotency_key: {e}")))?.into(),
            }),
            None => None,
        };
        let options = RunOptions {
            queue: self.queue,
            thinking: self.thinking,
            reasoning: self.reasoning,
            verbose: self.verbose,
            model: self.model,
            timeout_ms: self.timeout_ms,
            callback_url: self.callback_url,
            ..RunOptions::default()
        };
        check_options(&options, "timeout_ms", &principal)?;
        let inbound = Inbound {
            key,
            outputs: self.outputs,
            options,
            ..Inbound::new(channel, session, principal, Body::Text(text))
        };
        Ok((inbound, wait))
    }
}
