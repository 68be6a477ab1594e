//! A TCP proxy between a client and a server, for tests of a network that fails.
//!
//! It forwards to one server, and on demand cuts connections, holds all data back, delays it or refuses connections. One
//! [`Fault`] at a time can be armed: it happens at the n-th occurrence of bytes in one direction, such as those of a commit
//! or of its answer.
//!
//! **Does not know** any protocol above TCP.

mod scanner;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

/// The way of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server answers.
    ToClient,
}

/// What happens at a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection is cut before the bytes are forwarded.
    CutBefore,
    /// The connection is cut after the bytes were forwarded.
    CutAfter,
    /// As [`CutBefore`](Self::CutBefore), for all connections. New ones are refused until [`TcpProxy::accept`].
    CutBeforeAndRefuse,
    /// Neither the bytes nor any other data is forwarded until [`TcpProxy::release`].
    Hold,
}

/// A fault at the n-th occurrence of bytes, counted over all connections from its arming.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Where the bytes are looked for.
    pub direction: Direction,
    /// The bytes, at most 64. They are found across packets too.
    pub bytes: Vec<u8>,
    /// Which occurrence, from 1.
    pub nth: u64,
    /// What happens.
    pub action: Action,
}

/// What holds for all connections.
#[derive(Clone, Copy, Debug, Default)]
struct Controls {
    refuse: bool,
    hold: bool,
    delay: Duration,
    /// Changes of this number cut all connections.
    cuts: u64,
    /// The connections with lower numbers are frozen.
    frozen: u64,
}

impl Controls {
    /// Whether data of this connection passes.
    fn passes(&self, connection: u64) -> bool {
        !self.hold && connection >= self.frozen
    }
}

struct Shared {
    server: SocketAddr,
    controls: watch::Sender<Controls>,
    fault: Mutex<Option<Fault>>,
    /// The number of faults that have happened.
    happened: watch::Sender<u64>,
    accepted: AtomicU64,
}

/// A proxy on a free port of 127.0.0.1, with a thread of its own. The end of the value cuts its connections and ends the
/// thread.
pub struct TcpProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl TcpProxy {
    /// Starts a proxy to this port of 127.0.0.1. Blocks for moments.
    ///
    /// # Errors
    /// There is no free port, or no thread.
    pub fn start(server_port: u16) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: (Ipv4Addr::LOCALHOST, server_port).into(),
            controls: watch::Sender::default(),
            fault: Mutex::default(),
            happened: watch::Sender::default(),
            accepted: AtomicU64::default(),
        });
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (own, token) = (shared.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("tcp-proxy".into()).spawn(move || {
            runtime.block_on(async {
                // The listener registers with the runtime.
                if let Ok(listener) = TcpListener::from_std(listener) {
                    token.run_until_cancelled(listen(listener, own)).await;
                }
            });
        })?;
        Ok(Self { shared, address, stop, thread: Some(thread) })
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The number of connections that were accepted and not refused.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Arms a fault, in place of one that has not happened.
    pub fn arm(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    /// The number of faults that have happened.
    #[must_use]
    pub fn happened(&self) -> u64 {
        *self.shared.happened.borrow()
    }

    /// Waits until this many faults have happened.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn until_happened(&self, faults: u64) {
        let mut happened = self.shared.happened.subscribe();
        // The sender lives as long as this value.
        let _ = happened.wait_for(|happened| *happened >= faults).await;
    }

    /// Cuts all connections.
    pub fn cut_all(&self) {
        self.shared.controls.send_modify(|controls| controls.cuts += 1);
    }

    /// Closes new connections at once. The others stay.
    pub fn refuse(&self) {
        self.shared.controls.send_modify(|controls| controls.refuse = true);
    }

    /// Accepts new connections again.
    pub fn accept(&self) {
        self.shared.controls.send_modify(|controls| controls.refuse = false);
    }

    /// Forwards nothing from now on, in either direction, and keeps all connections open. New ones are accepted, and nothing
    /// of them is forwarded.
    pub fn hold(&self) {
        self.shared.controls.send_modify(|controls| controls.hold = true);
    }

    /// Forwards nothing more of the connections that are open now, and keeps them open towards both sides, also after the end
    /// of one side, until [`cut_all`](Self::cut_all). New connections work.
    pub fn freeze_open(&self) {
        let next = self.accepted();
        self.shared.controls.send_modify(|controls| controls.frozen = next);
    }

    /// Forwards again, beginning with the data that was held back.
    pub fn release(&self) {
        self.shared.controls.send_modify(|controls| controls.hold = false);
    }

    /// Delays each packet by this time. Zero: no delay.
    pub fn delay(&self, delay: Duration) {
        self.shared.controls.send_modify(|controls| controls.delay = delay);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join()); // a panic of it has been printed
        }
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if shared.controls.borrow().refuse {
                    continue; // the drop closes it
                }
                let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
                streams.spawn(forward(client, shared.clone(), number));
            }
            Some(_) = streams.join_next() => {}
        }
    }
}

/// Forwards one connection until one of the two ends it, or a cut.
async fn forward(client: TcpStream, shared: Arc<Shared>, number: u64) {
    let mut controls = shared.controls.subscribe();
    let cuts = controls.borrow().cuts;
    let Ok(server) = TcpStream::connect(shared.server).await else { return };
    // Without it, each small packet waits for the acknowledgement of the one before. A failure costs time only.
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::select! {
        _ = controls.wait_for(|controls| controls.cuts != cuts) => {}
        () = stream::carry(&shared, number, Direction::ToServer, &mut from_client, &mut to_server) => {}
        () = stream::carry(&shared, number, Direction::ToClient, &mut from_server, &mut to_client) => {}
    }
}
