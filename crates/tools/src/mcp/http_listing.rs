//! Makes some requests over HTTP without the SDK, whose types lose parts of the answers: of tools, of what a server of
//! an older revision can do, and of the tasks of one.

use std::collections::HashMap;

use futures_util::StreamExt;
use futures_util::future::ready;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use rmcp::transport::streamable_http_client::StreamableHttpPostResponse;
use sse_stream::{Sse, SseStream};

use crate::mcp::http_request::{SESSION, header, prepared};
use crate::mcp::incoming::readable;

/// Whether the SDK loses parts of the answer to this message. Such a request may be made twice.
pub(super) fn loses_parts(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::ListToolsRequest(_) | ClientRequest::InitializeRequest(_) => true,
        ClientRequest::CustomRequest(custom) => custom.method == "tasks/get",
        _ => false,
    }
}

/// Makes such a request. `None`: the answer is none that can be read, and the SDK has to ask again and to say why.
/// `most`: the largest answer in bytes.
pub(super) async fn list(
    request: reqwest::RequestBuilder,
    message: &ClientJsonRpcMessage,
    session: Option<&str>,
    token: Option<&str>,
    headers: &HashMap<HeaderName, HeaderValue>,
    most: usize,
) -> Option<StreamableHttpPostResponse> {
    let request = prepared(request, session, token, headers);
    let response = request.json(message).send().await.ok()?.error_for_status().ok()?;
    let (kind, session) = (header(&response, CONTENT_TYPE.as_str())?, header(&response, SESSION));
    let mut bytes = response.bytes_stream();
    if kind.starts_with("text/event-stream") {
        let mut left = most;
        let bounded = bytes.take_while(move |part| {
            let length = part.as_ref().map_or(0, |part| part.len());
            let fits = length <= left;
            left = left.saturating_sub(length);
            ready(fits)
        });
        let events = SseStream::from_bytes_stream(bounded).map(|event| event.map(readable_event));
        return Some(StreamableHttpPostResponse::Sse(events.boxed(), session));
    }
    let mut body = Vec::new();
    while let Some(part) = bytes.next().await {
        body.extend_from_slice(&part.ok()?);
        if body.len() > most {
            return None;
        }
    }
    Some(StreamableHttpPostResponse::Json(serde_json::from_slice(&readable(&body)).ok()?, session))
}

/// The event in a form that the SDK can read.
pub(super) fn readable_event(event: Sse) -> Sse {
    let data = event.data.map(|data| String::from_utf8_lossy(&readable(data.as_bytes())).into_owned());
    Sse { data, ..event }
}
