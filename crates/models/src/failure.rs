//! Maps failures of a call to a typed [`ModelError`]: a status, an error body, an error inside a stream, or a broken
//! connection.
//!
//! Sources: OpenAI "Error codes", Anthropic "Errors", llama.cpp `tools/server` (`error: {code, message, type}`).

use std::error::Error as _;
use std::io;
use std::time::Duration;

use belay_protocol::{
    ModelError, ModelErrorKind, ModelInfo, ModelRequest, ProviderFault, ProviderRefusal, Thinking, plain_line,
};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::bounds::{DETAIL_MAX_CHARS, ERROR_BODY_MAX_BYTES};
use crate::overflow::has_wording;

/// Longest error code that is stored, in characters.
const CODE_MAX_CHARS: usize = 64;

/// Why a connection could not be made, in words for people. The libraries below give most causes as text only.
fn connect_cause(error: &reqwest::Error) -> &'static str {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => return "the connection is refused; nothing listens there",
                io::ErrorKind::TimedOut => return "no connection in time",
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    return "the host is unreachable";
                }
                io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::UnexpectedEof => {
                    return "the server closed the connection";
                }
                _ => {}
            }
        }
        let text = cause.to_string().to_lowercase();
        if text.contains("dns error") {
            return "the name cannot be resolved (DNS)";
        }
        if ["certificate", "tls", "invalidcontenttype", "corrupt message", "handshake"]
            .iter()
            .any(|word| text.contains(word))
        {
            return "TLS fails";
        }
        source = cause.source();
    }
    if error.is_timeout() { "no connection in time" } else { "no connection" }
}

/// An error for a broken or silent connection, or for an answer that violates the protocol.
pub(crate) fn network(detail: impl AsRef<str>) -> ModelError {
    ModelError::new(ModelErrorKind::Network, bounded(detail.as_ref()))
}

/// Refuses options of a client that the interface does not support, before anything is sent.
pub(crate) fn refuse_unsupported(info: &ModelInfo, request: &ModelRequest<'_>) -> Result<(), ModelError> {
    let thinks = request.thinking.is_some_and(|level| level != Thinking::Off);
    match request.sampling.and_then(|sampling| info.sampling.refused(sampling, thinks)) {
        Some(what) => {
            let detail = format!("{}: {}", what.field, what.advice);
            Err(ModelError { attempts: 0, ..ModelError::new(ModelErrorKind::BadRequest, detail) })
        }
        None => Ok(()),
    }
}

/// The place of a server: scheme, host and port. The rest of an address may contain a secret.
pub(crate) fn place(url: &reqwest::Url) -> String {
    url.origin().ascii_serialization()
}

/// An error of the HTTP client, with the place of the server and the cause.
pub(crate) fn from_client(error: reqwest::Error) -> ModelError {
    let place = error.url().map_or_else(|| "the server".to_owned(), place);
    let what = if error.is_connect() {
        format!("cannot connect to {place}: {}", connect_cause(&error))
    } else if error.is_timeout() {
        format!("no answer from {place} in time")
    } else {
        format!("the connection to {place} broke")
    };
    let mut detail = what;
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

/// An error for an answer with a status other than success.
pub(crate) fn from_status(status: u16, retry_after: Option<Duration>, body: &[u8]) -> ModelError {
    let error_body = ErrorBody::read(body);
    let kind = error_body.kind(Some(status), retry_after);
    let error = ModelError::new(kind, bounded(&format!("HTTP {status}: {}", error_body.text())));
    ModelError { refusal: Some(Box::new(error_body.refusal(kind, Some(status)))), ..error }
}

/// An error for an error object instead of an answer: inside a stream, or as the body of a success.
pub(crate) fn from_error_body(body: &[u8]) -> ModelError {
    let error_body = ErrorBody::read(body);
    let kind = error_body.kind(None, None);
    let error = ModelError::new(kind, bounded(&error_body.text()));
    ModelError { refusal: Some(Box::new(error_body.refusal(kind, error_body.status))), ..error }
}

/// The content of an error body.
#[derive(Default)]
struct ErrorBody {
    /// `code`, `type` and `status`, in lower case, for programs.
    code: String,
    /// The first of these that is present, as it was sent.
    first_code: String,
    /// The text for people.
    message: String,
    /// A status in the body.
    status: Option<u16>,
}

impl ErrorBody {
    /// Parses an error body. A provider may quote what it was sent: people read the message, so the marks of untrusted
    /// content leave it.
    fn read(body: &[u8]) -> Self {
        let mut read = Self::parsed(body);
        belay_text::untrusted::unmark(&mut read.message);
        read
    }

    /// Parses `{"error": {...}}`, `{"error": "..."}`, a bare error object, or text. Error bodies are short and rare, so
    /// a tree of values is acceptable here.
    fn parsed(body: &[u8]) -> Self {
        let body = &body[..body.len().min(ERROR_BODY_MAX_BYTES)];
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return Self { message: readable(body), ..Self::default() };
        };
        // Some servers, such as Gemini's, put the error into a list with one element.
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
            first_code: ["code", "type", "status"]
                .iter()
                .find_map(|name| error.get(name).and_then(Value::as_str).filter(|word| !word.is_empty()))
                .unwrap_or_default()
                .to_owned(),
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

    /// The provider's refusal, for the log and for the person.
    fn refusal(&self, kind: ModelErrorKind, status: Option<u16>) -> ProviderRefusal {
        ProviderRefusal {
            fault: self.fault(kind, status),
            status,
            code: plain_line(&self.first_code, CODE_MAX_CHARS),
            message: plain_line(&without_keys(&self.message), DETAIL_MAX_CHARS),
            key_from: String::new(),
        }
    }

    fn fault(&self, kind: ModelErrorKind, status: Option<u16>) -> ProviderFault {
        match kind {
            ModelErrorKind::Auth if status == Some(402) || self.is_out_of_credit() => ProviderFault::Quota,
            ModelErrorKind::Auth => ProviderFault::Key,
            ModelErrorKind::RateLimited { .. } => ProviderFault::RateLimit,
            ModelErrorKind::ContextTooLong => ProviderFault::ContextTooLong,
            ModelErrorKind::BadRequest if self.is_about_the_model(status) => ProviderFault::UnknownModel,
            ModelErrorKind::BadRequest | ModelErrorKind::Network => ProviderFault::Request,
            ModelErrorKind::Overloaded { .. } => {
                let busy = matches!(status, Some(408 | 409 | 425 | 503 | 529)) || self.code.contains("overloaded");
                if busy { ProviderFault::Overloaded } else { ProviderFault::Server }
            }
        }
    }

    fn is_out_of_credit(&self) -> bool {
        let message = self.message.to_lowercase();
        ["insufficient_quota", "billing"].iter().any(|word| self.code.contains(word))
            || ["credit balance is too low", "insufficient balance"].iter().any(|words| message.contains(words))
    }

    /// Whether the model's name is refused. OpenAI, Groq: 404 `model_not_found`; Anthropic: 404 `not_found_error`,
    /// "model: x"; Ollama: 404 "model 'x' not found"; Mistral: 400 "Invalid model"; DeepSeek: 400 "Model Not Exist";
    /// OpenRouter: 400 "x is not a valid model ID".
    fn is_about_the_model(&self, status: Option<u16>) -> bool {
        const WORDS: [&str; 4] = ["invalid model", "unknown model", "no such model", "not a valid model"];
        let message = self.message.to_lowercase();
        self.code.contains("model_not_found")
            || (status == Some(404) && message.contains("model"))
            || WORDS.iter().any(|words| message.contains(words))
            || lacks_model(&message)
    }

    fn kind(&self, status: Option<u16>, retry_after: Option<Duration>) -> ModelErrorKind {
        let says = |words: &[&str]| words.iter().any(|word| self.code.contains(word));
        let status = status.or(self.status);
        // OpenAI reports exhausted credit as 429 and Anthropic as 400. Waiting does not help.
        if self.is_out_of_credit() {
            return ModelErrorKind::Auth;
        }
        // Not each 413: a proxy limits the size of a request too. See `overflow::by_size`.
        let overflows = || has_wording(&self.code, &self.message.to_lowercase());
        if !matches!(status, Some(401..=403 | 429)) && overflows() {
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
}

/// Whether the text says that a model does not exist: "model `x` not found", "models/x is not found". It is not enough
/// that the text mentions a model while something else does not exist.
fn lacks_model(text: &str) -> bool {
    const ABSENT: [&[&str]; 5] = [
        &["not", "found"],
        &["is", "not", "found"],
        &["was", "not", "found"],
        &["not", "exist"],
        &["does", "not", "exist"],
    ];
    let bare = |word: &'_ str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let words: Vec<String> = text.split_whitespace().map(bare).collect();
    (0..words.len()).any(|at| {
        let behind = match words[at].as_str() {
            // The name may follow the word, or be missing.
            "model" => vec![at + 1, at + 2],
            word if word.starts_with("models/") => vec![at + 1],
            _ => return false,
        };
        let says = |from: usize| ABSENT.iter().any(|absent| words.get(from..).is_some_and(|rest| begins(rest, absent)));
        behind.into_iter().any(says)
    })
}

fn begins(words: &[String], with: &[&str]) -> bool {
    words.len() >= with.len() && words.iter().zip(with).all(|(word, with)| word == with)
}

/// The text of a body for people, without the tags of a web page.
pub(crate) fn readable(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    if text.trim_start().starts_with('<') { text_of_page(&text) } else { text.into_owned() }
}

/// The text of a web page, without tags, scripts and styles.
fn text_of_page(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        text.push(' ');
        let tag = &rest[at..];
        // The content of these two elements is not text.
        let end = ["script", "style"].iter().find_map(|name| {
            let begins = tag.get(1..=name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name));
            begins.then(|| tag.find("</").map(|end| end + 1)).flatten()
        });
        let from = end.unwrap_or(0);
        rest = tag[from..].find('>').map_or("", |close| &tag[from + close + 1..]);
    }
    text + rest
}

/// The text without words that look like keys, because providers quote them.
fn without_keys(text: &str) -> String {
    const BEGINNINGS: [&str; 8] = ["sk-", "sk_", "gsk_", "xai-", "hf_", "AIza", "pk-", "key-"];
    let looks_like_key = |word: &&str| word.len() >= 16 && BEGINNINGS.iter().any(|begin| word.starts_with(begin));
    let ends_word = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*'));
    let keys: Vec<&str> = text.split(ends_word).filter(looks_like_key).collect();
    keys.into_iter().fold(text.to_owned(), |text, key| text.replace(key, "[key]"))
}

/// The delay that a server requests: `retry-after-ms`, or `retry-after` in seconds or as a date (RFC 9110, 10.2.3).
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

/// The text on one line, without words that look like keys, cut to the length of a log line.
pub(crate) fn bounded(text: &str) -> String {
    let mut out: String = without_keys(text)
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
mod tests;
