//! The skills that conversations began with, once for each content.

use async_trait::async_trait;
use belay_protocol::{Durability, SessionKey, SkillSnapshot, SkillStore, StoreError};
use uuid::Uuid;

use super::SqlStore;
use super::connection::Engine;
use super::tx::{self, Done, Tx};
use crate::value::params;

#[async_trait]
impl SkillStore for SqlStore {
    async fn keep_skills(&self, session: &SessionKey, skills: SkillSnapshot) -> Result<(), StoreError> {
        let session = session.clone();
        self.write(Durability::Relaxed, move |tx| keep(tx, &session, &skills)).await
    }

    async fn kept_skills(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        let session = session.clone();
        self.read(move |conn| {
            let sql = "SELECT k.text FROM sessions s JOIN threads t ON t.id = s.thread
                       JOIN skill_snapshots k ON k.digest = t.skills WHERE s.session = ?1";
            tx::row(conn, sql, params![session.as_str()], |row| row.get(0))
        })
        .await
    }
}

fn keep(tx: &mut Tx<'_>, session: &SessionKey, skills: &SkillSnapshot) -> Done<()> {
    if tx.engine() == Engine::Postgres {
        return keep_beside_others(tx, session, skills);
    }
    let kept = tx.exec(
        "UPDATE threads SET skills = ?2
         WHERE id = (SELECT thread FROM sessions WHERE session = ?1) AND skills IS NULL",
        params![session.as_str(), skills.digest],
    )?;
    if kept > 0 {
        tx.post(
            "INSERT INTO skill_snapshots (digest, text) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![skills.digest, skills.text],
        )?;
    }
    Ok(())
}

/// The same if other writers may delete the skills meanwhile, with their last thread. The skills are written first: then
/// their row is locked, and [`release`] waits until the thread refers to it.
fn keep_beside_others(tx: &mut Tx<'_>, session: &SessionKey, skills: &SkillSnapshot) -> Done<()> {
    let thread = tx.locked(
        "SELECT t.id FROM sessions s JOIN threads t ON t.id = s.thread WHERE s.session = ?1 AND t.skills IS NULL",
        "s, t",
        params![session.as_str()],
        |row| row.get::<_, Uuid>("id"),
    )?;
    let Some(thread) = thread else { return Ok(()) };
    tx.post(
        "INSERT INTO skill_snapshots (digest, text) VALUES (?1, ?2)
         ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest",
        params![skills.digest, skills.text],
    )?;
    tx.post("UPDATE threads SET skills = ?2 WHERE id = ?1", params![thread, skills.digest])
}

/// Deletes the skills of a thread that is about to lose them, unless another thread has the same.
pub(super) fn release(tx: &mut Tx<'_>, thread: Uuid) -> Done<()> {
    if tx.engine() == Engine::Postgres {
        // The deletion is a statement of its own: it sees the threads of the writers for which this one waits.
        let sql =
            "SELECT digest FROM skill_snapshots WHERE digest = (SELECT skills FROM threads WHERE id = ?1) FOR UPDATE";
        tx.post(sql, params![thread])?;
    }
    tx.post(
        "DELETE FROM skill_snapshots WHERE digest = (SELECT skills FROM threads WHERE id = ?1)
           AND NOT EXISTS (SELECT 1 FROM threads WHERE skills = digest AND id <> ?1)",
        params![thread],
    )?;
    Ok(())
}
