//! The keys of commands and answers that were carried out.

use belay_protocol::store::ACTED_ON_KEPT;
use belay_protocol::{ActedOn, UnixMillis};
use rusqlite::{Connection, params};

use super::rows;
use super::tx::{Done, Tx};

/// Records a key, and deletes the oldest ones beyond the limit.
pub(super) fn note(tx: &mut Tx<'_>, ActedOn { key, digest, refused }: &ActedOn, at: UnixMillis) -> Done<()> {
    tx.exec(
        "INSERT INTO handled_inputs (key_channel, key_account, key_message, digest, refused, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO NOTHING",
        params![key.channel.as_str(), &*key.account, &*key.message_id, digest, refused, at.0],
    )?;
    tx.exec(
        "DELETE FROM handled_inputs WHERE seq <= (SELECT MAX(seq) FROM handled_inputs) - ?1",
        params![ACTED_ON_KEPT as i64],
    )?;
    Ok(())
}

/// All recorded keys, oldest first.
pub(super) fn all(conn: &Connection) -> Done<Vec<ActedOn>> {
    let all = "SELECT key_channel, key_account, key_message, digest, refused FROM handled_inputs ORDER BY seq";
    super::tx::rows(conn, all, [], |row| {
        Ok(ActedOn { key: rows::key(row)?, digest: row.get("digest")?, refused: row.get("refused")? })
    })
}
