//! Hints between the nodes of a cluster: what was committed elsewhere.
//!
//! One thread with one dedicated connection listens to the channel of the schema, and notifies it after commits, outside of
//! every transaction: a notification within one serialises all commits of the server. Several commits share a
//! notification. A hint may be lost: every topic changes each second anyway, and the newest event is read at intervals.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use belay_protocol::Seq;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Notification;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use uuid::Uuid;

use super::direct::Direct;
use super::fault::PgError;
use super::history::History;
use super::params::value;
use super::url::PostgresUrl;
use crate::edition::edition;
use crate::hints::{Hearing, HintBoard, raise};
use crate::value::ValueRef;

/// The shortest time between two notifications: 10 ms, so at most 100 a second.
const COALESCE: Duration = Duration::from_millis(10);

/// The time after which every topic changes.
const TICK: Duration = Duration::from_secs(1);

/// The time between two reads of the newest event while somebody may wait for it.
const POLL: Duration = Duration::from_millis(250);

/// The same while nobody does.
const POLL_IDLE: Duration = Duration::from_secs(1);

/// The time in which a notification to itself must arrive.
const SELF_TEST: Duration = Duration::from_secs(2);

/// The time for an answer.
const LIMIT: Duration = Duration::from_secs(4);

/// The pause before the first repeated attempt to connect. It doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The time in which the thread ends: a look-up of a host name may still be under way.
const END: Duration = Duration::from_millis(100);

/// The name of the connection in `pg_stat_activity`.
const APPLICATION: &str = "belay hints";

/// The longest name of a channel, in bytes. PostgreSQL cuts longer ones, and two schemas would share a channel.
const NAME_MAX: usize = 63;

/// The thread. It ends with the value, after the last notification was sent.
pub(crate) struct Hinter {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Hinter {
    /// Starts the thread. `tip` is raised when there are newer events. If there are only older ones, `history` is lost.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(
        url: PostgresUrl,
        board: Arc<HintBoard>,
        tip: watch::Sender<Seq>,
        history: Arc<History>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let channel = channel(url.schema());
        let work = Work { url, channel, board, tip, history, stop: stop.clone() };
        let thread = std::thread::Builder::new().name("store-hints".into()).spawn(move || {
            runtime.block_on(work.run());
            runtime.shutdown_timeout(END);
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Hinter {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread of the hints panicked");
        }
    }
}

/// The channel of a schema. Other databases of the server have other channels.
fn channel(schema: &str) -> String {
    let name = format!("belay_{schema}");
    if name.len() <= NAME_MAX { name } else { format!("belay__{:08x}", edition(schema.as_bytes())) }
}

/// The work of the thread.
struct Work {
    url: PostgresUrl,
    channel: String,
    board: Arc<HintBoard>,
    tip: watch::Sender<Seq>,
    history: Arc<History>,
    stop: CancellationToken,
}

impl Work {
    async fn run(self) {
        tokio::select! {
            () = self.tick() => {}
            () = self.connections() => {}
        }
    }

    /// Changes every topic each second, also without a connection. Never returns.
    async fn tick(&self) {
        loop {
            sleep(TICK).await;
            self.board.change_all();
        }
    }

    /// Works with one connection after the other until the store is closed.
    async fn connections(&self) {
        let mut pause = PAUSE;
        loop {
            let connected = self.stop.run_until_cancelled(Box::pin(self.connect())).await;
            let error = match connected {
                None => return,
                Some(Ok(mut conn)) => {
                    pause = PAUSE;
                    match self.serve(&mut conn).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Some(Err(error)) => error,
            };
            if self.board.hearing.send_replace(Hearing::Unknown) == Hearing::Unknown {
                debug!(%error, "the connection for hints is still lost");
            } else {
                warn!(%error, "the connection for hints is lost: changes of other nodes are seen later");
            }
            if self.stop.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Listens on a new connection, and tests whether notifications arrive.
    async fn connect(&self) -> Result<Direct, PgError> {
        let mut conn = Direct::bare(&self.url, LIMIT, APPLICATION).await?;
        conn.batch(&format!("LISTEN \"{}\"", self.channel)).await?;
        let hearing = self.test(&mut conn).await?;
        match hearing {
            Hearing::Polled => warn!(
                "the database sends no notifications through this address: changes of other nodes are seen up to a second \
                 later. A pooler in transaction mode may be the reason: use pool_mode = session, or the address of the server"
            ),
            _ => info!(channel = %self.channel, "listens to the other nodes"),
        }
        self.board.hearing.send_replace(hearing);
        self.board.change_all(); // what was committed without a connection
        Ok(conn)
    }

    /// Sends a notification from another connection. A pooler in transaction mode would pass one of the own session on.
    async fn test(&self, conn: &mut Direct) -> Result<Hearing, PgError> {
        let mut other = Direct::bare(&self.url, LIMIT, APPLICATION).await?;
        let test = format!("test {}", Uuid::now_v7().simple());
        other.batch(&self.notify(&test)).await?;
        let arrived = async {
            loop {
                let heard = conn.heard().await?;
                let found = heard.iter().any(|notification| notification.payload() == test);
                self.receive(&heard, None);
                if found {
                    return Ok(Hearing::Notified);
                }
            }
        };
        timeout(SELF_TEST, arrived).await.unwrap_or(Ok(Hearing::Polled))
    }

    fn notify(&self, payload: &str) -> String {
        format!("NOTIFY \"{}\", '{payload}'", self.channel)
    }

    /// Returns when the store is closed.
    async fn serve(&self, conn: &mut Direct) -> Result<(), PgError> {
        let own = conn.query("SELECT CAST(pg_backend_pid() AS BIGINT)", &[]).await?;
        let own = own.first().map(|row| value(row, 0)).transpose()?.and_then(int);
        let (mut free_at, mut poll_at) = (Instant::now(), Instant::now());
        loop {
            tokio::select! {
                heard = conn.heard() => self.receive(&heard?, own),
                () = async {
                    self.board.until_pending().await;
                    sleep_until(free_at).await;
                } => {
                    free_at = Instant::now() + COALESCE;
                    self.send(conn).await?;
                }
                () = sleep_until(poll_at) => {
                    self.poll(conn).await?;
                    let waited_for = self.tip.receiver_count() > 0;
                    poll_at = Instant::now() + if waited_for { POLL } else { POLL_IDLE };
                }
                () = self.stop.cancelled() => return self.send(conn).await,
            }
        }
    }

    /// Sends what is pending. After a failure it is pending again.
    async fn send(&self, conn: &mut Direct) -> Result<(), PgError> {
        let Some(pending) = self.board.take_pending() else { return Ok(()) };
        let sent = conn.batch(&self.notify(&pending.payload())).await;
        sent.inspect_err(|_| self.board.put_back(pending))
    }

    /// Passes on what other nodes have sent. `own`: the process of this connection, whose notifications were passed on before
    /// they were sent.
    fn receive(&self, heard: &[Notification], own: Option<i64>) {
        self.board.hearing.send_if_modified(|hearing| {
            // The notification of the test came late.
            let late = *hearing == Hearing::Polled && !heard.is_empty();
            if late {
                *hearing = Hearing::Notified;
            }
            late
        });
        for notification in heard.iter().filter(|heard| own != Some(i64::from(heard.process_id()))) {
            if let Some(tip) = self.board.receive(notification.payload()) {
                raise(&self.tip, tip);
            }
        }
    }

    /// Reads the newest event. Numbers of events are in the order of their commits, and the newest one is never deleted: if
    /// this node has seen a later one, the database has lost it.
    async fn poll(&self, conn: &mut Direct) -> Result<(), PgError> {
        let Seq(seen) = *self.tip.borrow();
        let newest = format!("SELECT MAX(seq) FROM \"{}\".events", self.url.schema());
        let rows = conn.query(&newest, &[]).await?;
        let found = rows.first().map(|row| value(row, 0)).transpose()?.and_then(int);
        let found = found.and_then(|found| u64::try_from(found).ok()).unwrap_or(0);
        if found >= seen {
            raise(&self.tip, found);
        } else if !self.history.is_lost() {
            error!(seen, found, "the database has lost events: this node ends itself");
            let recorded = conn.batch(&self.history.record(self.url.schema(), 0)).await;
            self.history.lose(); // also if it is not recorded: nothing may be written on what is left
            recorded?;
        }
        Ok(())
    }
}

fn int(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Int(int) => Some(int),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
