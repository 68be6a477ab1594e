//! Opens a connection: starts the server or calls its URL, and finds out what it speaks. Ends it, too.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Generation, RunId};
use rmcp::model::ServerRequest;
use rmcp::service::{ClientInitializeError, RoleClient, RunningService, Service, serve_directly};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use crate::mcp::http::Remote;
use crate::mcp::listener::{Listener, Notices};
use crate::mcp::program::{Program, ServerProcesses, StartPrograms, Started};
use crate::mcp::revision::{self, First};
use crate::mcp::server::{Endpoint, Server};
use crate::mcp::server_error::ServerError;
use crate::mcp::troubles::{of_handshake, silent};
use crate::mcp::wire::{Watch, Watched, drain};

/// How long a server may take to exit after its standard input is closed.
///
/// Source: MCP 2025-11-25, "Lifecycle", "Shutdown", stdio.
const EXIT_LIMIT: Duration = Duration::from_millis(500);

/// How long a server may leave the first request without an answer before it is asked in the older way too. 5 s: a server
/// that is still starting then gets both requests, and answers the first one.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that is open.
pub(super) struct Open {
    pub(super) service: RunningService<RoleClient, Listener>,
    /// The server program, if there is one, and the task that reads its standard error.
    pub(super) program: Option<(Box<dyn ServerProcesses>, JoinSet<()>)>,
}

/// What an attempt needs.
pub(super) struct Opener<'a> {
    pub(super) server: &'a Server,
    pub(super) starter: &'a dyn StartPrograms,
    pub(super) run: RunId,
    pub(super) generation: &'a Generation,
    pub(super) watch: &'a Arc<Watch>,
    pub(super) notices: &'a Arc<Notices>,
}

impl Opener<'_> {
    /// Opens a connection. If the server cannot be asked by `server/discover`, a second attempt begins with `initialize`.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is ended.
    pub(super) async fn open(&self) -> Result<Open, ServerError> {
        let (spoken, limit) = (self.server.spoken(), self.server.start_limit());
        let (first, until) = (spoken.first(), Instant::now() + limit);
        let opened = match self.attempt(first, until).await {
            Err(trouble) if first == First::Discover && self.may_be_odd(&trouble) && Instant::now() < until => {
                debug!(server = self.server.name(), %trouble, "mcp server does not take the first request; asked again");
                self.attempt(First::Initialize, until).await
            }
            opened => opened,
        };
        let revision = opened.as_ref().ok().and_then(|open| open.service.peer().peer_info());
        spoken.set(revision.map(|info| info.protocol_version.clone()));
        opened
    }

    /// Whether a second attempt, which begins in the older way, may succeed. A program that is still there has got both
    /// requests in the first one.
    fn may_be_odd(&self, trouble: &ServerError) -> bool {
        let is_odd = match self.server.endpoint() {
            Endpoint::Program(_) => matches!(trouble, ServerError::Ended(_)),
            Endpoint::Remote(_) => trouble.is_odd(),
        };
        is_odd && self.generation.is_current()
    }

    async fn attempt(&self, first: First, until: Instant) -> Result<Open, ServerError> {
        match self.server.endpoint() {
            Endpoint::Program(program) => {
                let opened = self.program(program, first, until).await;
                opened.map_err(|trouble| self.server.explain(trouble))
            }
            Endpoint::Remote(remote) => self.remote(remote, first, until).await,
        }
    }

    async fn remote(&self, remote: &Remote, first: First, until: Instant) -> Result<Open, ServerError> {
        let what = if first == First::Discover { "`server/discover`" } else { "`initialize`" };
        // A request that has no answer holds up the next one, so both need a transport of their own.
        let until_first = if first == First::Discover { until.min(Instant::now() + PATIENCE) } else { until };
        let opening = self.serve(remote.transport(), first, None);
        let opened = timeout_at(until_first, Box::pin(opening)).await;
        match opened.map_err(|_| silent(what, self.server.start_limit(), self.watch))? {
            Ok(service) => Ok(Open { service, program: None }),
            Err(error) if first == First::Discover => Err(of_handshake(&error, self.watch)),
            Err(error) => Err(remote.explain(of_handshake(&error, self.watch)).await),
        }
    }

    /// Starts a program, and ends it if the connection cannot be opened until `until`.
    async fn program(&self, program: &Program, first: First, until: Instant) -> Result<Open, ServerError> {
        let (server, watch, limit) = (self.server, self.watch, self.server.start_limit());
        let what = format!("mcp server {}", server.name());
        let started = self.starter.start(program, self.run, self.generation, &what);
        let started = timeout_at(until, started).await.map_err(|_| silent("its start", limit, watch))?;
        let Started { stdin, stdout, stderr, mut processes } = started.map_err(ServerError::Start)?;
        let mut reader = JoinSet::new();
        reader.spawn(drain(stderr, server.name().to_owned(), watch.clone()));
        let stdout = Watched::new(stdout, watch.clone());
        // The [`Watched`] reader limits the length of lines and reports the cause.
        let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
        match timeout_at(until, Box::pin(self.serve(transport, first, Some(PATIENCE)))).await {
            Ok(Ok(service)) => Ok(Open { service, program: Some((processes, reader)) }),
            Ok(Err(error)) => {
                let how = processes.end(EXIT_LIMIT).await;
                finish(reader).await;
                Err(match (&error, watch.ended()) {
                    (_, Some(why)) => ServerError::NotMcp(why),
                    (
                        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. },
                        None,
                    ) => ServerError::Ended(format!("{how}{}", watch.noise())),
                    _ => of_handshake(&error, watch),
                })
            }
            Err(_) => {
                processes.end(Duration::ZERO).await;
                finish(reader).await;
                Err(silent("`initialize`", limit, watch))
            }
        }
    }

    /// Finds out what the other side speaks, and serves the connection.
    async fn serve<T>(
        &self,
        mut transport: T,
        first: First,
        patience: Option<Duration>,
    ) -> Result<RunningService<RoleClient, Listener>, ClientInitializeError>
    where
        T: Transport<RoleClient> + 'static,
    {
        let listener = Listener::new(self.server.name(), self.server.spoken().clone(), self.notices.clone());
        let refuse = |request: &ServerRequest| listener.refuse_unopened(request);
        let info = revision::open(&mut transport, first, &listener.get_info(), patience, &refuse).await?;
        if !revision::is_known(&info.protocol_version) {
            return Err(ClientInitializeError::NoCompatibleProtocolVersion {
                client_supported: Vec::new(),
                server_supported: vec![info.protocol_version.clone()],
            });
        }
        Ok(serve_directly(listener, transport, Some(info)))
    }
}

/// Closes the connection, until `until` at the latest; returns how the program ended, if there was one.
pub(super) async fn close(open: Open, until: Instant) -> Option<String> {
    let Open { mut service, program } = open;
    // The SDK's task has ended already, or it ends when the pipes are closed below.
    let left = until.saturating_duration_since(Instant::now());
    if !matches!(service.close_with_timeout(left).await, Ok(Some(_))) {
        debug!("an mcp connection did not close in time");
    }
    drop(service);
    let (mut processes, reader) = program?;
    let how = processes.end(EXIT_LIMIT).await;
    finish(reader).await;
    Some(how)
}

/// Waits until standard error is read to its end. The processes have ended, so the pipe is closed, unless another
/// process holds it.
async fn finish(mut reader: JoinSet<()>) {
    if timeout(EXIT_LIMIT, reader.join_next()).await.is_err() {
        reader.shutdown().await;
    }
}
