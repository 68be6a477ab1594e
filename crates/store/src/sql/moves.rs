//! Conversations that have another address now.

use async_trait::async_trait;
use belay_protocol::{ChannelId, Durability, MoveStore, MovedConversation, StoreError};

use super::SqlStore;
use super::tx::{self, Done, Tx};
use crate::value::params;

#[async_trait]
impl MoveStore for SqlStore {
    async fn moves(&self, channel: ChannelId) -> Result<Vec<MovedConversation>, StoreError> {
        let sql = "SELECT moved_from, moved_to, keeps_session FROM moved_conversations WHERE channel = ?1
                   ORDER BY moved_from";
        self.read(move |conn| {
            tx::rows(conn, sql, params![channel.as_str()], |row| {
                Ok(MovedConversation {
                    channel: channel.clone(),
                    from: row.get("moved_from")?,
                    to: row.get("moved_to")?,
                    keeps_session: row.get("keeps_session")?,
                })
            })
        })
        .await
    }

    async fn put_move(&self, moved: MovedConversation) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| put(tx, &moved)).await
    }
}

fn put(tx: &mut Tx<'_>, moved: &MovedConversation) -> Done<()> {
    let MovedConversation { channel, from, to, keeps_session } = moved;
    tx.post(
        "INSERT INTO moved_conversations (channel, moved_from, moved_to, keeps_session) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (channel, moved_from) DO UPDATE
         SET moved_to = excluded.moved_to, keeps_session = excluded.keeps_session",
        params![channel.as_str(), from, to, *keeps_session],
    )?;
    Ok(())
}
