//! Why a request to a homeserver has no result.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;

/// The delay assumed for a 429 without one.
const DEFAULT_LIMIT_WAIT: Duration = Duration::from_secs(5);

/// Longest delay that a server may ask for.
const LIMIT_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The server was not reached: nothing has happened.
    #[error("not reached: {0}")]
    NotSent(String),
    /// The request was sent and no usable answer came: the server may have carried it out.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The answer is larger than the largest one that is read. The server has carried out the request.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
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
            let wait = told.or(retry_after.map(Duration::from_secs)).unwrap_or(DEFAULT_LIMIT_WAIT);
            ApiError::Limited(wait.min(LIMIT_WAIT_MAX))
        }
        status @ 500.. => ApiError::Server(status),
        // A refusal of the homeserver has a code. One of a proxy says nothing about the event; a size stays too large.
        status if failure.errcode.is_none() && !matches!(status, 401 | 413) => ApiError::Server(status),
        status => {
            let line = |text: Option<String>, max| {
                belay_text::escaped_line(&text.unwrap_or_default()).chars().take(max).collect::<String>()
            };
            ApiError::Refused { status, code: line(failure.errcode, 64), words: line(failure.error, 300) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, retry_after: Option<u64>, errcode: Option<String>) -> ApiError {
        let failure = Failure { errcode, ..Failure::default() };
        failed(StatusCode::from_u16(status).expect("a status"), retry_after, failure)
    }

    #[test]
    fn an_answer_of_a_proxy_is_no_refusal_and_no_server_chooses_long_delays_or_lines() {
        assert!(matches!(of(400, None, None), ApiError::Server(400)));
        assert!(of(401, None, None).is_auth());
        assert!(of(400, None, Some("M_UNKNOWN".into())).is(400));
        assert!(matches!(of(429, Some(u64::MAX), None), ApiError::Limited(wait) if wait == LIMIT_WAIT_MAX));
        let ApiError::Refused { code, .. } = of(400, None, Some("x\n".repeat(1000))) else { panic!("refused") };
        assert!(code.len() == 64 && !code.contains('\n'), "{code}");
    }
}
