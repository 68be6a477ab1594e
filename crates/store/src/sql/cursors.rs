//! How far channels have read their sources.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::store::CURSORS_MAX;
use belay_protocol::{ChannelId, Cursor, Cursors, Durability, StoreError};

use super::SqlStore;
use super::tx::{self, Done, Tx};
use crate::value::params;

#[async_trait]
impl Cursors for SqlStore {
    async fn cursor(&self, channel: &ChannelId, name: &str) -> Result<Option<Arc<str>>, StoreError> {
        let (channel, name) = (channel.clone(), name.to_owned());
        let sql = "SELECT value FROM cursors WHERE channel = ?1 AND name = ?2";
        self.read(move |conn| tx::row(conn, sql, params![channel.as_str(), name], |row| row.get("value"))).await
    }

    async fn keep_cursor(&self, channel: &ChannelId, cursor: &Cursor) -> Result<(), StoreError> {
        let (channel, cursor) = (channel.clone(), cursor.clone());
        self.write(Durability::Committed, move |tx| keep(tx, &channel, &cursor, CURSORS_MAX)).await
    }
}

fn keep(tx: &mut Tx<'_>, channel: &ChannelId, cursor: &Cursor, most: u32) -> Done<()> {
    let kept = tx.exec(
        "INSERT INTO cursors (channel, name, value)
         SELECT ?1, ?2, ?3
         WHERE EXISTS (SELECT 1 FROM cursors WHERE channel = ?1 AND name = ?2)
            OR (SELECT COUNT(*) FROM cursors WHERE channel = ?1) < ?4
         ON CONFLICT (channel, name) DO UPDATE SET value = excluded.value",
        params![channel.as_str(), cursor.name(), cursor.value(), most],
    )?;
    if kept == 0 {
        return Err(StoreError::TooMuch(format!("the channel {channel} has {most} cursors already")).into());
    }
    Ok(())
}
