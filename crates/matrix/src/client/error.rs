//! Why a request to a homeserver has no result.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;

/// The delay assumed for a 429 without one.
const DEFAULT_LIMIT_WAIT: Duration = Duration::from_secs(5);

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The server was not reached: nothing has happened.
    #[error("not reached: {0}")]
    NotSent(String),
    /// The request was sent and no usable answer came: the server may have carried it out.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// Too many requests: nothing has happened.
    #[error("too many requests, wait {} ms", .0.as_millis())]
    Limited(Duration),
    /// The server failed, or a proxy before it answered with this status.
    #[error("server error {0}")]
    Server(u16),
    /// The room has several people and is not listed: nothing was sent.
    #[error("the room has several people and is not in channels.matrix.rooms")]
    Crowded,
    /// The server refused the request.
    #[error("refused with {status} {code}: {words}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Matrix: "Standard error response", `errcode`.
        code: String,
        /// The server's words.
        words: String,
    },
}

impl ApiError {
    /// Whether the access token is not valid. Matrix: `M_UNKNOWN_TOKEN`, `M_MISSING_TOKEN`.
    pub(crate) fn is_auth(&self) -> bool {
        matches!(self, Self::Refused { status: 401, .. })
    }

    /// Whether the server refused the request with this status.
    pub(crate) fn is(&self, wanted: u16) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == wanted)
    }
}

/// Matrix: "Standard error response".
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Failure {
    errcode: Option<String>,
    error: Option<String>,
    retry_after_ms: Option<f64>,
}

/// The error of an answer with this status.
pub(crate) fn failed(status: StatusCode, retry_after: Option<u64>, failure: Failure) -> ApiError {
    match status.as_u16() {
        429 => {
            let told = failure.retry_after_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
            ApiError::Limited(told.or(retry_after.map(Duration::from_secs)).unwrap_or(DEFAULT_LIMIT_WAIT))
        }
        status @ 500.. => ApiError::Server(status),
        status => {
            let words = belay_text::escaped_line(&failure.error.unwrap_or_default()).chars().take(300).collect();
            ApiError::Refused { status, code: failure.errcode.unwrap_or_default(), words }
        }
    }
}

/// The error of a request that got no answer.
pub(crate) fn unsent(error: reqwest::Error) -> ApiError {
    let is_unsent = error.is_connect() || error.is_builder();
    let words = words(error);
    if is_unsent { ApiError::NotSent(words) } else { ApiError::NoAnswer(words) }
}

/// The message of an error with its causes, without the address.
pub(crate) fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
