//! Errors of the start ([`GatewayError`]) and of one request (`ApiError`).

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use belay_protocol::{Ack, Refusal, Seq, StoreError};
use serde::Serialize;

/// The gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The configuration cannot be used.
    #[error("{}", .0.join("; "))]
    Config(Vec<String>),
    /// Without a token, anybody on the network could control the daemon.
    #[error(
        "gateway.listen: {0} can be reached from other machines, and no token is configured; set BELAY_TOKEN (or gateway.token_file), or listen on 127.0.0.1"
    )]
    Insecure(SocketAddr),
    /// The host name cannot be resolved.
    #[error("gateway.listen: {address} cannot be resolved: {source}")]
    Resolve {
        /// As configured.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The address is in use or not local.
    #[error("gateway.listen: cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another daemon answers on the control socket.
    #[error("another Belay is running: its control socket {0} answers")]
    SocketInUse(PathBuf),
    /// The group of the control socket cannot be used.
    #[error("gateway.control_group: {name}: {what}")]
    Group {
        /// As configured.
        name: String,
        /// The cause, and what to do.
        what: String,
    },
    /// The control socket cannot be made.
    #[error("control socket {path}: {source}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

fn hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::AddrInUse => "; is another Belay running? gateway.listen chooses another port",
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}

/// An error response: a status and `{"error":{"code","message","retryable","retry_after_ms"?}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
    pub(crate) retryable: bool,
    pub(crate) retry_after: Option<Duration>,
}

/// The delay after which a client may try again while Belay is frozen. 30 s: a person ends the freeze.
const FROZEN_RETRY: Duration = Duration::from_secs(30);

/// Delay before a retry of an upload beyond the daily limit. 1 h: the limit counts the last 24 hours.
const UPLOAD_RETRY: Duration = Duration::from_secs(3600);

/// Delay before a retry when one of the gateway's queues is full. 1 s: the smallest `Retry-After`.
const BUSY_RETRY: Duration = Duration::from_secs(1);

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), retryable: false, retry_after: None }
    }

    fn again_after(self, delay: Duration) -> Self {
        Self { retryable: true, retry_after: Some(delay), ..self }
    }

    fn again(self) -> Self {
        Self { retryable: true, ..self }
    }

    /// 400: not JSON, not UTF-8, or not a request at all.
    pub(crate) fn bad_request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 400: the cursor names an event that does not exist.
    pub(crate) fn invalid_cursor(field: &str, asked: Seq, newest: Seq) -> Self {
        let message = format!("{field}: there is no event {} yet; the newest is {}", asked.0, newest.0);
        Self::bad_request("invalid_cursor", message)
    }

    /// 401: no token, or a wrong one.
    pub(crate) fn unauthorized(message: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 429: too many wrong tokens or webhook secrets from this address.
    pub(crate) fn too_many_attempts(wait: Duration) -> Self {
        let message = "too many wrong tokens or secrets came from this address; it is served again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", message).again_after(wait)
    }

    /// 403: authenticated, but not allowed.
    pub(crate) fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// 404.
    pub(crate) fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this route does not take that method; see the Allow header",
        )
    }

    /// 409: already done, or in a state that does not allow it.
    pub(crate) fn decided(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, "decided", message)
    }

    /// 413.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("the body is longer than {limit} bytes"))
    }

    /// 413: a file.
    pub(crate) fn file_too_large(message: String) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// 429: too many bytes of files within a day.
    pub(crate) fn upload_quota(message: String) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "upload_quota", message).again_after(UPLOAD_RETRY)
    }

    /// 415.
    pub(crate) fn unsupported(message: &'static str) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    }

    /// 422: JSON of the wrong shape.
    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
    }

    /// 422: a signed message that is too old, or from the future.
    pub(crate) fn stale(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "stale", message)
    }

    /// 503: a queue of the gateway is full.
    pub(crate) fn busy(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).again_after(BUSY_RETRY)
    }

    /// 503: no new message is accepted.
    pub(crate) fn shutting_down() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "Belay is shutting down").again()
    }

    /// 503: the agent did not answer.
    pub(crate) fn no_answer(message: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).again()
    }

    /// 500: a bug in Belay. The log has the details.
    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "an internal error occurred in Belay; see the log")
    }

    /// 500: the agent's answer does not fit the request.
    pub(crate) fn unexpected(ack: &Ack) -> Self {
        tracing::error!(?ack, "unexpected acknowledgement");
        Self::internal()
    }

    /// `Retry-After` in whole seconds, at least one.
    pub(crate) fn retry_after_header(delay: Duration) -> HeaderValue {
        HeaderValue::from(delay.as_millis().div_ceil(1000).clamp(1, 86_400) as u64)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::Busy { retry_after, .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", message).again_after(retry_after)
            }
            Refusal::Overloaded { retry_after, .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message).again_after(retry_after)
            }
            Refusal::Conflict { .. } | Refusal::ConflictWithCommand => {
                Self::new(StatusCode::CONFLICT, "conflict", message)
            }
            Refusal::Decided(_) => Self::decided(message),
            Refusal::Unknown(_) => Self::not_found(message),
            Refusal::Forbidden(_) => Self::forbidden(message),
            Refusal::ShuttingDown => Self::shutting_down(),
            Refusal::Frozen(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "frozen", message).again_after(FROZEN_RETRY)
            }
            Refusal::Invalid(_) => Self::invalid(message),
            Refusal::Store(detail) => {
                tracing::warn!(%detail, "a message could not be stored");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", "the message could not be stored").again()
            }
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(what) => Self::not_found(format!("not found: {what}")),
            error => {
                tracing::warn!(%error, "the store cannot be read");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", "the store cannot be read now").again()
            }
        }
    }
}

#[derive(Serialize)]
struct Wire<'a> {
    error: WireError<'a>,
}

#[derive(Serialize)]
struct WireError<'a> {
    code: &'a str,
    message: &'a str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = WireError {
            code: self.code,
            message: &self.message,
            retryable: self.retryable,
            retry_after_ms: self.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        };
        let mut response = (self.status, Json(Wire { error })).into_response();
        if let Some(delay) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, Self::retry_after_header(delay));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
