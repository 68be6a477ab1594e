//! The freezes in force.

use async_trait::async_trait;
use belay_protocol::cluster::Topic;
use belay_protocol::{
    ChannelId, Durability, Freeze, FreezeId, FreezeReceipt, FreezeStore, RunId, StoreError, UnixMillis,
};

use super::connection::{Connection, Row};
use super::tx::{self, Done, Tx};
use super::{SqlStore, rows};
use crate::value::params;

#[async_trait]
impl FreezeStore for SqlStore {
    async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
        self.read(in_force).await
    }

    async fn past_freezes(&self, limit: u32) -> Result<Vec<Freeze>, StoreError> {
        self.read(move |conn| {
            let sql =
                format!("SELECT {COLUMNS} FROM freezes WHERE thawed_at IS NOT NULL ORDER BY at DESC, id DESC LIMIT ?1");
            tx::rows(conn, &sql, params![limit], read)
        })
        .await
    }

    /// While another freeze of this scope is in force, this one is written as ended: it never comes into force.
    async fn put_freeze(&self, freeze: Freeze) -> Result<Option<Freeze>, StoreError> {
        self.write(Durability::Committed, move |tx| put(tx, &freeze)).await.inspect(|_| self.hint(Topic::Freezes))
    }

    /// Ends every freeze of this scope: another daemon may have written the one that is in force.
    async fn thaw(&self, freeze: Freeze, at: UnixMillis) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| thaw(tx, &freeze, at)).await.inspect(|_| self.hint(Topic::Freezes))
    }
}

/// The columns that [`read`] reads.
const COLUMNS: &str = "id, at, scope, detail, actor, source, receipt, thawed_at";

/// The subject of the lock for freezes.
const FREEZES: &str = "freezes";

/// Two freezes of one scope in force are impossible: see the index `freezes_in_force`.
fn put(tx: &mut Tx<'_>, freeze: &Freeze) -> Done<Option<Freeze>> {
    tx.exclusive(FREEZES)?;
    let mut freeze = freeze.clone();
    if let Some(receipt) = &mut freeze.receipt {
        // Another daemon may have stopped other runs for the same freeze.
        let stored = tx.row("SELECT receipt FROM freezes WHERE id = ?1", params![freeze.id.as_uuid()], |row| {
            rows::readable::<FreezeReceipt>(row, freeze.id, "receipt")
        })?;
        let stored = stored.flatten().unwrap_or_default().stopped;
        let own = std::mem::replace(&mut receipt.stopped, stored);
        let new: Vec<RunId> = own.into_iter().filter(|run| !receipt.stopped.contains(run)).collect();
        receipt.stopped.extend(new);
    }
    insert(tx, &freeze, None)?;
    let sql = format!("SELECT {COLUMNS} FROM freezes WHERE thawed_at IS NULL AND scope = ?1");
    tx.row(&sql, params![rows::to_json(&freeze.scope)?], read)
}

fn thaw(tx: &mut Tx<'_>, freeze: &Freeze, at: UnixMillis) -> Done<()> {
    tx.exclusive(FREEZES)?;
    let ended = tx.rows(
        "UPDATE freezes SET thawed_at = ?3, receipt = CASE WHEN id = ?1 THEN COALESCE(?4, receipt) ELSE receipt END
         WHERE thawed_at IS NULL AND (id = ?1 OR scope = ?2) RETURNING id",
        params![freeze.id.as_uuid(), rows::to_json(&freeze.scope)?, at.0, receipt(freeze)?],
        |row| rows::id::<FreezeId>(row, "id"),
    )?;
    if ended.contains(&freeze.id) { Ok(()) } else { insert(tx, freeze, Some(at)) }
}

fn receipt(freeze: &Freeze) -> Done<Option<String>> {
    freeze.receipt.as_ref().map(rows::to_json).transpose()
}

/// Inserts a freeze, or adds its receipt or its end. A freeze that is not ended is ended at its begin if another of its
/// scope is in force.
fn insert(tx: &mut Tx<'_>, freeze: &Freeze, thawed_at: Option<UnixMillis>) -> Done<()> {
    tx.post(
        "INSERT INTO freezes (id, at, thawed_at, scope, detail, actor, source, receipt)
         VALUES (?1, ?2,
                 COALESCE(?3, (SELECT MAX(?2) FROM freezes WHERE thawed_at IS NULL AND scope = ?4 AND id <> ?1)),
                 ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (id) DO UPDATE
         SET thawed_at = COALESCE(freezes.thawed_at, excluded.thawed_at),
             receipt = COALESCE(excluded.receipt, freezes.receipt)",
        params![
            freeze.id.as_uuid(),
            freeze.at.0,
            thawed_at.map(|at| at.0),
            rows::to_json(&freeze.scope)?,
            freeze.detail,
            freeze.actor,
            freeze.source.as_str(),
            receipt(freeze)?,
        ],
    )?;
    Ok(())
}

fn in_force(conn: &Connection) -> Done<Vec<Freeze>> {
    let sql = format!("SELECT {COLUMNS} FROM freezes WHERE thawed_at IS NULL ORDER BY at, id");
    tx::rows(conn, &sql, [], read)
}

fn read(row: &Row<'_>) -> Done<Freeze> {
    let id = rows::id(row, "id")?;
    Ok(Freeze {
        id,
        scope: rows::from_json(&row.get::<_, String>("scope")?)?,
        detail: row.get("detail")?,
        actor: row.get("actor")?,
        source: ChannelId::new(row.get::<_, String>("source")?),
        at: rows::date(row, "at")?,
        receipt: rows::readable(row, id, "receipt")?,
        thawed_at: row.get::<_, Option<i64>>("thawed_at")?.map(UnixMillis),
    })
}
