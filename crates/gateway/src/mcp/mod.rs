//! `/mcp`: sessions and runs as tools of the Model Context Protocol, for programs that are agents themselves.
//!
//! **For**: other agents that hand work to this one, as they would call any tool. Behind the guard of the API, and off
//! unless `gateway.mcp` says otherwise. The protocol itself is the official SDK's; what is ours is the five tools and the
//! bounds. `belay mcp serve` is the same over pipes: a relay to this route.
//!
//! **Does not know**: lanes and turns, like everything in this crate. A tool call is a message of the channel, or a read.
//!
//! Clients of the older protocol (before 2026-07-28) have sessions here, which hold nothing of ours: they are there so
//! that a request can be cancelled and a broken stream be taken up again. Their tasks are the SDK's; all of them end when
//! the gateway does.
//!
//! Reading order: here → `tools` (what is offered) → `server` (who answers) → `runs`, `conversations` → `results`.

mod conversations;
mod results;
mod runs;
mod server;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{json_content, read_body};
use crate::sse::KEEP_ALIVE;
use server::Server;

/// Sessions of the older protocol at a time. Then: 503 `busy`. 256: each is one program that talks to us, and one that says
/// nothing for [`SESSION_IDLE`] loses its own.
const SESSIONS_MAX: usize = 256;

/// How long a session may be silent. 10 min: the longest wait of one call at the default settings.
const SESSION_IDLE: Duration = Duration::from_secs(600);

/// The header that names a session.
///
/// Source: MCP 2025-06-18, "Session Management".
const SESSION_HEADER: &str = "mcp-session-id";

/// The route.
#[derive(Clone)]
pub(crate) struct Endpoint {
    app: Shared,
    sessions: Arc<LocalSessionManager>,
    service: StreamableHttpService<Server, LocalSessionManager>,
}

impl Endpoint {
    /// The route for this gateway. Nothing runs until somebody asks.
    pub(crate) fn new(app: Shared) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE.max(app.config.max_wait()));
        let sessions = Arc::new(sessions);
        let config = StreamableHttpServerConfig::default()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(app.config.max_body_bytes)
            // Names and origins were judged by the guard, which knows the control socket and the configured name.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_cancellation_token(app.closed.clone());
        let server = Server::new(app.clone());
        let service = StreamableHttpService::new(move || Ok(server.clone()), sessions.clone(), config);
        Self { app, sessions, service }
    }

    /// Answers one request, as [`Endpoint::pass`] does or with the refusal.
    pub(crate) async fn handle(self, request: Request) -> Response {
        self.pass(request).await.unwrap_or_else(IntoResponse::into_response)
    }

    /// Bounds a request and hands it to the SDK.
    ///
    /// # Errors
    /// 400, 413 and 415 as everywhere; 503 when there are too many sessions.
    async fn pass(self, request: Request) -> Result<Response, ApiError> {
        let method = request.method().clone();
        let request = match method {
            Method::POST => self.bounded(request).await?,
            _ => request,
        };
        let mut answer = self.service.handle(request).await.map(Body::new);
        if method == Method::DELETE && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT; // it is done; some clients take 202 for a failure
        }
        if method != Method::GET {
            return Ok(answer);
        }
        // A stream on which nobody has asked anything has no end of its own, and must not hold up the end of the daemon.
        let draining = self.app.draining.clone();
        Ok(answer.map(|body| Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned()))))
    }

    async fn bounded(&self, request: Request) -> Result<Request, ApiError> {
        json_content(request.headers())?;
        // About so many: requests that begin at the same moment see the same number.
        let begins = !request.headers().contains_key(SESSION_HEADER);
        if begins && self.sessions.sessions.read().await.len() >= SESSIONS_MAX {
            return Err(ApiError::busy("too many MCP sessions are open; end one with DELETE /mcp"));
        }
        let (parts, body) = request.into_parts();
        let mut whole = Request::new(body);
        *whole.headers_mut() = parts.headers.clone();
        let bytes = read_body(whole, self.app.config.max_body_bytes).await?;
        Ok(Request::from_parts(parts, Body::from(bytes)))
    }
}
