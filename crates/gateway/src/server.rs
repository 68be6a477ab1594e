//! Sockets and connections: bind, accept, serve, drain.
//!
//! Connections are served by hyper directly rather than by `axum::serve`, which offers no limit on their number and no
//! time limit for their headers.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use belay_protocol::{ChannelId, SessionKey};
use hyper::body::Body as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::app::{AbandonedRequest, App, ORPHAN_CAPACITY, Shared};
use crate::auth::Auth;
use crate::channel::HttpChannel;
use crate::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::control_socket::{ControlGroup, ControlSocket};
use crate::error::GatewayError;
use crate::failed_auth::FailedAuthLimiter;
use crate::new_socket::{NEW_SOCKETS, NewSocket};
use crate::parts::GatewayParts;
use crate::peer::Peer;
use crate::router::router;
use crate::write_timeout::WriteTimeout;
use crate::ws;

/// Longest time between two requests on a connection, and for the headers of one to arrive. 30 s: hyper's own default;
/// who is slower holds a place that others need.
const HEADER_LIMIT: Duration = Duration::from_secs(30);

/// Most bytes of headers, and of a body's piece. 64 KiB: eight times what common proxies let through.
const BUFFER_BYTES: usize = 64 * 1024;

/// Connections to the control socket at a time; more wait. They are counted apart, so that the brakes work while TCP is
/// full.
const SOCKET_CONNECTIONS: usize = 64;

/// Pause after a failed accept: out of file descriptors, most likely, and trying at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Bound, and not yet serving.
pub struct Gateway {
    app: Shared,
    router: Router,
    tcp: Option<TcpListener>,
    socket: Option<ControlSocket>,
    orphans: mpsc::Receiver<AbandonedRequest>,
    sockets: mpsc::Receiver<NewSocket>,
}

impl Gateway {
    /// Takes the address and the control socket. From here on connections are queued by the kernel.
    ///
    /// # Errors
    /// The configuration is refused, the address or the socket cannot be had; see [`GatewayError`].
    pub async fn bind(parts: GatewayParts) -> Result<(Self, HttpChannel), GatewayError> {
        let problems = parts.config.validate();
        if !problems.is_empty() {
            return Err(GatewayError::Config(problems));
        }
        let secrets = parts.secrets.without_empty();
        let tcp = match parts.config.listen_address() {
            Some(address) => Some(listen(address, secrets.any_token()).await?),
            None => None,
        };
        let group = ControlGroup::find(&parts.config.control_group)?;
        let socket = parts.control_socket.map(|path| ControlSocket::bind(path, group.as_ref())).transpose()?;
        let id = ChannelId::from("http");
        let auth = Arc::new(Auth::new(&secrets, parts.config.listen_address()));
        let (channel, intake) = HttpChannel::new(id.clone(), auth.clone());
        let (orphan_sender, orphans) = mpsc::channel(ORPHAN_CAPACITY);
        let (new_sockets, sockets) = mpsc::channel(NEW_SOCKETS);
        let app = Arc::new(App {
            auth,
            webhook_secret: secrets.webhook_secret,
            runs: parts.runs,
            sessions: parts.sessions,
            health: parts.health,
            events: parts.events,
            gates: parts.gates,
            archive: parts.archive,
            vault: parts.vault,
            jobs: parts.jobs,
            routines: parts.routines,
            times: parts.times,
            janitor: parts.janitor,
            clock: parts.clock,
            model: parts.model,
            version: parts.version,
            metrics: parts.metrics,
            trajectory: parts.trajectory,
            question: parts.question,
            channel: id,
            no_session: SessionKey::from(belay_protocol::NO_SESSION),
            intake,
            streams: Arc::new(Semaphore::new(parts.config.max_streams)),
            failed_auth: Arc::new(Semaphore::new(parts.config.max_unauthenticated)),
            wrong_tokens: FailedAuthLimiter::default(),
            wrong_secrets: FailedAuthLimiter::default(),
            sockets: new_sockets,
            ready: parts.ready,
            started: AtomicBool::new(false),
            draining: CancellationToken::new(),
            closed: CancellationToken::new(),
            orphans: orphan_sender,
            config: parts.config,
        });
        Ok((Self { router: router(app.clone(), parts.extra), app, tcp, socket, orphans, sockets }, channel))
    }

    /// Where it listens; `None`: on the control socket alone.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok())
    }

    /// Serves until `stop`, then refuses new messages, lets open requests and streams end within the configured
    /// `drain_s`, and returns when the last connection is closed.
    ///
    /// # Errors
    /// None at present; the type leaves room for a listener that breaks for good.
    ///
    /// # Cancel safety
    /// Dropped midway, every connection is closed at once.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), GatewayError> {
        let Self { app, router, tcp, socket, mut orphans, mut sockets } = self;
        let _closed = app.closed.clone().drop_guard();
        let limit = Duration::from_secs(app.config.drain_s);
        let (places, socket_places) =
            (ConnectionSlots::new(app.config.max_connections), Arc::new(Semaphore::new(SOCKET_CONNECTIONS)));
        // The one that was accepted and has no place yet; the kernel queues the others.
        let mut arrived: Option<(TcpStream, IpAddr)> = None;
        let mut ready = app.ready.clone();
        let mut starting = true;
        let mut connections = JoinSet::new();
        let mut deadline: Option<Instant> = None;
        loop {
            let line = Line { router: router.clone(), draining: app.draining.clone() };
            tokio::select! {
                () = stop.cancelled(), if deadline.is_none() => {
                    app.draining.cancel();
                    deadline = Some(Instant::now() + limit);
                }
                () = until(deadline) => break,
                Some(ended) = connections.join_next() => report(ended),
                Some(orphan) = orphans.recv() => {
                    connections.spawn(orphan.see_to(app.clone()));
                }
                Some(socket) = sockets.recv() => {
                    connections.spawn(ws::serve(socket, app.clone()));
                }
                up = async { ready.wait_for(|up| *up).await.is_ok() }, if starting => {
                    app.started.store(up, Ordering::Relaxed);
                    starting = false;
                }
                connection = accept_tcp(tcp.as_ref()), if arrived.is_none() => arrived = Some(connection),
                place = places.take(), if arrived.is_some() => {
                    if let Some((stream, address)) = arrived.take() {
                        connections.spawn(line.serve(stream, Peer::Tcp(address), place));
                    }
                }
                (stream, trusted, place) = accept_socket(socket.as_ref(), &socket_places) => {
                    connections.spawn(line.serve(stream, Peer::Socket { trusted }, place.into()));
                }
            }
            if deadline.is_some() && connections.is_empty() {
                break;
            }
        }
        if !connections.is_empty() {
            tracing::warn!(connections = connections.len(), "closing connections that did not end in time");
        }
        connections.shutdown().await;
        Ok(())
    }
}

/// What a connection is served with.
pub(crate) struct Line {
    pub(crate) router: Router,
    pub(crate) draining: CancellationToken,
}

impl Line {
    /// Serves one connection to its end. When draining begins it ends after the request in progress; when others need its place,
    /// as soon as it has no request that has arrived or is proven.
    pub(crate) async fn serve<I>(self, io: I, peer: Peer, place: ConnectionSlot)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { router, draining } = self;
        let requests = place.requests();
        let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            let (begun, mut router) = (requests.begin(request.body().is_end_stream()), router.clone());
            async move {
                // Its connection is about to be closed.
                let Some(begun) = begun else { return std::future::pending().await };
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(begun.arrival());
                let response = router.call(request.map(|body| begun.until_arrived(body))).await?;
                Ok::<_, Infallible>(response.map(|body| begun.until_sent(body)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .max_buf_size(BUFFER_BYTES)
            .keep_alive(!draining.is_cancelled())
            .serve_connection(TokioIo::new(WriteTimeout::new(io)), service)
            .with_upgrades();
        tokio::pin!(connection);
        let late = draining.is_cancelled();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = place.told_to_go() => Ok(()),
            () = draining.cancelled(), if !late => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, ?peer, "connection ended"); // the other end's doing: broken off, or not HTTP
        }
    }
}

/// Says so when a connection's task has panicked.
pub(crate) fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection panicked");
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Binds the first address of the name; all of them must be loopback unless a token is needed.
async fn listen(address: &str, any_token: bool) -> Result<TcpListener, GatewayError> {
    let resolve = |source| GatewayError::Resolve { address: address.into(), source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(address).await.map_err(resolve)?.collect();
    if let Some(open) = addresses.iter().find(|a| !a.ip().to_canonical().is_loopback())
        && !any_token
    {
        return Err(GatewayError::Insecure(*open));
    }
    let Some(first) = addresses.first().copied() else {
        return Err(resolve(std::io::Error::other("the name has no address")));
    };
    TcpListener::bind(first).await.map_err(|source| GatewayError::Listen { address: first, source })
}

/// The next TCP connection. Cancel safe.
async fn accept_tcp(listener: Option<&TcpListener>) -> (TcpStream, IpAddr) {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true); // only speed is lost without it
                return (stream, address.ip());
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

/// The next connection to the control socket, and whether its user may use it. Cancel safe.
pub(crate) async fn accept_socket(
    socket: Option<&ControlSocket>,
    places: &Arc<Semaphore>,
) -> (UnixStream, bool, OwnedSemaphorePermit) {
    let (Some(socket), Ok(place)) = (socket, places.clone().acquire_owned().await) else {
        return std::future::pending().await;
    };
    loop {
        match socket.accept().await {
            Ok((stream, trusted)) => return (stream, trusted, place),
            Err(error) => pause_after(&error).await,
        }
    }
}

async fn pause_after(error: &std::io::Error) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "a connection cannot be accepted");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
