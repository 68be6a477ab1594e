//! The frames: requests, responses, events. Each text message is one JSON object.

use std::borrow::Cow;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::ApiError;

/// Longest id of a request, and longest `traceparent`, in bytes.
pub(super) const TEXT_MAX_BYTES: usize = 128;

/// A request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    #[serde(rename = "type")]
    _type: Kind,
    pub(crate) id: String,
    pub(crate) method: String,
    params: Option<Box<RawValue>>,
    /// For the client's own tracing; bounded and unused.
    traceparent: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Req,
}

/// A frame that is not a valid request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// It has an id: the client gets an error response.
    Answer(String, Cow<'static, str>),
    /// It has no usable id: the connection is closed for this reason.
    Close(&'static str),
}

impl Request {
    /// Reads a frame.
    pub(crate) fn read(text: &str) -> Result<Self, Malformed> {
        let wrong = match serde_json::from_str::<Self>(text) {
            Ok(request) if request.id.is_empty() || request.id.len() > TEXT_MAX_BYTES => {
                return Err(Malformed::Close("the id of a request has 1 to 128 bytes"));
            }
            Ok(request) if request.traceparent.as_ref().is_some_and(|text| text.len() > TEXT_MAX_BYTES) => {
                return Err(Malformed::Answer(request.id, "traceparent: at most 128 bytes".into()));
            }
            Ok(request) => return Ok(request),
            Err(wrong) => wrong,
        };
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(fields)) => match fields.get("id") {
                Some(Value::String(id)) if (1..=TEXT_MAX_BYTES).contains(&id.len()) => Err(Malformed::Answer(
                    id.clone(),
                    format!("a request is {{\"type\":\"req\",\"id\",\"method\",\"params\"?}}: {wrong}").into(),
                )),
                _ => Err(Malformed::Close("a frame without an id that is a text")),
            },
            Ok(_) => Err(Malformed::Close("a frame is a JSON object")),
            Err(_) => Err(Malformed::Close("a frame is JSON")),
        }
    }

    /// The raw parameters; an empty object if there are none.
    pub(crate) fn params(&self) -> &str {
        self.params.as_ref().map_or("{}", |params| params.get())
    }
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct RpcError {
    code: &'static str,
    message: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<Value>>,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl RpcError {
    /// The request is not valid.
    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: "INVALID_REQUEST", message: message.into(), details: None, retryable: false, retry_after_ms: None }
    }

    /// The connection lacks a scope.
    pub(crate) fn missing_scope(scope: &str) -> Self {
        let details = serde_json::json!({ "code": "MISSING_SCOPE", "missingScope": scope, "requiredScopes": [scope] });
        let message = format!("this needs the scope {scope}, which this connection does not have");
        Self { code: "FORBIDDEN", details: Some(Box::new(details)), ..Self::invalid(message) }
    }

    /// Whether authentication has failed.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.code == "UNAUTHORIZED"
    }
}

impl From<ApiError> for RpcError {
    fn from(error: ApiError) -> Self {
        let code = match error.status {
            StatusCode::UNAUTHORIZED => "UNAUTHORIZED",
            StatusCode::FORBIDDEN => "FORBIDDEN",
            StatusCode::NOT_FOUND => "NOT_FOUND",
            StatusCode::CONFLICT => "CONFLICT",
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
            status if status.is_client_error() => "INVALID_REQUEST",
            _ => "INTERNAL",
        };
        let mut details = serde_json::json!({ "reason": error.code.word() });
        if let Some(param) = error.param() {
            details["param"] = param.into();
        }
        Self {
            code,
            message: error.message,
            details: Some(Box::new(details)),
            retryable: error.retryable,
            retry_after_ms: error.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// The result of a request.
pub(crate) type Answer = Result<Value, RpcError>;

/// A response.
pub(crate) fn response(id: &str, answer: &Answer) -> String {
    #[derive(Serialize)]
    struct Response<'a> {
        r#type: &'static str,
        id: &'a str,
        ok: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<&'a Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a RpcError>,
    }
    let (payload, error) = (answer.as_ref().ok(), answer.as_ref().err());
    text(&Response { r#type: "res", id, ok: answer.is_ok(), payload, error })
}

/// An event.
pub(crate) fn event(name: &str, payload: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Event<'a, P> {
        r#type: &'static str,
        event: &'a str,
        payload: &'a P,
    }
    text(&Event { r#type: "event", event: name, payload })
}

fn text(frame: &impl Serialize) -> String {
    serde_json::to_string(frame).unwrap_or_else(|error| {
        // Our own types: all keys are strings, so this cannot happen.
        tracing::error!(%error, "a frame cannot be written");
        String::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_request_or_says_what_is_wrong_with_it() {
        let long = format!(r#"{{"type":"req","id":"{}","method":"m"}}"#, "x".repeat(129));
        let rows = [
            (r#"{"type":"req","id":"1","method":"m"}"#, "{}"),
            (r#"{"type":"req","id":"1","method":"m","params":{"a":1},"traceparent":"00-"}"#, r#"{"a":1}"#),
            (r#"{"type":"req","id":"1","method":"m","params":[1]}"#, "[1]"),
            (r#"{"type":"res","id":"1","method":"m"}"#, "answer 1"),
            (r#"{"type":"req","id":"1"}"#, "answer 1"),
            (r#"{"type":"req","id":"1","method":"m","token":"x"}"#, "answer 1"),
            (r#"{"type":"req","id":1,"method":"m"}"#, "close"),
            (r#"{"type":"req","id":"","method":"m"}"#, "close"),
            (r#"{"type":"req","method":"m"}"#, "close"),
            (long.as_str(), "close"),
            ("[]", "close"),
            ("null", "close"),
            ("", "close"),
            ("hello", "close"),
        ];
        for (frame, expected) in rows {
            let got = match Request::read(frame) {
                Ok(request) => request.params().to_owned(),
                Err(Malformed::Answer(id, _)) => format!("answer {id}"),
                Err(Malformed::Close(_)) => "close".into(),
            };
            assert_eq!(got, expected, "{frame}");
        }
    }

    #[test]
    fn frames_are_written_as_clients_read_them() {
        assert_eq!(response("a", &Ok(1.into())), r#"{"type":"res","id":"a","ok":true,"payload":1}"#);
        let error = RpcError::from(ApiError::busy("full"));
        assert_eq!(
            response("a", &Err(error)),
            r#"{"type":"res","id":"a","ok":false,"error":{"code":"UNAVAILABLE","message":"full","details":{"reason":"busy"},"retryable":true,"retryAfterMs":1000}}"#
        );
        assert_eq!(event("tick", &1), r#"{"type":"event","event":"tick","payload":1}"#);
    }
}
