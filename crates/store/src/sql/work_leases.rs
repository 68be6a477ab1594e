//! Work that one node does at a time.
//!
//! A claim locks the row, and then looks whether the owner lives, in another statement: see `postgres/lease` for the end of
//! a node. A claim never waits for another node: it may share its transaction with other work that this node holds locks for.

use async_trait::async_trait;
use belay_protocol::cluster::{ClusterTask, LeasedWork, WorkLease};
use belay_protocol::store::WorkLeases;
use belay_protocol::{BootId, ChannelId, Durability, StoreError};

use super::connection::{Connection, Engine, Row};
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use super::{SqlStore, nodes, rows};
use crate::value::params;

#[async_trait]
impl WorkLeases for SqlStore {
    async fn claim(&self, work: &LeasedWork, boot: BootId) -> Result<Option<WorkLease>, StoreError> {
        // Each node claims once a second what it does not have: while another node has it, that costs no commit.
        let asked = work.clone();
        if self.read(move |conn| has_other(conn, &asked, boot)).await? {
            return Ok(None);
        }
        let work = work.clone();
        self.write(Durability::Committed, move |tx| claim(tx, &work, boot)).await
    }

    async fn give_up(&self, lease: &WorkLease) -> Result<(), StoreError> {
        let lease = lease.clone();
        let sql = "UPDATE work_leases SET owner = NULL WHERE kind = ?1 AND name = ?2 AND owner = ?3 AND epoch = ?4";
        let given_up = move |tx: &mut Tx<'_>| {
            let (kind, name) = words(&lease.work);
            tx.post(sql, params![kind, name, lease.owner.as_uuid(), to_sql_int(lease.epoch)])
        };
        self.write(Durability::Committed, given_up).await
    }

    async fn leases(&self) -> Result<Vec<WorkLease>, StoreError> {
        self.read(leases).await
    }
}

/// The kind and the name of a work.
fn words(work: &LeasedWork) -> (&'static str, &str) {
    match work {
        LeasedWork::Channel(channel) => ("channel", channel.as_str()),
        LeasedWork::Task(task) => ("task", task.word()),
    }
}

/// Whether another living node has a work.
fn has_other(conn: &Connection, work: &LeasedWork, boot: BootId) -> Done<bool> {
    let (kind, name) = words(work);
    let sql = "SELECT 1 FROM work_leases w JOIN nodes n ON n.boot = w.owner AND n.ended_at IS NULL
               WHERE w.kind = ?1 AND w.name = ?2 AND w.owner <> ?3";
    Ok(tx::row(conn, sql, params![kind, name, boot.as_uuid()], |_| Ok(()))?.is_some())
}

fn claim(tx: &mut Tx<'_>, work: &LeasedWork, boot: BootId) -> Done<Option<WorkLease>> {
    if nodes::has_ended(tx, boot)? {
        return Ok(None);
    }
    let lease = |epoch| Some(WorkLease { work: work.clone(), owner: boot, epoch });
    let ((kind, name), me) = (words(work), boot.as_uuid());
    if !tx.try_exclusive("work_leases")? {
        return Ok(None); // another node claims at this moment
    }
    let row = "SELECT owner, epoch FROM work_leases WHERE kind = ?1 AND name = ?2";
    let unlocked = match tx.engine() {
        Engine::Sqlite => row.to_owned(),
        Engine::Postgres => format!("{row} FOR UPDATE SKIP LOCKED"),
    };
    let found = tx.row(&unlocked, params![kind, name], |row| {
        Ok((rows::optional_id::<BootId>(row, "owner")?, rows::count(row, "epoch")?))
    })?;
    let Some((owner, epoch)) = found else {
        // Another node uses the row, or there is none yet.
        if tx.row(row, params![kind, name], |_| Ok(()))?.is_some() {
            return Ok(None);
        }
        let first = "INSERT INTO work_leases (kind, name, owner, epoch) VALUES (?1, ?2, ?3, 1)";
        tx.post(first, params![kind, name, me])?;
        return Ok(lease(1));
    };
    match owner {
        Some(owner) if owner == boot => return Ok(lease(epoch)),
        Some(owner) if nodes::lives(tx, owner)? => return Ok(None),
        _ => {}
    }
    let next = epoch.saturating_add(1);
    tx.post(
        "UPDATE work_leases SET owner = ?3, epoch = ?4 WHERE kind = ?1 AND name = ?2",
        params![kind, name, me, to_sql_int(next)],
    )?;
    Ok(lease(next))
}

fn leases(conn: &Connection) -> Done<Vec<WorkLease>> {
    let sql = "SELECT w.kind, w.name, w.owner, w.epoch FROM work_leases w
               JOIN nodes n ON n.boot = w.owner AND n.ended_at IS NULL ORDER BY w.kind, w.name";
    Ok(tx::rows(conn, sql, [], lease)?.into_iter().flatten().collect())
}

/// `None`: a task that a newer version of the program knows.
fn lease(row: &Row<'_>) -> Done<Option<WorkLease>> {
    let (kind, name): (String, String) = (row.get("kind")?, row.get("name")?);
    let work = if kind == "channel" {
        LeasedWork::Channel(ChannelId::new(name))
    } else if name == ClusterTask::Janitor.word() {
        LeasedWork::Task(ClusterTask::Janitor)
    } else {
        return Ok(None);
    };
    Ok(Some(WorkLease { work, owner: rows::id(row, "owner")?, epoch: from_sql_int(row.get("epoch")?) }))
}
