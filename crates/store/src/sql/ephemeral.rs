//! Deletion of ephemeral sessions that were not used for a while.

use belay_protocol::{SessionKey, UnixMillis};

use super::prune::{Claim, Old, Progress, claim, count, delete_run, end_active};
use super::rows;
use super::tx::{Done, Tx};
use crate::value::params;

/// A condition on ephemeral threads `t`, joined with their session `s`. No conversation of the session was used after
/// the date `$before`, its lane was not opened after it, none of its runs is open, no message of its runs waits for
/// delivery, and no job that it asked for is open.
macro_rules! old_ephemeral {
    ($before:literal) => {
        concat!(
            "FROM threads t LEFT JOIN sessions s ON s.session = t.session
             WHERE t.ephemeral = 1 AND t.last_active_at < ",
            $before,
            " AND (s.session IS NULL OR COALESCE(s.opened_at < ",
            $before,
            ", TRUE))
              AND NOT EXISTS (SELECT 1 FROM threads used WHERE used.session = t.session AND used.ephemeral = 1
                                                           AND used.last_active_at >= ",
            $before,
            ")
              AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.indexed = 0 AND r.session = t.session AND r.ended_at IS NULL)
              AND NOT EXISTS (SELECT 1 FROM runs r JOIN outbox o ON o.run_id = r.id
                              WHERE r.indexed = 1 AND r.session = t.session AND o.state IN ('waiting', 'sending'))
              AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.requested_in = t.session AND j.ended_at IS NULL)"
        )
    };
}

/// A condition on ended runs that never entered a thread and have more data than their key.
macro_rules! ended_without_thread {
    () => {
        "thread IS NULL AND ended_at IS NOT NULL AND (text <> '' OR key_message IS NULL)"
    };
}

pub(super) use {ended_without_thread, old_ephemeral};

/// The next thread of an ephemeral session to delete. The active thread is deleted first and ends its session, so that
/// nobody can open a partly deleted conversation. `None`: there is none, or another writer uses the oldest one.
pub(super) fn oldest(tx: &mut Tx<'_>, before: UnixMillis, at: &mut Progress<'_>) -> Done<Option<Old>> {
    loop {
        let found = tx.row(
            concat!(
                "SELECT t.id, t.session, s.thread IS t.id AS active ",
                old_ephemeral!("?1"),
                " ORDER BY active DESC, t.last_active_at LIMIT 1"
            ),
            params![before.0],
            |row| {
                let old = Old { thread: row.get("id")?, session: row.get::<_, String>("session")?.into() };
                Ok((old, row.get::<_, bool>("active")?))
            },
        )?;
        let Some((old, active)) = found else { return Ok(None) };
        let sql = concat!("SELECT s.thread IS t.id AS active ", old_ephemeral!("?1"), " AND t.id = ?2");
        match claim(tx, &old, active, sql, params![before.0, old.thread])? {
            Claim::Old { active } => {
                if active {
                    end(tx, &old.session, at)?;
                }
                return Ok(Some(old));
            }
            Claim::Used => {} // the next query does not find it
            Claim::Busy => return Ok(None),
        }
    }
}

/// Deletes a session with the data that is not in its conversations.
fn end(tx: &mut Tx<'_>, session: &SessionKey, at: &mut Progress<'_>) -> Done<()> {
    at.removed.notes +=
        count(tx.exec("DELETE FROM notes WHERE kind = 'group' AND owner = ?1", params![session.as_str()])?);
    at.removed.secrets += count(tx.exec("DELETE FROM secrets WHERE session = ?1", params![session.as_str()])?);
    let loose = tx.rows(
        concat!("SELECT id FROM runs WHERE indexed = 1 AND session = ?1 AND ", ended_without_thread!()),
        params![session.as_str()],
        |row| rows::id(row, "id"),
    )?;
    for run in loose {
        *at.left -= delete_run(tx, run, at.keys_before, at.removed)?;
    }
    end_active(tx, session, at.removed)
}
