//! The skills that conversations began with, once for each content.

use async_trait::async_trait;
use belay_protocol::{Durability, SessionKey, SkillSnapshot, SkillStore, StoreError};
use rusqlite::params;
use uuid::Uuid;

use super::SqliteStore;
use super::tx::{self, Done, Tx};

#[async_trait]
impl SkillStore for SqliteStore {
    async fn keep_skills(&self, session: &SessionKey, skills: SkillSnapshot) -> Result<(), StoreError> {
        let session = session.clone();
        self.write(Durability::Relaxed, move |tx| keep(tx, &session, &skills)).await
    }

    async fn kept_skills(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        let session = session.clone();
        self.read(move |conn| {
            let sql = "SELECT k.text FROM sessions s JOIN threads t ON t.id = s.thread
                       JOIN skill_snapshots k ON k.digest = t.skills WHERE s.session = ?1";
            tx::row(conn, sql, params![session.as_str()], |row| Ok(row.get(0)?))
        })
        .await
    }
}

fn keep(tx: &mut Tx<'_>, session: &SessionKey, skills: &SkillSnapshot) -> Done<()> {
    let kept = tx.exec(
        "UPDATE threads SET skills = ?2
         WHERE id = (SELECT thread FROM sessions WHERE session = ?1) AND skills IS NULL",
        params![session.as_str(), skills.digest],
    )?;
    if kept > 0 {
        tx.exec(
            "INSERT INTO skill_snapshots (digest, text) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![skills.digest, skills.text],
        )?;
    }
    Ok(())
}

/// Deletes the skills of a thread that is about to lose them, unless another thread has the same.
pub(super) fn release(tx: &mut Tx<'_>, thread: Uuid) -> Done<()> {
    tx.exec(
        "DELETE FROM skill_snapshots WHERE digest = (SELECT skills FROM threads WHERE id = ?1)
           AND NOT EXISTS (SELECT 1 FROM threads WHERE skills = digest AND id <> ?1)",
        params![thread],
    )?;
    Ok(())
}
