//! How calls fail: from a status, an error body, an error inside a stream, or a broken connection to a typed
//! [`ModelError`].
//!
//! Sources: OpenAI "Error codes", Anthropic "Errors", llama.cpp `tools/server` (`error: {code, message, type}`).

use std::time::Duration;

use belay_protocol::{ModelError, ModelErrorKind};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::bounds::{DETAIL_MAX_CHARS, ERROR_BODY_MAX_BYTES};

/// A broken or silent connection, or an answer that is not the protocol.
pub(crate) fn network(detail: impl AsRef<str>) -> ModelError {
    ModelError::new(ModelErrorKind::Network, bounded(detail.as_ref()))
}

/// A failure of the HTTP client, without the address: it may hold what nobody should read in a log.
pub(crate) fn from_client(error: reqwest::Error) -> ModelError {
    let what = if error.is_connect() {
        "cannot connect"
    } else if error.is_timeout() {
        "no answer in time"
    } else {
        "the connection broke"
    };
    let mut detail = what.to_owned();
    let error = error.without_url();
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !detail.contains(&text) {
            detail = format!("{detail}: {text}");
        }
        source = cause.source();
    }
    network(detail)
}

/// An answer with a status other than success.
pub(crate) fn from_status(status: u16, retry_after: Option<Duration>, body: &[u8]) -> ModelError {
    let told = Told::read(body);
    let kind = told.kind(Some(status), retry_after);
    ModelError::new(kind, bounded(&format!("HTTP {status}: {}", told.text())))
}

/// An error object where an answer was expected: inside a stream, or as the whole body of a success.
pub(crate) fn from_error_body(body: &[u8]) -> ModelError {
    let told = Told::read(body);
    ModelError::new(told.kind(None, None), bounded(&told.text()))
}

/// What an error body says.
#[derive(Default)]
struct Told {
    /// `code` and `type`, in lower case; what programs read.
    code: String,
    /// What people read.
    message: String,
    /// A status inside the body.
    status: Option<u16>,
}

impl Told {
    /// Reads `{"error": {...}}`, `{"error": "..."}`, a bare error object, or text. Error bodies are short and rare, so
    /// a tree of values is fine here.
    fn read(body: &[u8]) -> Self {
        let body = &body[..body.len().min(ERROR_BODY_MAX_BYTES)];
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return Self { message: String::from_utf8_lossy(body).into_owned(), ..Self::default() };
        };
        // Some servers (Gemini's) put the error into a list of one.
        let value = value.get(0).unwrap_or(&value);
        let error = value.get("error").filter(|e| !e.is_null()).unwrap_or(value);
        let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_lowercase();
        let message = [Some(error), error.get("message"), error.get("detail")]
            .into_iter()
            .flatten()
            .find_map(|v| v.as_str().map(str::to_owned))
            .unwrap_or_else(|| error.to_string());
        Self {
            code: format!("{} {} {}", word("code"), word("type"), word("status")),
            message,
            status: error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()),
        }
    }

    fn text(&self) -> String {
        match self.code.trim() {
            "" => self.message.clone(),
            code => format!("{} ({})", self.message, code.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }

    fn kind(&self, status: Option<u16>, retry_after: Option<Duration>) -> ModelErrorKind {
        let says = |words: &[&str]| words.iter().any(|word| self.code.contains(word));
        let status = status.or(self.status);
        // Out of credit comes as 429 from OpenAI and as 400 from Anthropic; waiting does not cure it.
        if says(&["insufficient_quota", "billing"]) || self.message.contains("credit balance is too low") {
            return ModelErrorKind::Auth;
        }
        if !matches!(status, Some(401..=403 | 429)) && self.overflows() {
            return ModelErrorKind::ContextTooLong;
        }
        match status {
            Some(429) => ModelErrorKind::RateLimited { retry_after },
            Some(401..=403) => ModelErrorKind::Auth,
            Some(408 | 409 | 425 | 500..) => ModelErrorKind::Overloaded { retry_after },
            Some(300..) => ModelErrorKind::BadRequest,
            _ if says(&["rate_limit", "resource_exhausted"]) => ModelErrorKind::RateLimited { retry_after },
            _ if says(&["authentication", "permission", "invalid_api_key"]) => ModelErrorKind::Auth,
            _ if says(&["invalid_request", "not_found", "bad_request", "invalid_argument", "unsupported"]) => {
                ModelErrorKind::BadRequest
            }
            _ => ModelErrorKind::Overloaded { retry_after },
        }
    }

    /// Whether the error tells of a context that is too long. There is no common code for it, so the providers' words
    /// are what there is.
    fn overflows(&self) -> bool {
        const CODES: [&str; 3] = ["context_length_exceeded", "exceed_context_size", "context_window_exceeded"];
        const WORDS: [&str; 9] = [
            "maximum context length",
            "prompt is too long",
            "exceed context limit",
            "exceeds the available context size",
            "exceeds the context",
            "context window",
            "context length exceeded",
            "input is too long",
            "input token count",
        ];
        let message = self.message.to_lowercase();
        CODES.iter().any(|code| self.code.contains(code)) || WORDS.iter().any(|word| message.contains(word))
    }
}

/// The delay that a server asks for: `retry-after-ms`, or `retry-after` in seconds or as a date (RFC 9110, 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str| text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    if let Some(delay) = text("retry-after-ms").and_then(seconds) {
        return Some(delay / 1000);
    }
    let value = text(RETRY_AFTER.as_str())?;
    seconds(value).or_else(|| {
        let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
        Some(Duration::try_from(until.duration_since(jiff::Timestamp::now())).unwrap_or_default())
    })
}

/// The text on one line, cut to what a log line holds.
pub(crate) fn bounded(text: &str) -> String {
    let mut out: String = text
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .flat_map(|word| [" ", word])
        .skip(1)
        .flat_map(str::chars)
        .take(DETAIL_MAX_CHARS + 1)
        .collect();
    if out.chars().count() > DETAIL_MAX_CHARS {
        out = out.chars().take(DETAIL_MAX_CHARS - 1).collect();
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NONE: Option<Duration> = None;

    #[test]
    fn statuses_and_bodies_become_kinds() {
        use ModelErrorKind::*;
        let overflow = r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":8192}}"#;
        for (status, body, kind) in [
            (429, r#"{"error":{"message":"slow down","type":"requests"}}"#, RateLimited { retry_after: NONE }),
            (429, r#"{"error":{"message":"no credit","code":"insufficient_quota"}}"#, Auth),
            (429, "too many requests: maximum context length", RateLimited { retry_after: NONE }),
            (401, "", Auth),
            (402, r#"{"error":"pay"}"#, Auth),
            (403, "<html>no</html>", Auth),
            (400, r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#, Auth),
            (400, overflow, ContextTooLong),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, ContextTooLong),
            (400, r#"{"type":"error","error":{"type":"x","message":"prompt is too long: 9 > 8"}}"#, ContextTooLong),
            (400, r#"{"object":"error","message":"This model's maximum context length is 8"}"#, ContextTooLong),
            (400, r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#, BadRequest),
            (404, r#"{"error":"model 'x' not found"}"#, BadRequest),
            (413, "", BadRequest),
            (422, r#"{"detail":[{"msg":"x"}]}"#, BadRequest),
            (307, "", BadRequest),
            (408, "", Overloaded { retry_after: NONE }),
            (409, "", Overloaded { retry_after: NONE }),
            (500, "", Overloaded { retry_after: NONE }),
            (503, r#"{"error":{"code":503,"message":"Loading model"}}"#, Overloaded { retry_after: NONE }),
            (529, r#"{"error":{"type":"overloaded_error"}}"#, Overloaded { retry_after: NONE }),
        ] {
            assert_eq!(from_status(status, None, body.as_bytes()).kind, kind, "{status} {body}");
        }
    }

    #[test]
    fn errors_inside_a_success_are_told_by_their_words() {
        use ModelErrorKind::*;
        for (body, kind) in [
            (r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overloaded { retry_after: NONE }),
            (r#"{"error":{"type":"rate_limit_error","message":"x"}}"#, RateLimited { retry_after: NONE }),
            (r#"{"error":{"code":"rate_limit_exceeded","message":"x"}}"#, RateLimited { retry_after: NONE }),
            (r#"{"error":{"type":"authentication_error","message":"x"}}"#, Auth),
            (r#"{"error":{"type":"invalid_request_error","message":"x"}}"#, BadRequest),
            (r#"{"error":{"code":400,"message":"x","type":"invalid_request_error"}}"#, BadRequest),
            (r#"{"error":{"code":500,"message":"x","type":"server_error"}}"#, Overloaded { retry_after: NONE }),
            (r#"{"error":{"code":400,"type":"exceed_context_size_error"}}"#, ContextTooLong),
            (r#"{"error":"something"}"#, Overloaded { retry_after: NONE }),
            (r#"{"error":7}"#, Overloaded { retry_after: NONE }),
            (r#"{"code":500,"message":"x","type":"server_error"}"#, Overloaded { retry_after: NONE }),
            ("\u{0}\u{1}not json", Overloaded { retry_after: NONE }),
        ] {
            assert_eq!(from_error_body(body.as_bytes()).kind, kind, "{body}");
        }
    }

    #[test]
    fn a_delay_is_read_in_each_of_its_forms() {
        let read = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(read("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(read("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(read("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        for nonsense in ["-1", "soon", "", "NaN", "1e400"] {
            assert_eq!(read("retry-after", nonsense), None, "{nonsense}");
        }
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(30);
        let date = jiff::fmt::rfc2822::to_string(&soon.to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
        let delay = read("retry-after", &date).unwrap();
        assert!((28..=30).contains(&delay.as_secs()), "{date} is {delay:?} away");
    }

    #[test]
    fn details_are_one_bounded_line() {
        assert_eq!(bounded("a\r\n\tb   c\u{7}d"), "a b c d");
        let long = bounded(&"é".repeat(9000));
        assert_eq!(long.chars().count(), DETAIL_MAX_CHARS);
        assert!(long.ends_with('…'));
    }
}
