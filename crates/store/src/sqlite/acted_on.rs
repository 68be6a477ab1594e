//! Keys of commands and answers that were acted on.

use belay_protocol::store::ACTED_ON_KEPT;
use belay_protocol::{ChannelId, IdempotencyKey, UnixMillis};
use rusqlite::{Connection, params};

use super::tx::{Done, Tx};

/// Notes a key, and forgets those that are too many.
pub(super) fn note(tx: &mut Tx<'_>, key: &IdempotencyKey, at: UnixMillis) -> Done<()> {
    tx.exec(
        "INSERT INTO acted_on (key_channel, key_account, key_message, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        params![key.channel.as_str(), &*key.account, &*key.message_id, at.0],
    )?;
    tx.exec("DELETE FROM acted_on WHERE seq <= (SELECT MAX(seq) FROM acted_on) - ?1", params![ACTED_ON_KEPT as i64])?;
    Ok(())
}

/// Every key, oldest first.
pub(super) fn all(conn: &Connection) -> Done<Vec<IdempotencyKey>> {
    super::tx::rows(conn, "SELECT key_channel, key_account, key_message FROM acted_on ORDER BY seq", [], |row| {
        Ok(IdempotencyKey {
            channel: ChannelId::new(row.get::<_, String>(0)?),
            account: row.get::<_, String>(1)?.into(),
            message_id: row.get::<_, String>(2)?.into(),
        })
    })
}
