//! Connections of runs. Each run that calls a server's tool has its own connection, which is kept until the run ends.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_protocol::{Generation, RunId};
use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::mcp::connection::{Connection, EndLimits};
use crate::mcp::membership::Membership;
use crate::mcp::program::StartPrograms;
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;
use crate::mcp::tasks::Claims;
use crate::mcp::wire::Watch;

/// How long an unused connection is kept if the end of its run was not reported. 5 minutes: a model thinks for less.
const IDLE_LIMIT: Duration = Duration::from_secs(300);

/// Pause between two searches for idle connections.
const SWEEP_PAUSE: Duration = Duration::from_secs(15);

/// How often a server is started in one run. 3: a server that exits by itself gets two more attempts.
const MAX_STARTS: u32 = 3;

/// The connections of runs. Share one instance. [`McpSessions::close`] and [`McpSessions::keep`] end all connections.
pub struct McpSessions {
    starter: Arc<dyn StartPrograms>,
    slots: Mutex<HashMap<Key, Slot>>,
    idle_limit: Duration,
    end_limits: EndLimits,
    claims: Claims,
    membership: Membership,
}

/// A run and the name of a server.
type Key = (RunId, String);

/// One connection of a run to a server. It may be reopened several times.
#[derive(Clone)]
struct Slot {
    cell: Arc<OnceCell<Connection>>,
    shared: Arc<Shared>,
    /// The generation of the run at its first call.
    generation: Generation,
}

/// State of a server in one run. It survives when the connection is reopened.
struct Shared {
    starts: AtomicU32,
    /// Number of calls in progress.
    busy: AtomicUsize,
    last_used: Mutex<Instant>,
    /// Tools that differed from their approved description in an earlier check.
    changed: Mutex<HashSet<String>>,
}

/// A connection for one call. The connection counts as used while the lease exists.
pub(super) struct Lease {
    cell: Arc<OnceCell<Connection>>,
    shared: Arc<Shared>,
}

impl McpSessions {
    /// Creates an empty set of connections. `starter` starts the programs of servers.
    pub fn new(starter: Arc<dyn StartPrograms>) -> Self {
        let (slots, end_limits, claims) = (Mutex::default(), EndLimits::default(), Claims::default());
        Self { starter, slots, idle_limit: IDLE_LIMIT, end_limits, claims, membership: Membership::default() }
    }

    /// Sets what says whether this node of a cluster may still act for its runs.
    #[must_use]
    pub fn of_node(self, membership: Membership) -> Self {
        Self { membership, ..self }
    }

    /// Replaces the idle limit of 5 minutes.
    #[must_use]
    pub fn with_idle_limit(self, idle_limit: Duration) -> Self {
        Self { idle_limit, ..self }
    }

    /// Replaces the limits of the end of a connection.
    #[must_use]
    pub fn with_end_limits(self, end_limits: EndLimits) -> Self {
        Self { end_limits, ..self }
    }

    /// The tasks that calls wait for.
    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Opens a connection that belongs to no slot. `watch` records what the server writes.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is ended.
    pub(super) async fn connect(
        &self,
        server: &Server,
        run: RunId,
        generation: &Generation,
        watch: Arc<Watch>,
    ) -> Result<Connection, ServerError> {
        let manner = (self.end_limits, self.membership.clone());
        Connection::open(server, self.starter(), run, generation, watch, manner).await
    }

    /// Cancels the calls in progress of a run at the programs that it has started, which are ended next. Returns after
    /// twice [`EndLimits::read`] at most, and at once if there are no such calls.
    pub(crate) async fn cancel_calls(&self, run: RunId) {
        let cells: Vec<_> =
            self.slots().iter().filter(|(key, _)| key.0 == run).map(|(_, slot)| slot.cell.clone()).collect();
        let programs = cells.iter().filter_map(|cell| cell.get()).filter(|connection| !connection.is_elsewhere());
        let told = join_all(programs.map(|connection| connection.cancel_calls(self.end_limits.read))).await;
        if let Some(last) = told.into_iter().flatten().max() {
            sleep_until(last + self.end_limits.read).await;
        }
    }

    /// Ends the connections of a run and their servers; returns when they have ended. The run must make no more calls.
    pub async fn end_run(&self, run: RunId) {
        self.end_those(|key, _| key.0 == run).await;
    }

    /// Periodically ends connections of stopped runs, broken connections, and idle ones. When `stop` is cancelled, ends
    /// all connections and returns.
    pub async fn keep(&self, stop: CancellationToken) {
        let mut ticks = interval(SWEEP_PAUSE.min(self.idle_limit).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.sweep().await,
            }
        }
        self.close().await;
    }

    /// Ends all connections; returns when their servers have ended.
    pub async fn close(&self) {
        self.end_those(|_, _| true).await;
    }

    /// Number of connections.
    pub fn open(&self) -> usize {
        self.slots().len()
    }

    /// Names of the remote servers to which a run is connected. Local servers are among the run's processes instead.
    pub(crate) fn elsewhere(&self, run: RunId) -> Vec<String> {
        let open =
            |slot: &Slot| slot.cell.get().is_some_and(|connection| connection.is_elsewhere() && connection.is_open());
        self.slots()
            .iter()
            .filter(|((of, _), slot)| *of == run && open(slot))
            .map(|((_, name), _)| name.clone())
            .collect()
    }

    fn starter(&self) -> &dyn StartPrograms {
        &*self.starter
    }

    async fn sweep(&self) {
        let now = Instant::now();
        self.end_those(|_, slot| {
            let shared = &slot.shared;
            let idle = shared.busy.load(Ordering::SeqCst) == 0 && now - *shared.last_used() > self.idle_limit;
            idle || !slot.generation.is_current()
        })
        .await;
        // Cleans up after servers that exited by themselves. The slot stays, because it counts the starts.
        let broken = |slot: &&Slot| {
            let idle = slot.shared.busy.load(Ordering::SeqCst) == 0;
            slot.cell.get().is_some_and(|connection| !connection.is_open() && (idle || !connection.is_gone()))
        };
        let broken: Vec<_> = self.slots().values().filter(broken).map(|slot| slot.cell.clone()).collect();
        join_all(broken.iter().filter_map(|cell| Some(cell.get()?.end()))).await;
    }

    async fn end_those(&self, which: impl Fn(&Key, &Slot) -> bool) {
        let taken: Vec<_> = self.slots().extract_if(|key, slot| which(key, slot)).collect();
        join_all(taken.iter().map(async |((run, server), slot)| {
            if let Some(connection) = slot.cell.get() {
                let how = connection.end().await;
                debug!(%run, server, how, "mcp server of a run ended");
            }
        }))
        .await;
    }

    /// Returns the connection of a run to a server, and opens it if there is none.
    ///
    /// # Cancel safety
    /// If the future is dropped while it opens a connection, the server is ended. Another waiting call of the run then
    /// opens it again.
    pub(super) async fn lease(
        &self,
        server: &Server,
        run: RunId,
        generation: &Generation,
    ) -> Result<Lease, ServerError> {
        let key = (run, server.name().to_owned());
        let slot = self.slot(&key, generation);
        let lease = Lease::new(&slot);
        let open = async || {
            if slot.shared.starts.fetch_add(1, Ordering::SeqCst) >= MAX_STARTS {
                return Err(ServerError::TooManyStarts(MAX_STARTS));
            }
            let opened = self.connect(server, run, generation, Arc::default()).await;
            let is_away = matches!(opened, Err(ServerError::Unreachable(_) | ServerError::Silent { .. }));
            if is_away && server.is_elsewhere() {
                // Nothing was started. The server may come back.
                slot.shared.starts.fetch_sub(1, Ordering::SeqCst);
            }
            let connection = opened?;
            connection.subscribe();
            Ok(connection)
        };
        Box::pin(slot.cell.get_or_try_init(open)).await?;
        if !generation.is_current() {
            // The run was stopped meanwhile. The stop may have looked for connections before this one was open.
            self.end_those(|found, _| *found == key).await;
            return Err(ServerError::Stopped);
        }
        Ok(lease)
    }

    /// The slot of a connection that is usable or not opened yet.
    fn slot(&self, key: &Key, generation: &Generation) -> Slot {
        let mut slots = self.slots();
        let fresh = |shared| Slot { cell: Arc::default(), shared, generation: generation.clone() };
        let slot = slots.entry(key.clone()).or_insert_with(|| fresh(Arc::default()));
        if let Some(connection) = slot.cell.get().filter(|connection| !connection.is_open()) {
            if connection.is_gone() {
                // Servers end sessions in good order, as often as they like.
                slot.shared.starts.fetch_sub(1, Ordering::SeqCst);
            }
            *slot = fresh(slot.shared.clone());
        }
        slot.clone()
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            starts: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
            changed: Mutex::default(),
        }
    }
}

impl Shared {
    fn last_used(&self) -> MutexGuard<'_, Instant> {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    fn new(slot: &Slot) -> Self {
        slot.shared.busy.fetch_add(1, Ordering::SeqCst);
        Self { cell: slot.cell.clone(), shared: slot.shared.clone() }
    }

    /// The open connection.
    pub(super) fn connection(&self) -> &Connection {
        self.cell.get().expect("a lease is given out once the connection stands")
    }

    /// Whether the server still describes the tool as it was approved. After one difference, the result stays false for
    /// this run.
    pub(super) async fn is_as_approved(&self, tool: &str, digest: &str) -> Result<bool, ServerError> {
        let changed = || self.shared.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed().contains(tool) {
            return Ok(false);
        }
        let now = self.connection().digest_of(tool).await?;
        let same = now.as_deref() == Some(digest);
        if !same {
            changed().insert(tool.to_owned());
        }
        Ok(same)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.shared.last_used() = Instant::now();
        self.shared.busy.fetch_sub(1, Ordering::SeqCst);
    }
}
