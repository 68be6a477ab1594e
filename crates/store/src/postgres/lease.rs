//! The lease of a node: its registration among the nodes of a cluster, and the renewal on a connection of its own.
//!
//! A node lives from its registration until the row in `nodes` has an end. Another node writes that end once the lease is
//! over by the clock of the database; the renewal is refused from then on. Both update one row, so one of them sees the
//! other. The node itself counts from before each request that was confirmed, on its own monotonic clock, and stops earlier:
//! [`SILENT_AFTER`], [`LOST_AFTER`].
//!
//! On Linux the monotonic clock stops while the machine sleeps. After a sleep beyond the lease the node learns of its end
//! with the next renewal, which is refused. A process that was stopped (SIGSTOP) reads the clock before anything else.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use belay_protocol::BootId;
pub use belay_protocol::NodeState;
use tokio::sync::watch;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::connect::{self, IDLE_OF_WRITER, Limits};
use super::direct::{CLOCK, Direct, millis, offset_ms};
use super::fault::PgError;
use super::params::value;
pub use super::register::NewNode;
use super::register::{Registered, register};
use super::url::PostgresUrl;
use crate::error::OpenError;
use crate::value::ValueRef;

/// The duration of a lease, by the clock of the database: 15 s. Other nodes end a node after it. A node that loses its
/// database stops its work after 8 s ([`LOST_AFTER`]), and its slowest kind of process ends 2.2 s later: 4 s are left.
pub const LEASE: Duration = Duration::from_secs(15);

/// The time between two renewals: 3 s, so that two may fail before the node is silent.
pub const RENEW_EVERY: Duration = Duration::from_secs(3);

/// The time without a confirmed renewal after which a node begins no model call and no tool: 7 s.
pub const SILENT_AFTER: Duration = Duration::from_secs(7);

/// The time without a confirmed renewal after which a node ends all its work: 8 s.
pub const LOST_AFTER: Duration = Duration::from_secs(8);

/// The longest time of a renewal: 2 s. A longer one would leave no time for another attempt.
pub const RENEWAL_LIMIT: Duration = Duration::from_secs(2);

/// The pause before the first repeated attempt to renew. It doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The time in which the thread ends: a look-up of a host name may still be under way.
const END: Duration = Duration::from_millis(100);

/// The name of the connection in `pg_stat_activity`.
const APPLICATION: &str = "belay lease";

/// The times of a lease. The default has the constants of this module; tests use shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// See [`LEASE`].
    pub lease: Duration,
    /// See [`RENEW_EVERY`].
    pub renew_every: Duration,
    /// See [`SILENT_AFTER`].
    pub silent_after: Duration,
    /// See [`LOST_AFTER`].
    pub lost_after: Duration,
    /// See [`RENEWAL_LIMIT`].
    pub renewal_limit: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self {
            lease: LEASE,
            renew_every: RENEW_EVERY,
            silent_after: SILENT_AFTER,
            lost_after: LOST_AFTER,
            renewal_limit: RENEWAL_LIMIT,
        }
    }
}

/// The lease of this node. A thread of its own renews it until the value is dropped, which waits for the end of that thread
/// for at most a tenth of a second. The node does not end by that: `ClusterStore::release` is the clean end, and before it,
/// the lease keeps others from claiming the work. Without it, other nodes end the node after [`LEASE`].
#[derive(Debug)]
pub struct NodeLease {
    standing: Arc<Standing>,
    differing: Vec<String>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl NodeLease {
    /// Registers the node, and starts to renew its lease. The store must have been opened before: it creates the tables.
    /// Blocks for some round trips; not for a thread that runs asynchronous tasks.
    ///
    /// # Errors
    /// [`OpenError::NodeName`]: a living node has this name. [`OpenError::Newer`]: another node has migrated the schema since
    /// the store was opened, and this program cannot use it. [`OpenError::Database`]: the database has failed.
    pub fn register(url: &PostgresUrl, node: NewNode) -> Result<Self, OpenError> {
        Self::register_with(url, node, LeaseTimes::default())
    }

    /// As [`register`](Self::register), with other times. For tests.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    #[doc(hidden)]
    pub fn register_with(url: &PostgresUrl, node: NewNode, times: LeaseTimes) -> Result<Self, OpenError> {
        let limits = Limits { statement: times.renewal_limit, lock: times.renewal_limit, idle: IDLE_OF_WRITER };
        let Registered { sent, offset_ms, differing } = register(url, &node, times.lease)?;
        let standing = Arc::new(Standing {
            times,
            count: Mutex::new(Count { confirmed: sent, lost: false }),
            state: watch::Sender::new(NodeState::Member),
            offset_ms: watch::Sender::new(offset_ms),
            lease_until: AtomicI64::new(0),
        });
        let stop = CancellationToken::new();
        let renewal = Renewal { url: url.clone(), limits, boot: node.boot, standing: standing.clone() };
        let token = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| OpenError::Database(error.into()))?;
        let thread = std::thread::Builder::new().name("node-lease".into()).spawn(move || {
            runtime.block_on(token.run_until_cancelled(renewal.run()));
            runtime.shutdown_timeout(END);
        });
        let thread = Some(thread.map_err(|error| OpenError::Database(error.into()))?);
        Ok(Self { standing, differing, stop, thread })
    }

    /// The standing of the node. It changes at once after the time that changes it.
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.standing.state.subscribe()
    }

    /// The standing of the node by the clock at this moment, also if the thread of the lease has not run since, such as after
    /// a stop of the process.
    pub fn state_now(&self) -> NodeState {
        self.standing.look()
    }

    /// A function that says whether the node is a member by the clock at the moment of the question.
    pub fn membership(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let standing = self.standing.clone();
        Arc::new(move || standing.look() == NodeState::Member)
    }

    /// The milliseconds by which the clock of the database is ahead of the clock of this machine, measured at each renewal;
    /// negative: behind. It is exact up to half of a round trip.
    pub fn clock_offset(&self) -> watch::Receiver<i64> {
        self.standing.offset_ms.subscribe()
    }

    /// The names of the nodes that lived at the registration and have other settings. The caller warns.
    pub fn differing_settings(&self) -> &[String] {
        &self.differing
    }
}

impl Drop for NodeLease {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread of the node's lease panicked");
        }
    }
}

/// What the node knows about its lease.
#[derive(Debug)]
struct Standing {
    times: LeaseTimes,
    count: Mutex<Count>,
    state: watch::Sender<NodeState>,
    offset_ms: watch::Sender<i64>,
    /// The end of the lease by the last confirmed renewal, by the clock of the database. 0: there was none.
    lease_until: AtomicI64,
}

#[derive(Debug)]
struct Count {
    /// When the last confirmed request was sent, or earlier.
    confirmed: Instant,
    lost: bool,
}

impl Standing {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The standing by the clock. Publishes it.
    fn look(&self) -> NodeState {
        self.judge(&mut self.count())
    }

    /// Publishes under the lock, so that the last published standing is the newest one.
    fn judge(&self, count: &mut Count) -> NodeState {
        let silence = count.confirmed.elapsed();
        count.lost |= silence >= self.times.lost_after;
        let state = if count.lost {
            NodeState::Lost
        } else if silence >= self.times.silent_after {
            NodeState::Silent
        } else {
            NodeState::Member
        };
        self.state.send_if_modified(|known| std::mem::replace(known, state) != state);
        state
    }

    /// Counts a confirmed request. A confirmation that comes too late changes nothing.
    fn confirm(&self, sent: Instant) -> NodeState {
        let mut count = self.count();
        if self.judge(&mut count) == NodeState::Lost {
            return NodeState::Lost;
        }
        count.confirmed = sent;
        self.judge(&mut count)
    }

    /// Another node has ended this one.
    fn end(&self) {
        let mut count = self.count();
        count.lost = true;
        self.judge(&mut count);
    }

    /// Publishes each change of the standing by time. Returns when the lease is lost.
    async fn watch(&self) {
        loop {
            let until = match self.look() {
                NodeState::Member => self.times.silent_after,
                NodeState::Silent => self.times.lost_after,
                NodeState::Lost => return,
            };
            let silence = self.count().confirmed.elapsed();
            tokio::time::sleep(until.saturating_sub(silence)).await;
        }
    }
}

/// The work of the thread.
struct Renewal {
    url: PostgresUrl,
    limits: Limits,
    boot: BootId,
    standing: Arc<Standing>,
}

impl Renewal {
    /// Renews until the lease is lost. The clock is looked at first whenever the thread wakes.
    async fn run(self) {
        tokio::select! {
            biased;
            () = self.standing.watch() => {}
            () = self.renew() => {}
        }
        warn!("this node has lost its lease");
    }

    /// Returns when another node has ended this one.
    async fn renew(&self) {
        let (mut conn, mut pause) = (None, PAUSE);
        loop {
            match self.renew_once(&mut conn).await {
                Ok(Some(sent)) => {
                    if self.standing.confirm(sent) == NodeState::Lost {
                        return;
                    }
                    if pause > PAUSE {
                        info!("the lease of this node is renewed again");
                    }
                    pause = PAUSE;
                    tokio::time::sleep(self.standing.times.renew_every.saturating_sub(sent.elapsed())).await;
                }
                Ok(None) => {
                    warn!(
                        "the row of this node has an end, is missing, or is older than its last renewal: another node has \
                         ended this one, or the database has lost transactions"
                    );
                    return self.standing.end();
                }
                Err(error) => {
                    conn = None;
                    if pause == PAUSE {
                        warn!(%error, "the lease of this node could not be renewed");
                    } else {
                        debug!(%error, "the lease of this node still cannot be renewed");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Returns when the request was sent; `None`: the node has ended. Its row may have an end, or be missing, or have a shorter
    /// lease than this node has seen: then the database has lost transactions (`history`).
    async fn renew_once(&self, conn: &mut Option<Direct>) -> Result<Option<Instant>, PgError> {
        let conn = match conn {
            Some(conn) => conn,
            none => none.insert(Direct::connect(&self.url, &self.limits, APPLICATION).await?),
        };
        let lease = millis(self.standing.times.lease);
        let renew = format!(
            "UPDATE nodes SET lease_until = {CLOCK} + {lease} WHERE boot = $1 AND ended_at IS NULL AND lease_until >= $2
             RETURNING {CLOCK}, {}, lease_until",
            connect::is_own()
        );
        let seen = self.standing.lease_until.load(Ordering::Relaxed);
        let boot = self.boot.as_uuid().into_bytes();
        let (sent, wall) = (Instant::now(), SystemTime::now());
        let rows = conn.query(&renew, &[(&boot.as_slice(), Type::BYTEA), (&seen, Type::INT8)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        if value(row, 1)? != ValueRef::Int(1) {
            // The other connections of this node are refused: it can neither read nor write.
            return Err(PgError::shared_session());
        }
        if let ValueRef::Int(until) = value(row, 2)? {
            self.standing.lease_until.store(until, Ordering::Relaxed);
        }
        let offset = offset_ms(value(row, 0)?, wall, sent.elapsed());
        self.standing.offset_ms.send_if_modified(|known| std::mem::replace(known, offset) != offset);
        Ok(Some(sent))
    }
}

#[cfg(test)]
mod tests {
    use belay_testkit::postgres::{PoolMode, PostgresServer, Programs, TestDatabase};

    use super::super::PgConnection;
    use super::super::fault::Cause;
    use super::*;

    fn standing(silent: Duration, lost: Duration, confirmed: Instant) -> Standing {
        Standing {
            times: LeaseTimes { silent_after: silent, lost_after: lost, ..LeaseTimes::default() },
            count: Mutex::new(Count { confirmed, lost: false }),
            state: watch::Sender::new(NodeState::Member),
            offset_ms: watch::Sender::new(0),
            lease_until: AtomicI64::new(0),
        }
    }

    #[test]
    fn the_standing_depends_on_the_time_since_the_last_confirmed_request() {
        let hour = Duration::from_secs(3_600);
        let now = Instant::now();
        let seconds = |seconds: u64| now.checked_sub(Duration::from_secs(seconds)).expect("the machine runs for hours");
        for (silent, lost, expected) in [
            (hour, 2 * hour, NodeState::Member),
            (Duration::ZERO, hour, NodeState::Silent),
            (Duration::ZERO, Duration::ZERO, NodeState::Lost),
        ] {
            let standing = standing(silent, lost, seconds(0));
            assert_eq!((standing.look(), *standing.state.borrow()), (expected, expected));
        }
    }

    #[test]
    fn a_confirmation_ends_the_silence_but_not_the_loss() {
        let limit = Duration::from_secs(60);
        let now = Instant::now();
        let Some(earlier) = now.checked_sub(limit) else { return }; // the machine has just been started
        let silent = standing(limit, 60 * limit, earlier);
        assert_eq!(silent.look(), NodeState::Silent);
        assert_eq!(silent.confirm(now), NodeState::Member);
        let late = standing(limit / 2, limit, earlier);
        assert_eq!(late.confirm(now), NodeState::Lost, "the process was stopped until the confirmation came");
        assert_eq!(late.look(), NodeState::Lost);
        let ended = standing(limit, limit, now);
        ended.end();
        assert_eq!((ended.confirm(Instant::now()), *ended.state.borrow()), (NodeState::Lost, NodeState::Lost));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_session_that_a_pooler_has_given_to_a_refused_connection_is_no_longer_the_own_one() {
        let Some(programs) = Programs::for_test().expect("programs") else { return };
        let server = PostgresServer::shared(&programs).expect("a server");
        let Some(pooler) = server.pooler(PoolMode::Transaction).expect("a pooler") else { return };
        let database = TestDatabase::new(server).expect("a database");
        let (own, other) = (format!(":{}/", server.port()), format!(":{}/", pooler.port()));
        let pooled = format!("{}?sslmode=disable", database.url().replace(&own, &other));
        let pooled = PostgresUrl::parse(&pooled).expect("an address");
        let limit = Duration::from_secs(60);
        let limits = Limits { statement: limit, lock: limit, idle: IDLE_OF_WRITER };
        let mut lease = Direct::connect(&pooled, &limits, APPLICATION).await.expect("a connection");
        let own = format!("SELECT {}", connect::is_own());
        let is_own = async |lease: &mut Direct| {
            value(&lease.query(&own, &[]).await.expect("a row")[0], 0) == Ok(ValueRef::Int(1))
        };
        assert!(is_own(&mut lease).await);
        let refused = tokio::task::block_in_place(|| PgConnection::connect(&pooled, &limits, "test"));
        assert_eq!(refused.err().map(|error| error.cause()), Some(Cause::Pooler));
        assert!(!is_own(&mut lease).await);
    }
}
