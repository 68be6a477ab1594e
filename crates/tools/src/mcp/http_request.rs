//! Sends a request of a session without the SDK, which does not tell the status of an answer with an error. Only with some
//! status an error can mean that the server does not know the session: else the call may have run.

use std::collections::HashMap;

use futures_util::future::ready;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcError, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use crate::mcp::incoming::readable;
use crate::mcp::oauth::challenges;

/// The header with the id of a session.
///
/// Source: MCP 2025-11-25, "Transports", "Session Management".
pub(super) const SESSION: &str = "Mcp-Session-Id";

/// Most bytes of the answer with which a server refuses a request.
const MAX_REFUSAL: usize = 64 * 1024;

type Failure = StreamableHttpError<reqwest::Error>;

/// The answer to a request.
pub(super) enum Answer {
    /// The request has an answer, or will have it in this stream.
    Taken(Box<StreamableHttpPostResponse>),
    /// 400, with these words or this error: the server refuses the request as a whole, or the tool has failed.
    Refused(String, Option<JsonRpcError>),
}

/// Completes a request of the SDK.
pub(super) fn prepared(
    request: RequestBuilder,
    session: Option<&str>,
    token: Option<&str>,
    headers: &HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    let request = request.header(ACCEPT, "text/event-stream, application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    let request = token.into_iter().fold(request, RequestBuilder::bearer_auth);
    session.into_iter().fold(request, |request, session| request.header(SESSION, session))
}

/// The value of a header of an answer.
pub(super) fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Sends a prepared request. `most`: the largest event and the largest answer in bytes.
///
/// # Errors
/// The connection fails, or the server refuses the request.
pub(super) async fn send(
    request: RequestBuilder,
    message: &ClientJsonRpcMessage,
    most: usize,
) -> Result<Answer, Failure> {
    let response = request.json(message).send().await?;
    let status = response.status();
    match status {
        StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
            return Ok(taken(StreamableHttpPostResponse::Accepted));
        }
        StatusCode::NOT_FOUND => return Err(StreamableHttpError::SessionExpired),
        _ => {}
    }
    match (status, challenges(response.headers())) {
        (StatusCode::UNAUTHORIZED, Some(asked)) => {
            return Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(asked)));
        }
        (StatusCode::FORBIDDEN, Some(asked)) => {
            return Err(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(asked, None)));
        }
        _ => {}
    }
    let (kind, session) = (header(&response, CONTENT_TYPE.as_str()), header(&response, SESSION));
    let is = |wanted: &str| kind.as_deref().is_some_and(|kind| kind.starts_with(wanted));
    let (is_json, retry_after) = (is("application/json"), header(&response, RETRY_AFTER.as_str()));
    if status.is_success() {
        if is("text/event-stream") {
            let events = events(response.bytes_stream(), most);
            return Ok(taken(StreamableHttpPostResponse::Sse(events, session)));
        }
        if !is_json {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = body(response, most).await?;
        let message = serde_json::from_slice(&readable(&body))?;
        return Ok(taken(StreamableHttpPostResponse::Json(message, session)));
    }
    // A refusal that cannot be read is one without words.
    let body = body(response, MAX_REFUSAL).await.unwrap_or_default();
    let is_about_token = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let error = match serde_json::from_slice(&readable(&body)) {
        Ok(ServerJsonRpcMessage::Error(error)) if is_json && !is_about_token => Some(error),
        _ => None,
    };
    let words = format!("HTTP {status}: {}", String::from_utf8_lossy(&body));
    match error {
        error if status == StatusCode::BAD_REQUEST => Ok(Answer::Refused(words, error)),
        Some(error) => {
            let error = ServerJsonRpcMessage::Error(error);
            Ok(taken(StreamableHttpPostResponse::Json(error, session)))
        }
        None if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
            Err(HttpStatusError::new(status.as_u16(), retry_after).into())
        }
        None => Err(StreamableHttpError::UnexpectedServerResponse(words.into())),
    }
}

fn taken(answer: StreamableHttpPostResponse) -> Answer {
    Answer::Taken(Box::new(answer))
}

async fn body(response: Response, most: usize) -> Result<Vec<u8>, Failure> {
    let (mut body, mut parts) = (Vec::new(), response.bytes_stream());
    while let Some(part) = parts.next().await {
        body.extend_from_slice(&part?);
        if body.len() > most {
            return Err(StreamableHttpError::ResponseBodyTooLarge { max_size: most });
        }
    }
    Ok(body)
}

/// The events of an answer, up to one with more than `most` bytes.
fn events(
    parts: impl Stream<Item = reqwest::Result<bytes::Bytes>> + Send + 'static,
    most: usize,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let (mut length, mut last) = (0, b'\n');
    let bounded = parts.take_while(move |part| {
        for &byte in part.iter().flatten().filter(|byte| **byte != b'\r') {
            // An empty line ends an event.
            length = if (last, byte) == (b'\n', b'\n') { 0 } else { length + 1 };
            last = byte;
        }
        ready(length <= most)
    });
    SseStream::from_bytes_stream(bounded).boxed()
}
