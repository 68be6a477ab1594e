//! Listens, accepts, serves and drains connections.
//!
//! hyper serves the connections directly. `axum::serve` offers no limit on their number and no time limit for their
//! headers.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use belay_protocol::{ChannelId, EventLog, SessionKey};
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

use crate::app::{ABANDONED_CAPACITY, AbandonedRequest, App, Shared};
use crate::auth::Auth;
use crate::channel::HttpChannel;
use crate::config::GatewayConfig;
use crate::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::console::files;
use crate::control_socket::{ControlGroup, ControlSocket};
use crate::error::GatewayError;
use crate::fact_pages::FactPages;
use crate::failed_auth::FailedAuthLimiter;
use crate::file_links::{LinkedEvents, LinkedRuns, LinkedSessions};
use crate::gauges::GaugeRefresh;
use crate::new_socket::{NEW_SOCKETS, NewSocket};
use crate::parts::GatewayParts;
use crate::peer::Peer;
use crate::router::router;
use crate::sign_ins::SignIns;
use crate::sign_ins::cookie::Cookies;
use crate::write_timeout::WriteTimeout;
use crate::ws;

/// Longest time between two requests on a connection, and for the headers of a request to arrive. 30 s: hyper's own
/// default. A slower client holds a slot that others need.
const HEADER_LIMIT: Duration = Duration::from_secs(30);

/// Most bytes of headers, and of one chunk of a body. 64 KiB: eight times the limit of common proxies.
const BUFFER_BYTES: usize = 64 * 1024;

/// Connections to the control socket at a time; more wait. They have slots of their own, so that operators can stop
/// runs while TCP is full.
const SOCKET_CONNECTIONS: usize = 64;

/// Pause after a failed accept. The usual cause is a lack of file descriptors; an immediate retry would only waste CPU
/// time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A gateway that is bound and not yet serving.
pub struct Gateway {
    app: Shared,
    router: Router,
    tcp: Option<TcpListener>,
    socket: Option<ControlSocket>,
    abandoned: mpsc::Receiver<AbandonedRequest>,
    sockets: mpsc::Receiver<NewSocket>,
}

impl Gateway {
    /// Binds the address and the control socket. From then on the kernel queues connections.
    ///
    /// # Errors
    /// The configuration is refused, or the address or the socket is not available; see [`GatewayError`].
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
        let auth = Arc::new(Auth::new(&secrets, parts.config.listen_address(), &parts.config.cors_origins));
        if parts.cluster.is_some() {
            crate::gauges::describe_nodes();
        }
        let hints = parts.cluster.as_ref().map(|cluster| cluster.hints.clone());
        let sign_ins = SignIns::new(parts.sign_ins, parts.clock.clone(), auth.tokens_digest(), hints);
        let address = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok()).map(reachable);
        let (channel, intake) = HttpChannel::new(id.clone(), auth.clone());
        let (abandoned_sender, abandoned) = mpsc::channel(ABANDONED_CAPACITY);
        let (new_sockets, sockets) = mpsc::channel(NEW_SOCKETS);
        let events: Arc<dyn EventLog> = Arc::new(LinkedEvents(parts.events, parts.links.clone()));
        let app = Arc::new(App {
            auth,
            sign_ins,
            cookies: Cookies::new(address.map_or(0, |address| address.port())),
            address,
            webhook_secret: secrets.webhook_secret,
            runs: Arc::new(LinkedRuns(parts.runs, parts.links.clone())),
            sessions: Arc::new(LinkedSessions(parts.sessions, parts.links.clone())),
            health: parts.health,
            fact_pages: FactPages::new(events.clone()),
            events,
            approvals: parts.approvals,
            archive: parts.archive,
            notes: parts.notes,
            kept: parts.kept,
            jobs: parts.jobs,
            routines: parts.routines,
            times: parts.times,
            judge: parts.judge,
            slots: Default::default(),
            settings: parts.settings,
            spending: parts.spending,
            ends: parts.ends,
            janitor: parts.janitor,
            backups: parts.backups,
            database_losses: parts.database_losses,
            cluster: parts.cluster,
            attachments: parts.attachments,
            blobs: parts.blobs,
            links: parts.links,
            clock: parts.clock,
            models: parts.models,
            version: parts.version,
            metrics: parts.metrics,
            trajectory: parts.trajectory,
            texts: parts.texts,
            channel: id,
            no_session: SessionKey::from(belay_protocol::NO_SESSION),
            intake,
            streams: Arc::new(Semaphore::new(parts.config.most_streams())),
            failed_auth: Arc::new(Semaphore::new(parts.config.max_unauthenticated)),
            wrong_tokens: FailedAuthLimiter::default(),
            wrong_secrets: FailedAuthLimiter::default(),
            sockets: new_sockets,
            ready: parts.ready,
            started: AtomicBool::new(false),
            draining: CancellationToken::new(),
            closed: CancellationToken::new(),
            readers: Default::default(),
            first_attempts: Default::default(),
            abandoned: abandoned_sender,
            config: GatewayConfig { console: parts.config.console && files::ABSENT.is_none(), ..parts.config },
        });
        Ok((Self { router: router(app.clone(), parts.extra), app, tcp, socket, abandoned, sockets }, channel))
    }

    /// Updates the gauges of the agent, for an exporter that pushes metrics.
    pub fn gauge_refresh(&self) -> GaugeRefresh {
        GaugeRefresh::new(Arc::downgrade(&self.app))
    }

    /// The address that it listens on; `None`: only the control socket.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok())
    }

    /// Serves until `stop`. Then it refuses new messages, lets open requests and streams end within the configured
    /// `drain_s`, and returns when the last connection is closed.
    ///
    /// # Errors
    /// None at present; the type leaves room for a listener that fails for good.
    ///
    /// # Cancel safety
    /// If dropped midway, every connection is closed at once.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), GatewayError> {
        let Self { app, router, tcp, mut socket, mut abandoned, mut sockets } = self;
        let _closed = app.closed.clone().drop_guard();
        let limit = Duration::from_secs(app.config.drain_s);
        let (slots, socket_slots) =
            (ConnectionSlots::new(app.config.max_connections), Arc::new(Semaphore::new(SOCKET_CONNECTIONS)));
        // An accepted connection that has no slot yet; the kernel queues the others.
        let mut arrived: Option<(TcpStream, IpAddr)> = None;
        let mut ready = app.ready.clone();
        let mut starting = true;
        let mut connections = JoinSet::new();
        let mut deadline: Option<Instant> = None;
        loop {
            let service = ConnectionService { router: router.clone(), draining: app.draining.clone() };
            tokio::select! {
                () = stop.cancelled(), if deadline.is_none() => {
                    app.draining.cancel();
                    deadline = Some(Instant::now() + limit);
                }
                () = until(deadline) => break,
                Some(ended) = connections.join_next() => report(ended),
                Some(request) = abandoned.recv() => {
                    connections.spawn(request.stop_run(app.clone()));
                }
                Some(socket) = sockets.recv() => {
                    connections.spawn(ws::serve(socket, app.clone()));
                }
                up = async { ready.wait_for(|up| *up).await.is_ok() }, if starting => {
                    app.started.store(up, Ordering::Relaxed);
                    starting = false;
                }
                connection = accept_tcp(tcp.as_ref()), if arrived.is_none() => arrived = Some(connection),
                slot = slots.take(), if arrived.is_some() => {
                    if let Some((stream, address)) = arrived.take() {
                        connections.spawn(service.serve(stream, Peer::Tcp(address), slot));
                    }
                }
                (stream, trusted, slot) = accept_socket(socket.as_mut(), &socket_slots) => {
                    connections.spawn(service.serve(stream, Peer::Socket { trusted }, slot.into()));
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

/// The router and the drain token that connections are served with.
pub(crate) struct ConnectionService {
    pub(crate) router: Router,
    pub(crate) draining: CancellationToken,
}

impl ConnectionService {
    /// Serves one connection to its end. When draining begins, it ends after the request in progress. When others need
    /// its slot, it ends as soon as it has no request that has arrived or is authenticated.
    pub(crate) async fn serve<I>(self, io: I, peer: Peer, slot: ConnectionSlot)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { router, draining } = self;
        let requests = slot.requests();
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
            () = slot.close_requested() => Ok(()),
            () = draining.cancelled(), if !late => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, ?peer, "connection ended"); // caused by the peer: disconnected, or not HTTP
        }
    }
}

/// Logs that the task of a connection has panicked.
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

/// The address at which a browser of this machine reaches a listener: an unspecified one is the loopback's.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    address
}

/// Binds the first address of the name. All addresses must be loopback unless a token is configured.
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

/// Returns the next TCP connection. Cancel safe.
async fn accept_tcp(listener: Option<&TcpListener>) -> (TcpStream, IpAddr) {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true); // without it only latency suffers
                return (stream, address.ip());
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

/// Returns the next connection to the control socket, and whether its user may use it. Cancel safe.
pub(crate) async fn accept_socket(
    socket: Option<&mut ControlSocket>,
    slots: &Arc<Semaphore>,
) -> (UnixStream, bool, OwnedSemaphorePermit) {
    let (Some(socket), Ok(slot)) = (socket, slots.clone().acquire_owned().await) else {
        return std::future::pending().await;
    };
    loop {
        match socket.accept().await {
            Ok((stream, trusted)) => return (stream, trusted, slot),
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
