//! Errors in the OpenAI format, also for failed runs.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use belay_protocol::{RunRecord, StopReason};
use serde::Serialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::foreign::shown;

/// Tells OpenAI clients whether to retry automatically. A failed run has already made its own retries.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// `{"error":{"message","type","param","code"}}` with its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenAiError {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) code: &'static str,
    pub(super) param: Option<String>,
    pub(super) message: Cow<'static, str>,
    pub(super) retry_after: Option<Duration>,
    /// Whether a retry would only repeat a run, or get the same answer.
    pub(super) after_run: bool,
    /// The model's text that does not have the form of the request.
    pub(super) failed_generation: Option<Box<str>>,
}

impl OpenAiError {
    pub(super) fn new(
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            kind,
            code,
            param: None,
            message: message.into(),
            retry_after: None,
            after_run: false,
            failed_generation: None,
        }
    }

    /// 400: this parameter is invalid. What the message has of the client is [`shown`].
    pub(crate) fn invalid(param: impl AsRef<str>, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let param = Some(shown(param.as_ref()));
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", code, message) }
    }

    /// The same about this parameter.
    pub(super) fn about(self, param: &str) -> Self {
        Self { param: Some(param.to_owned()), ..self }
    }

    /// 404: no such model.
    pub(crate) fn model_not_found(model: &str) -> Self {
        let message = format!("the model \"{}\" does not exist; GET /v1/models lists those that do", shown(model));
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "model_not_found", message).about("model")
    }

    /// The run continues beyond the longest wait.
    pub(crate) fn still_running(run: &str) -> Self {
        let message = format!("the run {run} continues beyond the longest wait; read its end at /api/v1/runs/{run}");
        // Not 503, which clients answer with the same request: that would be a second run beside this one.
        Self { after_run: true, ..Self::new(StatusCode::BAD_REQUEST, "server_error", "still_running", message) }
    }

    /// 409: the last message was taken by nobody. The same request gets the same answer.
    pub(crate) fn not_taken(message: &'static str) -> Self {
        let status = StatusCode::CONFLICT;
        Self { after_run: true, ..Self::new(status, "invalid_request_error", "conflict", message) }
    }

    /// A run that failed.
    pub(crate) fn failed(run: &RunRecord) -> Self {
        let (status, kind) = end_of(run);
        let code = match run.reason {
            Some(StopReason::CostRefused | StopReason::ProviderQuota) => "insufficient_quota",
            Some(StopReason::ContextTooLong) => "context_length_exceeded",
            Some(reason) => reason.word(),
            None => "internal",
        };
        let line = run.reason.map_or("the run failed", StopReason::user_line);
        let message = run.reply.clone().filter(|reply| !reply.is_empty()).map_or(Cow::Borrowed(line), Cow::Owned);
        let failed_generation = run.evidence.get("text").and_then(Value::as_str).map(Box::from);
        Self { after_run: true, failed_generation, ..Self::new(status, kind, code, message) }
    }

    /// The body. A stream that fails midway sends it too.
    pub(crate) fn body(&self) -> Value {
        let Self { message, kind, param, code, failed_generation, .. } = self;
        let (param, failed_generation) = (param.as_deref(), failed_generation.as_deref());
        let body = OpenAiErrorBody { error: OpenAiErrorFields { message, kind, param, code, failed_generation } };
        serde_json::to_value(body).unwrap_or_default() // its fields are texts
    }
}

/// The status and the type of the error for a failed run. Many clients repeat a request after 408, 409, 422, 429 and each
/// 5xx, also one that has had effects. So only a run without a tool call has such a status, if its failure may pass.
/// `docs/reference/clients.md` says who repeats what.
fn end_of(run: &RunRecord) -> (StatusCode, &'static str) {
    let reason = run.reason.unwrap_or(StopReason::Internal);
    let passing = match reason {
        StopReason::RateLimited => Some((StatusCode::TOO_MANY_REQUESTS, "rate_limit_error")),
        StopReason::Network | StopReason::ProviderError => Some((StatusCode::BAD_GATEWAY, "server_error")),
        StopReason::Overloaded => Some((StatusCode::SERVICE_UNAVAILABLE, "server_error")),
        StopReason::Internal => Some((StatusCode::INTERNAL_SERVER_ERROR, "server_error")),
        _ => None,
    };
    match (passing, reason) {
        (Some(passing), _) if run.usage.tool_calls == 0 => passing,
        (Some((_, kind)), _) => (StatusCode::BAD_REQUEST, kind),
        (None, StopReason::CostRefused | StopReason::ProviderQuota) => {
            (StatusCode::PAYMENT_REQUIRED, "insufficient_quota")
        }
        (None, StopReason::ProviderAuth | StopReason::HookRefused | StopReason::ApprovalUnavailable) => {
            (StatusCode::FORBIDDEN, "permission_error")
        }
        (None, StopReason::UnknownModel) => (StatusCode::NOT_FOUND, "invalid_request_error"),
        (None, StopReason::ContextTooLong | StopReason::BadRequest | StopReason::MissingOutputs) => {
            (StatusCode::BAD_REQUEST, "invalid_request_error")
        }
        (None, _) => (StatusCode::BAD_REQUEST, "server_error"),
    }
}

/// The body of an error in the format of this API.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OpenAiErrorBody<'a> {
    error: OpenAiErrorFields<'a>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OpenAiError"))]
pub(crate) struct OpenAiErrorFields<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    /// The field that is wrong.
    param: Option<&'a str>,
    code: &'a str,
    /// The last text of a model that does not have the form of `response_format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_generation: Option<&'a str>,
}

impl From<ApiError> for OpenAiError {
    fn from(error: ApiError) -> Self {
        let (status, kind, code) = match error.status {
            StatusCode::UNAUTHORIZED => (error.status, "invalid_request_error", "invalid_api_key"),
            StatusCode::FORBIDDEN => (error.status, "permission_error", error.code.word()),
            StatusCode::TOO_MANY_REQUESTS => (error.status, "rate_limit_error", error.code.word()),
            // This API has no 422: a request of the wrong shape is a bad request.
            StatusCode::UNPROCESSABLE_ENTITY => (StatusCode::BAD_REQUEST, "invalid_request_error", error.code.word()),
            status if status.is_server_error() => (status, "server_error", error.code.word()),
            status => (status, "invalid_request_error", error.code.word()),
        };
        let param = error.param().map(shown);
        Self { param, retry_after: error.retry_after, ..Self::new(status, kind, code, error.message) }
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if self.after_run {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if let Some(delay) = self.retry_after {
            headers.insert(RETRY_AFTER, ApiError::retry_after_header(delay));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(axum::http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
