//! Refusals of requests as a whole, in the shape of JSON-RPC: clients of MCP read no other.

use axum::Json;
use axum::body::to_bytes;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// The body is no JSON.
///
/// Source of the codes: JSON-RPC 2.0, "Error object".
const PARSE_ERROR: i32 = -32700;

/// The body is JSON, and no message.
const INVALID_REQUEST: i32 = -32600;

/// The request is refused for another reason. The official SDKs use this code for it.
const REFUSED: i32 = -32000;

/// The session does not exist. The official SDK for TypeScript uses this code for it.
const NO_SESSION: i32 = -32001;

/// Longest text of the SDK that is put into an error, in bytes.
const MAX_TEXT: usize = 4096;

/// A refusal.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: i32,
    message: String,
    /// The id of the request, as far as it could be read.
    id: Value,
    /// What a program may decide by, beside the code.
    data: Option<Box<Value>>,
    headers: Box<HeaderMap>,
}

impl Refusal {
    fn new(status: StatusCode, code: i32, message: impl Into<String>, id: Value) -> Self {
        Self { status, code, message: message.into(), id, data: None, headers: Box::default() }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let data = json!({ "code": error.code.word(), "retryable": error.retryable });
        let wait = error.retry_after.map(|delay| (RETRY_AFTER, ApiError::retry_after_header(delay)));
        let refusal = Self::new(error.status, REFUSED, error.message, Value::Null);
        Self { data: Some(Box::new(data)), headers: Box::new(wait.into_iter().collect()), ..refusal }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = self.data {
            error["data"] = *data;
        }
        let body = Json(json!({ "jsonrpc": "2.0", "id": self.id, "error": error }));
        (self.status, *self.headers, body).into_response()
    }
}

/// Checks that a body is one message, and returns its id; `null`: it has none.
///
/// # Errors
/// 400: what is wrong with it.
pub(super) fn message_id(body: &[u8]) -> Result<Value, Refusal> {
    let bad = |code, message: String| Refusal::new(StatusCode::BAD_REQUEST, code, message, Value::Null);
    if body.is_empty() {
        return Err(bad(PARSE_ERROR, "the body is empty; send one JSON-RPC message".into()));
    }
    match serde_json::from_slice(body) {
        Err(error) => Err(bad(PARSE_ERROR, format!("the body is no JSON: {error}"))),
        Ok(Value::Object(message)) => id_of(&message),
        Ok(Value::Array(_)) => {
            Err(bad(INVALID_REQUEST, "there are no batches in this protocol; send one message in a request".into()))
        }
        Ok(_) => Err(bad(INVALID_REQUEST, "a message is a JSON object".into())),
    }
}

fn id_of(message: &Map<String, Value>) -> Result<Value, Refusal> {
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    let id = message.get("id");
    let told = id.filter(|id| is_id(id)).cloned().unwrap_or_default();
    let wrong = if message.get("jsonrpc").is_none_or(|version| version != "2.0") {
        "jsonrpc must be \"2.0\""
    } else if id.is_some_and(|id| !is_id(id)) {
        "id must be a text or a whole number"
    } else if message.get("method").is_some_and(|method| !method.is_string()) {
        "method must be a text"
    } else if message.get("params").is_some_and(|params| !params.is_object()) {
        "params must be an object"
    } else if !["method", "result", "error"].iter().any(|key| message.contains_key(*key)) {
        "a message has a method, or it is an answer with a result or an error"
    } else {
        return Ok(told);
    };
    Err(Refusal::new(StatusCode::BAD_REQUEST, INVALID_REQUEST, wrong, told))
}

/// Gives an error of the SDK that is bare text the shape of JSON-RPC. `id`: that of the request.
pub(super) async fn shaped(answer: Response, id: Value) -> Response {
    let status = answer.status();
    let kind = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !(status.is_client_error() || status.is_server_error()) || kind.starts_with(b"application/json") {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let text = to_bytes(body, MAX_TEXT).await.unwrap_or_default();
    let (status, code) = match status {
        // The type was right: it cannot read the message.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => (StatusCode::BAD_REQUEST, INVALID_REQUEST),
        StatusCode::NOT_FOUND => (status, NO_SESSION),
        _ => (status, REFUSED),
    };
    for header in [CONTENT_LENGTH, CONTENT_TYPE] {
        parts.headers.remove(header);
    }
    let refusal = Refusal::new(status, code, String::from_utf8_lossy(&text), id);
    Refusal { headers: Box::new(parts.headers), ..refusal }.into_response()
}
