//! The senders of messages.

use belay_protocol::{KnownPrincipal, NewInput, PrincipalFilter, SEEN_PRECISION_MS, UnixMillis};

use super::connection::Connection;
use super::rows;
use super::tx::{self, Done, Tx};
use crate::limits::PAGE_MAX;
use crate::value::params;

/// Records the sender of a message, unless its row, last written at `last_seen_at`, is recent.
pub(super) fn note(tx: &mut Tx<'_>, input: &NewInput, last_seen_at: Option<UnixMillis>) -> Done<()> {
    let recent = last_seen_at.is_some_and(|last| input.at.0.saturating_sub(last.0) < SEEN_PRECISION_MS);
    if recent || input.work.is_autonomous() {
        return Ok(());
    }
    let name = input.provenance.as_ref().and_then(|provenance| Some(&provenance.sender.as_ref()?.name));
    tx.post(
        "INSERT INTO principals (channel, id, name, first_seen_at, last_seen_at) VALUES (?1, ?2, ?3, ?4, ?4)
         ON CONFLICT (channel, id) DO UPDATE SET name = COALESCE(excluded.name, principals.name),
             last_seen_at = CASE WHEN excluded.last_seen_at > principals.last_seen_at THEN excluded.last_seen_at
                                 ELSE principals.last_seen_at END",
        params![input.channel.as_str(), input.asker.principal, name, input.at.0],
    )?;
    Ok(())
}

/// Deletes the principals that have sent nothing since the date.
pub(super) fn prune(tx: &mut Tx<'_>, before: UnixMillis) -> Done<()> {
    tx.post("DELETE FROM principals WHERE last_seen_at < ?1", params![before.0])?;
    Ok(())
}

pub(super) fn known(conn: &Connection, filter: &PrincipalFilter) -> Done<Vec<KnownPrincipal>> {
    let sql = "SELECT channel, id, name, first_seen_at, last_seen_at FROM principals
               WHERE last_seen_at >= ?2
                 AND (last_seen_at < ?3 OR (last_seen_at = ?3 AND (channel > ?4 OR (channel = ?4 AND id > ?5))))
               ORDER BY last_seen_at DESC, channel, id LIMIT ?1";
    let since = filter.since.map_or(i64::MIN, |since| since.0);
    let after = filter.after.as_ref();
    let (date, channel, id) =
        after.map_or((i64::MAX, "", ""), |after| (after.last_seen_at.0, after.channel.as_str(), &after.id));
    tx::rows(conn, sql, params![filter.limit.min(PAGE_MAX), since, date, channel, id], |row| {
        Ok(KnownPrincipal {
            channel: row.get::<_, String>("channel")?.into(),
            id: row.get("id")?,
            name: row.get("name")?,
            first_seen_at: rows::date(row, "first_seen_at")?,
            last_seen_at: rows::date(row, "last_seen_at")?,
        })
    })
}
