//! The freezes in force.

use async_trait::async_trait;
use belay_protocol::{ChannelId, Durability, Freeze, FreezeStore, StoreError, UnixMillis};
use rusqlite::{Connection, params};

use super::tx::{self, Done, Tx};
use super::{SqliteStore, rows};

#[async_trait]
impl FreezeStore for SqliteStore {
    async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
        self.read(in_force).await
    }

    async fn put_freeze(&self, freeze: Freeze) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| write(tx, &freeze, None)).await
    }

    async fn thaw(&self, freeze: Freeze, at: UnixMillis) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| write(tx, &freeze, Some(at))).await
    }
}

fn write(tx: &mut Tx<'_>, freeze: &Freeze, thawed_at: Option<UnixMillis>) -> Done<()> {
    let receipt = freeze.receipt.as_ref().map(rows::to_json).transpose()?;
    tx.exec(
        "INSERT INTO freezes (id, at, thawed_at, scope, detail, actor, source, receipt) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (id) DO UPDATE
         SET thawed_at = COALESCE(thawed_at, excluded.thawed_at), receipt = COALESCE(excluded.receipt, receipt)",
        params![
            freeze.id.as_uuid(),
            freeze.at.0,
            thawed_at.map(|at| at.0),
            rows::to_json(&freeze.scope)?,
            freeze.detail,
            freeze.actor,
            freeze.source.as_str(),
            receipt,
        ],
    )?;
    Ok(())
}

fn in_force(conn: &Connection) -> Done<Vec<Freeze>> {
    let sql =
        "SELECT id, at, scope, detail, actor, source, receipt FROM freezes WHERE thawed_at IS NULL ORDER BY at, id";
    tx::rows(conn, sql, [], |row| {
        let id = rows::id(row, "id")?;
        Ok(Freeze {
            id,
            scope: rows::from_json(&row.get::<_, String>("scope")?)?,
            detail: row.get("detail")?,
            actor: row.get("actor")?,
            source: ChannelId::new(row.get::<_, String>("source")?),
            at: rows::date(row, "at")?,
            receipt: rows::readable(row, id, "receipt")?,
        })
    })
}
