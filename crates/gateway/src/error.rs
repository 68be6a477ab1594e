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

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal: $($status:literal)*;)+) => {
        /// The code of an error response: a closed list. Programs decide by it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub(crate) enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $word)] $name,)+
        }

        impl ErrorCode {
            /// The word on the wire.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// Every code of the HTTP API with the statuses that it comes with.
            #[cfg(test)]
            pub(crate) const ALL: &'static [(Self, &'static [u16])] = &[$((Self::$name, &[$($status),*]),)+];
        }
    };
}

error_codes! {
    /// The body is not JSON.
    NotJson = "not_json": 400;
    /// The body or the path is not UTF-8.
    NotUtf8 = "not_utf8": 400;
    /// The body did not arrive in time.
    SlowBody = "slow_body": 400;
    /// The body broke off.
    BrokenBody = "broken_body": 400;
    /// `Last-Event-ID` or `since` is no number.
    BadEventId = "bad_event_id": 400;
    /// The cursor names no position of this list or stream.
    InvalidCursor = "invalid_cursor": 400;
    /// The request is no WebSocket upgrade.
    #[cfg_attr(not(feature = "websocket"), expect(dead_code, reason = "a build without sockets"))]
    NoUpgrade = "no_upgrade": 400;
    /// A header that decides who asks for what is present twice.
    DuplicateHeader = "duplicate_header": 400;
    /// A worker's request has an unknown path. Not part of the HTTP API.
    BadPath = "bad_path":;
    /// A worker's body cannot be read. Not part of the HTTP API.
    BadBody = "bad_body":;
    /// The id of a WebSocket request belongs to an unanswered request. Not part of the HTTP API.
    IdInUse = "id_in_use":;
    /// No token, or a wrong one; a signature or a secret that does not match.
    Unauthorized = "unauthorized": 401;
    /// Authenticated, but not allowed.
    Forbidden = "forbidden": 403;
    /// No such route, or nothing of this name.
    NotFound = "not_found": 404;
    /// The route does not take this method.
    MethodNotAllowed = "method_not_allowed": 405;
    /// The idempotency key belongs to another request.
    Conflict = "conflict": 409;
    /// It was already decided, or its state does not allow this.
    Decided = "decided": 409;
    /// The link has expired, or its file was deleted.
    Gone = "gone": 410;
    /// The body or the file is too long.
    TooLarge = "too_large": 413;
    /// The body is not of the expected content type, or compressed.
    UnsupportedMediaType = "unsupported_media_type": 415;
    /// A parameter or a field has the wrong shape. The message names it.
    Invalid = "invalid": 422;
    /// The MCP server, its authorization server, or the person has not let a login succeed; the message says why.
    LoginFailed = "login_failed": 422;
    /// The signed message is too old.
    Stale = "stale": 422;
    /// The backup could not be made; the message says why.
    BackupFailed = "backup_failed": 500;
    /// A queue is full. 429: the caller's own; 503: one of all callers.
    Busy = "busy": 429 503;
    /// Too many wrong tokens or secrets came from this address.
    TooManyAttempts = "too_many_attempts": 429;
    /// Too many bytes of files within a day.
    UploadQuota = "upload_quota": 429;
    /// An internal error. The log has the details.
    Internal = "internal": 500;
    /// Too much waits for the agent.
    Overloaded = "overloaded": 503;
    /// An operator has frozen the work.
    Frozen = "frozen": 503;
    /// The daemon drains.
    ShuttingDown = "shutting_down": 503;
    /// The agent did not answer.
    Unavailable = "unavailable": 503;
    /// The store cannot be used now.
    Store = "store": 503;
}

/// An error response: a status and `{"error":{"code","message","param"?,"retryable","retry_after_ms"?}}`.
///
/// A message about one field or parameter begins with its path and a colon, here and in the agent:
/// `trigger.when: …`, `attachments[1].data: …`. The answer has the path in `param` too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: ErrorCode,
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
    fn new(status: StatusCode, code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), retryable: false, retry_after: None }
    }

    fn again_after(self, delay: Duration) -> Self {
        Self { retryable: true, retry_after: Some(delay), ..self }
    }

    fn again(self) -> Self {
        Self { retryable: true, ..self }
    }

    /// 400: not JSON, not UTF-8, or not a request at all.
    pub(crate) fn bad_request(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 400: the cursor names an event that does not exist.
    pub(crate) fn invalid_cursor(field: &str, asked: Seq, newest: Seq) -> Self {
        let message = format!("{field}: there is no event {} yet; the newest is {}", asked.0, newest.0);
        Self::bad_request(ErrorCode::InvalidCursor, message)
    }

    /// 400: the cursor of a list names no row.
    pub(crate) fn no_such_row(what: &str) -> Self {
        let message = format!("after: {what}; begin the list again, without `after`");
        Self::bad_request(ErrorCode::InvalidCursor, message)
    }

    /// 401: no token, or a wrong one.
    pub(crate) fn unauthorized(message: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, message)
    }

    /// 429: too many wrong tokens or webhook secrets from this address.
    pub(crate) fn too_many_attempts(wait: Duration) -> Self {
        let message = "too many wrong tokens or secrets came from this address; it is served again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::TooManyAttempts, message).again_after(wait)
    }

    /// 403: authenticated, but not allowed.
    pub(crate) fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorCode::Forbidden, message)
    }

    /// 404.
    pub(crate) fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, message)
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            ErrorCode::MethodNotAllowed,
            "this route does not take that method; see the Allow header",
        )
    }

    /// 410: what a link opened is no longer there.
    pub(crate) fn gone(message: &'static str) -> Self {
        Self::new(StatusCode::GONE, ErrorCode::Gone, message)
    }

    /// 409: already done, or in a state that does not allow it.
    pub(crate) fn decided(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, ErrorCode::Decided, message)
    }

    /// 413.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge, format!("the body is longer than {limit} bytes"))
    }

    /// 413: a file.
    pub(crate) fn file_too_large(message: String) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge, message)
    }

    /// 429: too many bytes of files within a day.
    pub(crate) fn upload_quota(message: String) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::UploadQuota, message).again_after(UPLOAD_RETRY)
    }

    /// 415.
    pub(crate) fn unsupported(message: &'static str) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::UnsupportedMediaType, message)
    }

    /// 422: JSON of the wrong shape.
    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid, message)
    }

    /// 422: a login that did not succeed.
    pub(crate) fn login_failed(message: String) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::LoginFailed, message)
    }

    /// 422: a signed message that is too old, or from the future.
    pub(crate) fn stale(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Stale, message)
    }

    /// 503: a queue of the gateway is full.
    pub(crate) fn busy(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Busy, message).again_after(BUSY_RETRY)
    }

    /// 429: as many such requests as are answered at once are being answered.
    pub(crate) fn too_many(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy, message).again_after(BUSY_RETRY)
    }

    /// 503: no new message is accepted.
    pub(crate) fn shutting_down() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::ShuttingDown, "Belay is shutting down").again()
    }

    /// 503: the files of the store were deleted, replaced or overwritten. No attempt succeeds in this process.
    pub(crate) fn lost_store() -> Self {
        let message = "the store is lost until Belay is restarted: its files were deleted, replaced or overwritten; \
                       `belay status` has the next step";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Store, message)
    }

    /// 503: the agent did not answer.
    pub(crate) fn no_answer(message: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Unavailable, message).again()
    }

    /// 500: the machine failed during a backup; the message says how.
    pub(crate) fn backup_failed(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::BackupFailed, message)
    }

    /// 500: a bug in Belay. The log has the details.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            ErrorCode::Internal,
            "an internal error occurred in Belay; see the log",
        )
    }

    /// 500: the agent's answer does not fit the request.
    pub(crate) fn unexpected(ack: &Ack) -> Self {
        tracing::error!(?ack, "unexpected acknowledgement");
        Self::internal()
    }

    /// Names the field that the error is about, if it does not name one itself.
    pub(crate) fn about(mut self, field: &str) -> Self {
        if self.code == ErrorCode::Invalid && self.param().is_none() {
            self.message = format!("{field}: {}", self.message).into();
        }
        self
    }

    /// The path of the field, the parameter or the header that is wrong.
    pub(crate) fn param(&self) -> Option<&str> {
        if self.status.is_client_error() { leading_path(&self.message) } else { None }
    }

    /// `Retry-After` in whole seconds, at least one.
    pub(crate) fn retry_after_header(delay: Duration) -> HeaderValue {
        HeaderValue::from(delay.as_millis().div_ceil(1000).clamp(1, 86_400) as u64)
    }
}

/// The path at the beginning of a message: a name, or several with dots, with indices in brackets.
pub(crate) fn leading_path(message: &str) -> Option<&str> {
    let (path, _) = message.split_once(": ")?;
    let is_name = |part: &str| {
        let (name, index) = part.split_once('[').unwrap_or((part, "0]"));
        let index = index.strip_suffix(']').unwrap_or_default().replace("][", "");
        // A word in capitals is the name of a header.
        let first = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_') || name.contains('-');
        let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        first && rest && !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
    };
    path.split('.').all(is_name).then_some(path)
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::Busy { retry_after, .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy, message).again_after(retry_after)
            }
            Refusal::Overloaded { retry_after, .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, message).again_after(retry_after)
            }
            Refusal::Conflict { .. } | Refusal::ConflictWithCommand => {
                Self::new(StatusCode::CONFLICT, ErrorCode::Conflict, message)
            }
            Refusal::Decided(_) => Self::decided(message),
            Refusal::Unknown(_) => Self::not_found(message),
            Refusal::Forbidden(_) => Self::forbidden(message),
            Refusal::ShuttingDown => Self::shutting_down(),
            Refusal::Frozen(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Frozen, message).again_after(FROZEN_RETRY)
            }
            Refusal::Invalid(_) => Self::invalid(message),
            Refusal::Store(detail) => {
                tracing::warn!(%detail, "a message could not be stored");
                let cause =
                    public_cause(&detail).map_or_else(String::new, |cause| format!(": {cause}. Free space on it"));
                let message = format!("the message could not be stored{cause}");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Store, message).again()
            }
        }
    }
}

/// The cause of a failure of the store that everybody may read. The rest may name files and tables; the log has it.
fn public_cause(detail: &str) -> Option<&'static str> {
    const CAUSES: [&str; 3] =
        ["the disk is full", "the disk of the database server is full", "the disk cannot be written"];
    CAUSES.into_iter().find(|cause| detail.contains(cause))
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(what) => Self::not_found(format!("not found: {what}")),
            StoreError::InvalidCursor(what) => Self::no_such_row(&what),
            error => {
                tracing::warn!(%error, "the store cannot be read");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Store, "the store cannot be read now").again()
            }
        }
    }
}

/// Marks a response as an error of the store, which may be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unstored;

/// The body of an error response.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ErrorBody"))]
pub(crate) struct Wire<'a> {
    error: WireError<'a>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Error"))]
struct WireError<'a> {
    code: ErrorCode,
    /// What is wrong, and the next step. For people.
    message: &'a str,
    /// The path of the field, or the name of the parameter or of the header, that is wrong: `trigger.when`,
    /// `attachments[1].data`. Absent: no single one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// The delay before the next attempt, in milliseconds; absent: none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = WireError {
            code: self.code,
            message: &self.message,
            param: self.param(),
            retryable: self.retryable,
            retry_after_ms: self.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        };
        let mut response = (self.status, Json(Wire { error })).into_response();
        if let Some(delay) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, Self::retry_after_header(delay));
        }
        if self.code == ErrorCode::Store {
            response.extensions_mut().insert(Unstored);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_at_the_beginning_of_a_message_is_the_field() {
        for (message, path) in [
            ("text: must not be empty", Some("text")),
            ("trigger.when: it is over", Some("trigger.when")),
            ("attachments[1].data: it is not base64", Some("attachments[1].data")),
            ("rows[0][12]: x", Some("rows[0][12]")),
            ("timeoutMs: at most 5", Some("timeoutMs")),
            ("X-Delivery-Id: must be 1 to 256 bytes", Some("X-Delivery-Id")),
            ("no such run: 7", None),
            ("Denied: it is late", None),
            ("the body must be a JSON object", None),
            ("a[x]: y", None),
            ("a[]: y", None),
            (".: y", None),
            (": y", None),
            ("", None),
        ] {
            assert_eq!(leading_path(message), path, "{message}");
        }
        let error = ApiError::invalid("answer yes or no").about("decision");
        assert_eq!((error.param(), &*error.message), (Some("decision"), "decision: answer yes or no"));
        assert_eq!(ApiError::invalid("text: too long").about("decision").param(), Some("text"));
        assert_eq!(ApiError::busy("wait: it is full").param(), None, "the request is not wrong");
    }

    #[test]
    fn a_refusal_names_the_full_disk_and_no_files() {
        for (detail, message) in [
            (
                "the disk is full (database or disk is full). Free space on it; nothing else is needed",
                "the message could not be stored: the disk is full. Free space on it",
            ),
            (
                "the disk cannot be written (disk I/O error): it is full",
                "the message could not be stored: the disk cannot be written. Free space on it",
            ),
            ("damaged: /var/lib/belay/belay.db", "the message could not be stored"),
        ] {
            assert_eq!(ApiError::from(Refusal::Store(detail.to_owned())).message, message);
        }
    }
}
