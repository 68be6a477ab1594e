//! `/mcp`: sessions and runs as tools of the Model Context Protocol, for programs that are agents themselves.
//!
//! **For**: other agents that delegate work to this one by tool calls. The route is behind the guard of the API, and
//! off unless `gateway.mcp` enables it. The official SDK implements the protocol; this module adds five tools and the
//! limits. `belay mcp serve` offers the same over pipes: it relays to this route.
//!
//! **Does not know**: lanes and turns, like everything in this crate. A tool call is a message of the channel, or a
//! read.
//!
//! Clients of the older protocol (before 2026-07-28) have sessions here. Such a session has no state of Belay's: it
//! lets a client cancel a request and resume a broken stream. The SDK owns its tasks; all of them end with the gateway.
//!
//! Reading order: here → `refusals` → `tools` (what is offered) → `server` (dispatch) → `runs`, `conversations` → `results`.

mod conversations;
mod refusals;
mod results;
mod runs;
mod server;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{json_content, read_body};
use crate::sse::KEEP_ALIVE;
use crate::table::{Table, get};
use refusals::{Refusal, message_id, shaped};
use server::Server;

/// Most sessions of the older protocol at a time. One more: 503 `busy`. 256: each is one client program, and a session
/// that is silent for [`SESSION_IDLE`] ends.
const SESSIONS_MAX: usize = 256;

/// How long a session may be silent. 10 min: the longest wait of one call at the default settings.
const SESSION_IDLE: Duration = Duration::from_secs(600);

/// The header with the id of a session.
///
/// Source: MCP 2025-06-18, "Session Management".
const SESSION_HEADER: &str = "mcp-session-id";

/// The route `/mcp`.
#[derive(Clone)]
struct Endpoint {
    app: Shared,
    sessions: Arc<LocalSessionManager>,
    service: StreamableHttpService<Server, LocalSessionManager>,
}

/// Adds the route at these paths.
pub(crate) fn add_to(table: Table, app: &Shared, paths: [&'static str; 2]) -> Table {
    let endpoint = Endpoint::new(app.clone());
    let handle = move |request: Request| endpoint.clone().handle(request);
    paths.into_iter().fold(table, |table, path| {
        let handle = handle.clone();
        table.route(path, get(handle.clone()).post(handle.clone()).delete(handle))
    })
}

impl Endpoint {
    /// Makes the route. It starts no task before the first request.
    fn new(app: Shared) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE.max(app.config.max_wait()));
        let sessions = Arc::new(sessions);
        let config = StreamableHttpServerConfig::default()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(app.config.max_body_bytes)
            // The guard has already checked host names and origins; it knows the control socket and the configured
            // name.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_cancellation_token(app.closed.clone());
        let server = Server::new(app.clone());
        let service = StreamableHttpService::new(move || Ok(server.clone()), sessions.clone(), config);
        Self { app, sessions, service }
    }

    /// Answers one request: the result or error of [`Endpoint::pass`].
    async fn handle(self, request: Request) -> Response {
        self.pass(request).await.unwrap_or_else(IntoResponse::into_response)
    }

    /// Enforces the limits on a request and passes it to the SDK.
    ///
    /// # Errors
    /// 400, 413 and 415 as everywhere; 503 when there are too many sessions.
    async fn pass(self, request: Request) -> Result<Response, Refusal> {
        let method = request.method().clone();
        let (request, id) = match method {
            Method::POST => self.bounded(request).await?,
            _ => (request, Value::Null),
        };
        let answer = self.service.handle(request).await.map(Body::new);
        let mut answer = shaped(answer, id).await;
        if method == Method::DELETE && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT; // already done; some clients take 202 for a failure
        }
        if method != Method::GET {
            return Ok(answer);
        }
        // A standalone stream never ends by itself, and must not delay the end of the daemon.
        let draining = self.app.draining.clone();
        Ok(answer.map(|body| Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned()))))
    }

    /// Reads the body, and returns the request with the id of its message. A body that is no message is refused for
    /// that, whatever its type: most such bodies have the type that a tool adds by itself.
    async fn bounded(&self, request: Request) -> Result<(Request, Value), Refusal> {
        let (parts, body) = request.into_parts();
        let mut whole = Request::new(body);
        *whole.headers_mut() = parts.headers.clone();
        let kind = json_content(&parts.headers);
        if parts.headers.contains_key(CONTENT_ENCODING) {
            kind.clone()?; // a compressed body cannot be read
        }
        let bytes = read_body(whole, self.app.config.max_body_bytes).await?;
        let id = message_id(&bytes)?;
        kind?;
        // Approximate: requests that begin at the same moment see the same number.
        let begins = !parts.headers.contains_key(SESSION_HEADER);
        if begins && self.sessions.sessions.read().await.len() >= SESSIONS_MAX {
            return Err(ApiError::busy("too many MCP sessions are open; end one with DELETE /mcp").into());
        }
        Ok((Request::from_parts(parts, Body::from(bytes)), id))
    }
}
