//! A server over HTTP whose sessions end when a test says so.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// How a server refuses a request of a session that it does not know: status, type and text of the answer; `ID` stands
/// for the id of the request.
pub(super) type Refusal = (u16, &'static str, &'static str);

pub(super) const EMPTY: Refusal = (404, "text/plain", "");

/// The refusals that servers in use send.
pub(super) const REFUSALS: [Refusal; 8] = [
    EMPTY,
    // @modelcontextprotocol/sdk
    (404, "application/json", r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#),
    // Python: mcp
    (
        404,
        "application/json",
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#,
    ),
    // The examples of @modelcontextprotocol/sdk, which many servers copy.
    (
        400,
        "application/json",
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
    ),
    (400, "text/html", "Invalid or missing session ID"),
    // Older versions of mcp, and servers of their own.
    (
        400,
        "application/json",
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#,
    ),
    (400, "application/json", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Session not found"}}"#),
    (400, "application/json", r#"{"error":"invalid session"}"#),
];

/// A server with sessions.
pub(super) struct Host {
    seen: Mutex<Seen>,
    /// Calls wait here.
    pub(super) gate: Semaphore,
}

pub(super) struct Seen {
    pub(super) sessions: HashSet<String>,
    /// Methods, in order.
    asked: Vec<String>,
    /// Calls that were carried out.
    pub(super) ran: usize,
    refusal: Refusal,
    pub(super) description: &'static str,
    /// Sessions end when one of these methods comes, once.
    pub(super) ends_at: Option<&'static str>,
    /// Calls end without an answer, after they have run.
    pub(super) breaks: bool,
    /// A server with one transport: how it refuses each session after the first one.
    pub(super) refuses_more: Option<Refusal>,
    /// Calls end with this answer after they have run.
    pub(super) fails: Option<Refusal>,
}

impl Host {
    pub(super) fn new() -> Arc<Self> {
        let seen = Seen {
            sessions: HashSet::new(),
            asked: Vec::new(),
            ran: 0,
            refusal: EMPTY,
            description: "Says it.",
            ends_at: None,
            breaks: false,
            refuses_more: None,
            fails: None,
        };
        Arc::new(Self { seen: Mutex::new(seen), gate: Semaphore::new(Semaphore::MAX_PERMITS) })
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.seen.lock().unwrap())
    }

    /// Forgets all sessions, and how often they were begun.
    pub(super) fn forget(&self, refusal: Refusal) {
        self.change(|seen| {
            seen.sessions.clear();
            seen.asked.clear();
            (seen.ran, seen.refusal) = (0, refusal);
        });
    }

    pub(super) fn asked(&self, method: &str) -> usize {
        self.change(|seen| seen.asked.iter().filter(|asked| *asked == method).count())
    }

    pub(super) fn ran(&self) -> usize {
        self.change(|seen| seen.ran)
    }
}

fn refused((status, kind, text): Refusal, message: &Value) -> Response {
    let text = text.replace("\"id\":ID", &format!("\"id\":{}", message["id"]));
    (StatusCode::from_u16(status).unwrap(), [("content-type", kind)], text).into_response()
}

pub(super) async fn answer(State(host): State<Arc<Host>>, request: Request) -> Response {
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = if method == Method::POST { message["method"].as_str().unwrap_or_default() } else { method.as_str() };
    let session = headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
    let known = host.change(|seen| {
        seen.asked.push(asked.to_owned());
        if seen.ends_at == Some(asked) {
            seen.ends_at = None;
            seen.sessions.clear();
        }
        session.as_ref().is_some_and(|session| seen.sessions.contains(session))
    });
    if asked != "initialize" && !known {
        return refused(host.change(|seen| seen.refusal), &message);
    }
    let begun = host.change(|seen| seen.asked.iter().filter(|asked| *asked == "initialize").count());
    if let Some(refusal) = host.change(|seen| seen.refuses_more).filter(|_| asked == "initialize" && begun > 1) {
        return refused(refusal, &message);
    }
    let description = host.change(|seen| seen.description);
    let result = match asked {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "x", "version": "1" },
        }),
        "tools/list" => {
            json!({ "tools": [{ "name": "t", "description": description, "inputSchema": { "type": "object" } }] })
        }
        "tools/call" => {
            host.change(|seen| seen.ran += 1);
            let _ = host.gate.acquire().await;
            if host.change(|seen| seen.breaks) {
                let broken = futures_util::stream::iter([Ok("data: "), Err(std::io::Error::other("broken"))]);
                return ([("content-type", "text/event-stream")], axum::body::Body::from_stream(broken))
                    .into_response();
            }
            if let Some(refusal) = host.change(|seen| seen.fails) {
                return refused(refusal, &message);
            }
            json!({ "content": [{ "type": "text", "text": "over http" }] })
        }
        "GET" => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let session = host.change(|seen| {
        let session = format!("session-{}", seen.asked.len());
        if asked == "initialize" {
            seen.sessions.insert(session.clone());
        }
        session
    });
    let answer = axum::Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    ([("mcp-session-id", session)], answer).into_response()
}
