//! The nodes of a cluster, and the end of a node.
//!
//! A node lives while its row has no end. Its registration and its renewals are in `postgres/lease`: they have a connection
//! of their own. All dates are by the clock of the database.

use async_trait::async_trait;
use belay_protocol::cluster::{NodeEnd, NodeRecord, Topic};
use belay_protocol::store::ClusterStore;
use belay_protocol::{BootId, Durability, StoreError, UnixMillis};

use super::connection::{Connection, Engine, Row};
use super::tx::{self, Done, Failure, Tx};
use super::{SqlStore, rows};
use crate::postgres::CLOCK;
use crate::value::params;

/// How long the row of a node is kept after its end: 30 days, in milliseconds.
const KEPT_MS: i64 = 30 * 86_400_000;

/// How long a loss of transactions is reported after it was noticed: 7 days, in milliseconds.
const REPORTED_MS: i64 = 7 * 86_400_000;

/// How long after its end a node is listed: a day, in milliseconds.
const LISTED_MS: i64 = 86_400_000;

#[async_trait]
impl ClusterStore for SqlStore {
    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        self.read(nodes).await
    }

    async fn end_expired(&self) -> Result<Vec<BootId>, StoreError> {
        // Each node looks once a second: without such a node, that costs no commit.
        if !self.read(has_expired).await? {
            return Ok(Vec::new());
        }
        let ended = self.write(Durability::Committed, end_expired).await?;
        if !ended.is_empty() {
            self.hint(Topic::Nodes);
        }
        Ok(ended)
    }

    async fn begin_drain(&self, boot: BootId) -> Result<(), StoreError> {
        let sql = "UPDATE nodes SET draining = 1 WHERE boot = ?1 AND ended_at IS NULL";
        self.write(Durability::Committed, move |tx| tx.post(sql, params![boot.as_uuid()])).await
    }

    async fn release(&self, boot: BootId) -> Result<(), StoreError> {
        let released = self.write(Durability::Committed, move |tx| release(tx, boot)).await;
        released.inspect(|()| self.hint(Topic::Nodes))
    }
}

impl SqlStore {
    /// Writes the row of a node with a lease of `lease_ms` from now, by the clock of the database; 0: it is over. For tests: a
    /// node registers with a [`NodeLease`](crate::lease::NodeLease).
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: a living node has this name, or the database has failed.
    #[doc(hidden)]
    pub async fn put_node(&self, boot: BootId, name: &str, lease_ms: u32) -> Result<(), StoreError> {
        let name = name.to_owned();
        let put = move |tx: &mut Tx<'_>| {
            let now = clock(tx.engine());
            let sql = format!(
                "INSERT INTO nodes (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
                 VALUES (?1, ?2, 'test', 1, 1, 'same', {now}, {now} + ?3)"
            );
            tx.post(&sql, params![boot.as_uuid(), name, lease_ms])
        };
        self.write(Durability::Committed, put).await
    }
}

/// A loss of committed transactions that a daemon noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseLoss {
    /// When it was noticed, by the clock of the database.
    pub noticed_at: UnixMillis,
    /// The date of the newest event that was left; `None`: there was no event.
    pub kept_until: Option<UnixMillis>,
    /// The number of lost transactions of the daemon that noticed it. 0: those of another daemon were lost.
    pub transactions: u64,
}

/// The losses of committed transactions that are reported, newest first. Only PostgreSQL has a record of them.
pub(super) fn losses(conn: &Connection) -> Done<Vec<DatabaseLoss>> {
    if conn.engine() == Engine::Sqlite {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT lost_at, kept_until, lost FROM writers WHERE lost_at > {CLOCK} - ?1 ORDER BY lost_at DESC LIMIT 100"
    );
    tx::rows(conn, &sql, params![REPORTED_MS], |row| {
        Ok(DatabaseLoss {
            noticed_at: rows::date(row, "lost_at")?,
            kept_until: rows::optional_date(row, "kept_until")?,
            transactions: rows::count(row, "lost")?,
        })
    })
}

/// The time of the database in milliseconds, as an expression. On PostgreSQL it advances within a transaction.
fn clock(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        Engine::Postgres => CLOCK,
    }
}

/// Ends all nodes, and forgets old ones. For a store that uses the database alone: its lock shows that no node lives.
pub(super) fn end_all(conn: &Connection) -> Done<()> {
    let now = clock(conn.engine());
    conn.execute(&format!("UPDATE nodes SET ended_at = {now}, ended_by = 'lease' WHERE ended_at IS NULL"), [])?;
    conn.execute(&forget_sql(now), []).map(|_| ())
}

fn forget_sql(now: &str) -> String {
    format!("DELETE FROM nodes WHERE ended_at < {now} - {KEPT_MS}")
}

fn expired(now: &str) -> String {
    format!("ended_at IS NULL AND lease_until <= {now}")
}

fn has_expired(conn: &Connection) -> Done<bool> {
    let sql = format!("SELECT 1 FROM nodes WHERE {} LIMIT 1", expired(clock(conn.engine())));
    Ok(tx::row(conn, &sql, [], |_| Ok(()))?.is_some())
}

/// A node whose renewal is on its way has a locked row, and is left for the next call. So a renewal that is committed late
/// never meets an end: one of the two sees the other.
fn end_expired(tx: &mut Tx<'_>) -> Done<Vec<BootId>> {
    let now = clock(tx.engine());
    let expired = expired(now);
    let unlocked = match tx.engine() {
        Engine::Sqlite => String::new(),
        Engine::Postgres => {
            format!("AND boot IN (SELECT boot FROM nodes WHERE {expired} ORDER BY boot FOR UPDATE SKIP LOCKED)")
        }
    };
    let ended = tx.rows(
        &format!("UPDATE nodes SET ended_at = {now}, ended_by = 'lease' WHERE {expired} {unlocked} RETURNING boot"),
        [],
        |row| rows::id(row, "boot"),
    )?;
    if !ended.is_empty() {
        forget(tx, now)?;
    }
    Ok(ended)
}

/// Deletes the nodes that ended long ago, with the counts of their commits, which only PostgreSQL has.
fn forget(tx: &mut Tx<'_>, now: &str) -> Done<()> {
    if tx.engine() == Engine::Postgres {
        let counts =
            format!("DELETE FROM writers WHERE boot IN (SELECT boot FROM nodes WHERE ended_at < {now} - {KEPT_MS})");
        tx.post(&counts, [])?;
    }
    tx.post(&forget_sql(now), [])
}

/// Releases the lanes of a node, by an index: most sessions are of no living node.
pub(super) const RELEASE_LANES: &str = "UPDATE sessions SET owner = NULL WHERE owner = ?1";

/// The rows of the work before the row of the node: a node that sees the end finds the work free.
fn release(tx: &mut Tx<'_>, boot: BootId) -> Done<()> {
    let owner = boot.as_uuid();
    tx.post(RELEASE_LANES, params![owner])?;
    // Parked: the end of this node is no crash of its jobs.
    tx.post(
        "UPDATE jobs SET owner = NULL, parked = 1 WHERE state IN ('in_progress', 'stuck') AND owner = ?1",
        params![owner],
    )?;
    tx.post("UPDATE work_leases SET owner = NULL WHERE owner = ?1", params![owner])?;
    let now = clock(tx.engine());
    tx.post(
        &format!(
            "UPDATE nodes SET draining = 1, ended_at = {now}, ended_by = 'drain' WHERE boot = ?1 AND ended_at IS NULL"
        ),
        params![owner],
    )
}

/// Whether a node has registered and has ended. A daemon that uses its database alone has not registered.
pub(super) fn has_ended(tx: &mut Tx<'_>, boot: BootId) -> Done<bool> {
    let sql = "SELECT 1 FROM nodes WHERE boot = ?1 AND ended_at IS NOT NULL";
    Ok(tx.row(sql, params![boot.as_uuid()], |_| Ok(()))?.is_some())
}

/// Whether a node lives.
pub(super) fn lives(tx: &mut Tx<'_>, boot: BootId) -> Done<bool> {
    let sql = "SELECT 1 FROM nodes WHERE boot = ?1 AND ended_at IS NULL";
    Ok(tx.row(sql, params![boot.as_uuid()], |_| Ok(()))?.is_some())
}

fn nodes(conn: &Connection) -> Done<Vec<NodeRecord>> {
    let now = clock(conn.engine());
    let sql = format!(
        "SELECT n.boot, n.name, n.version, n.settings, n.started_at, n.lease_until, n.draining, n.ended_at, n.ended_by,
                (SELECT COUNT(*) FROM sessions s WHERE s.owner = n.boot) AS lanes
         FROM nodes n WHERE n.ended_at IS NULL OR n.ended_at > {now} - {LISTED_MS}
         ORDER BY n.started_at DESC, n.boot DESC"
    );
    tx::rows(conn, &sql, [], node)
}

fn node(row: &Row<'_>) -> Done<NodeRecord> {
    let by = match row.get::<_, Option<String>>("ended_by")?.as_deref() {
        None => None,
        Some("drain") => Some(NodeEnd::Drain),
        Some("lease") => Some(NodeEnd::Lease),
        Some(_) => return Err(Failure::damaged("end of a node")),
    };
    Ok(NodeRecord {
        boot: rows::id(row, "boot")?,
        name: row.get("name")?,
        version: row.get("version")?,
        settings: row.get("settings")?,
        started_at: rows::date(row, "started_at")?,
        lease_until: rows::date(row, "lease_until")?,
        draining: row.get("draining")?,
        ended: rows::optional_date(row, "ended_at")?.zip(by),
        lanes: rows::count(row, "lanes")?,
    })
}
