//! Taking over the work of daemons that have ended: the condition and the lock that jobs and routine runs share.

use super::connection::{Connection, Engine};
use super::tx;
use super::tx::Done;
use crate::value::Params;

/// The condition that the daemon `?1` may take over a row: it has no owner, or another one, whose node has ended. A daemon
/// that uses its database alone has no row in `nodes`, so that each earlier owner counts as ended. `owner`: the column,
/// with its table.
pub(super) fn takeable(owner: &str) -> String {
    format!(
        "({owner} IS NULL OR {owner} <> ?1
          AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.boot = {owner} AND n.ended_at IS NULL))"
    )
}

/// The end of the query that chooses the rows to take over. It locks them, and leaves out those that another writer has
/// locked: that writer takes them over, or changes them. SQLite has one writer, and locks nothing.
pub(super) fn skip_locked(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "",
        Engine::Postgres => "FOR UPDATE SKIP LOCKED",
    }
}

/// Whether this query of rows to take over finds any.
pub(super) fn any(conn: &Connection, choice: &str, params: impl Params) -> Done<bool> {
    Ok(tx::row(conn, &format!("{choice} LIMIT 1"), params, |_| Ok(()))?.is_some())
}
