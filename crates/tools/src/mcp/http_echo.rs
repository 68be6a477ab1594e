//! Removes the token of a request from all that a server answers: some servers repeat the headers of a request. Models and
//! operators read the answers, and the log has them.

use std::error::Error;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::Sse;

use crate::mcp::oauth::Login;

type Failure = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Shortest token that is removed, in bytes. A shorter one is no secret, and would remove parts of words.
const MIN_TOKEN: usize = 8;

/// Most backslashes before one character of a token. 8: three JSON texts within each other need 7. A server may send
/// millions of them.
const MAX_BACKSLASHES: usize = 8;

/// What stands in place of the token.
const REMOVED: &str = "[token]";

/// The tokens that a server may repeat in its answer to one request.
pub(super) struct Echo {
    /// The token of the request.
    used: Option<String>,
    /// Its newest token may come in a stream that is older than the token.
    login: Option<Arc<Login>>,
}

impl Echo {
    pub(super) fn new(used: Option<&str>, login: Option<&Arc<Login>>) -> Self {
        Self { used: used.map(str::to_owned), login: login.cloned() }
    }

    /// The answer to a message, without the tokens.
    pub(super) fn answer(
        self,
        answer: Result<StreamableHttpPostResponse, Failure>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        match answer {
            Ok(StreamableHttpPostResponse::Sse(events, session)) => {
                Ok(StreamableHttpPostResponse::Sse(self.events(events), session))
            }
            Ok(StreamableHttpPostResponse::Json(message, session)) => {
                Ok(StreamableHttpPostResponse::Json(self.message(message)?, session))
            }
            Ok(other) => Ok(other),
            Err(failure) => Err(self.failure(failure)),
        }
    }

    /// The events of a stream, without the tokens.
    pub(super) fn events(self, events: Events) -> Events {
        let clean = move |event: Sse| {
            let name = event.event.map(|text| self.removed(&text).unwrap_or(text));
            let data = event.data.map(|text| self.removed_from_json(&text).unwrap_or(text));
            Sse { event: name, data, ..event }
        };
        events.map(move |event| event.map(&clean)).boxed()
    }

    /// The failure, without the tokens.
    pub(super) fn failure(&self, failure: Failure) -> Failure {
        let clean = |text: String| self.removed(&text).unwrap_or(text);
        match failure {
            StreamableHttpError::AuthRequired(asked) => {
                StreamableHttpError::AuthRequired(AuthRequiredError::new(clean(asked.www_authenticate_header)))
            }
            StreamableHttpError::InsufficientScope(asked) => {
                let scope = asked.required_scope.map(clean);
                let header = clean(asked.www_authenticate_header);
                StreamableHttpError::InsufficientScope(InsufficientScopeError::new(header, scope))
            }
            other => match self.removed(&words(&other)) {
                Some(words) => StreamableHttpError::UnexpectedServerResponse(words.into()),
                None => other,
            },
        }
    }

    fn message(&self, message: ServerJsonRpcMessage) -> Result<ServerJsonRpcMessage, Failure> {
        if self.tokens().is_empty() {
            return Ok(message);
        }
        Ok(match self.removed_from_json(&serde_json::to_string(&message)?) {
            Some(text) => serde_json::from_str(&text)?,
            None => message,
        })
    }

    /// The text without the tokens; `None`: it has none of them.
    fn removed(&self, text: &str) -> Option<String> {
        without_all(text, &self.tokens())
    }

    /// The same for JSON, in which only texts change: a number or the name of a field may be the same as a token. A
    /// text that is no JSON changes as a whole.
    fn removed_from_json(&self, text: &str) -> Option<String> {
        let tokens = self.tokens();
        let clean = without_all(text, &tokens)?;
        match serde_json::from_str::<Value>(text) {
            Ok(mut value) => remove(&mut value, &tokens).then(|| value.to_string()),
            Err(_) => Some(clean),
        }
    }

    fn tokens(&self) -> Vec<String> {
        let newest = self.login.as_ref().and_then(|login| login.newest()).map(|token| token.expose().to_owned());
        let mut tokens: Vec<_> = self.used.iter().cloned().chain(newest).collect();
        tokens.retain(|token| token.len() >= MIN_TOKEN);
        tokens.dedup();
        tokens
    }
}

/// The words of a failure and its causes.
fn words(failure: &Failure) -> String {
    if let StreamableHttpError::UnexpectedServerResponse(words) = failure {
        return words.to_string();
    }
    let (mut words, mut cause) = (failure.to_string(), failure.source());
    while let Some(next) = cause {
        words = format!("{words}: {next}");
        cause = next.source();
    }
    words
}

/// Removes the tokens from the texts of a value; returns whether it had one.
fn remove(value: &mut Value, tokens: &[String]) -> bool {
    match value {
        Value::String(text) => without_all(text, tokens).map(|clean| *text = clean).is_some(),
        // Each is looked at, also behind one that had a token.
        Value::Array(items) => items.iter_mut().map(|item| usize::from(remove(item, tokens))).sum::<usize>() > 0,
        Value::Object(fields) => fields.values_mut().map(|field| usize::from(remove(field, tokens))).sum::<usize>() > 0,
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The text without the tokens; `None`: it has none of them.
fn without_all(text: &str, tokens: &[String]) -> Option<String> {
    tokens.iter().fold(None, |clean, token| {
        let next = without(clean.as_deref().unwrap_or(text), token);
        next.or(clean)
    })
}

/// The text without the token; `None`: it does not have the token.
fn without(text: &str, token: &str) -> Option<String> {
    let (mut clean, mut at, mut kept) = (String::new(), 0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        match length(rest, token) {
            Some(length) => {
                clean.push_str(text.get(kept..at)?);
                clean.push_str(REMOVED);
                at += length;
                kept = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    (kept > 0).then(|| clean + text.get(kept..).unwrap_or_default())
}

/// The length of the token with which the text begins, in bytes. The text may be JSON, with escapes in the token, such as `\/`
/// and `\u003d`, and may be cut off within the token.
fn length(text: &str, token: &str) -> Option<usize> {
    let mut rest = text;
    for (number, expected) in token.char_indices() {
        if rest.is_empty() && number >= MIN_TOKEN {
            break;
        }
        rest = match rest.strip_prefix(expected) {
            Some(rest) => rest,
            None => escaped(unescaped(rest)?, expected)?,
        };
    }
    Some(text.len() - rest.len())
}

/// What follows the backslashes with which the text begins; `None`: it begins with none.
fn unescaped(text: &str) -> Option<&str> {
    let count = text.bytes().take(MAX_BACKSLASHES).take_while(|byte| *byte == b'\\').count();
    text.get(count..).filter(|_| count > 0)
}

/// What follows the escaped character, without its backslash.
fn escaped(text: &str, expected: char) -> Option<&str> {
    if let Some(rest) = text.strip_prefix(expected) {
        return Some(rest);
    }
    let digits = text.strip_prefix('u')?.get(..4)?;
    (u32::from_str_radix(digits, 16) == Ok(u32::from(expected))).then(|| text.get(5..))?
}

#[cfg(test)]
mod tests;
