//! The keys of commands and answers: those that are carried out, and those that were.

use belay_protocol::store::{ACTED_ON_KEPT, ClaimState, Claimed, KeyClaim};
use belay_protocol::{ActedOn, BootId, IdempotencyKey, StoreError, UnixMillis};

use super::connection::{Connection, Row};
use super::tx::{Done, Tx};
use super::{acceptance, rows};
use crate::value::params;

/// A key in the table.
struct Used {
    digest: Option<String>,
    state: ClaimState,
    claimed_by: Option<BootId>,
    at: UnixMillis,
}

/// The row of a key. A daemon that has its database to itself is not among the nodes: all others have ended.
const USED: &str = "SELECT h.digest, h.refused, h.claimed_by, h.at,
                        CASE WHEN EXISTS (SELECT 1 FROM nodes n WHERE n.boot = h.claimed_by AND n.ended_at IS NULL)
                             THEN 1 ELSE 0 END AS lives
                    FROM handled_inputs h WHERE h.key_channel = ?1 AND h.key_account = ?2 AND h.key_message = ?3";

fn used(row: &Row<'_>) -> Done<Used> {
    let claimed_by = rows::optional_id(row, "claimed_by")?;
    let state = match (claimed_by, row.get("lives")?, row.get("refused")?) {
        (Some(_), true, _) => ClaimState::InProgress,
        (Some(_), false, _) => ClaimState::Unknown,
        (None, _, true) => ClaimState::Refused,
        (None, _, false) => ClaimState::CarriedOut,
    };
    Ok(Used { digest: row.get("digest")?, state, claimed_by, at: rows::date(row, "at")? })
}

/// Claims a key, unless a message, or another command or answer, has it.
pub(super) fn claim(tx: &mut Tx<'_>, claim: &KeyClaim) -> Done<Claimed> {
    let KeyClaim { key, digest, owner, from, again_since, at } = claim;
    if let Some(known) = tx.read(|conn| acceptance::find(conn, key))? {
        return Ok(Claimed::Message(known));
    }
    let known = match tx.locked(USED, "h", acceptance::find_params(key), used)? {
        Some(known) => known,
        None => {
            // On PostgreSQL it waits for another node that claims the same key.
            let inserted = tx.exec(
                "INSERT INTO handled_inputs (key_channel, key_account, key_message, digest, refused, claimed_by, at)
                 VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)
                 ON CONFLICT DO NOTHING",
                params![key.channel.as_str(), &*key.account, &*key.message_id, digest, owner.as_uuid(), at.0],
            )?;
            if inserted > 0 {
                trim(tx)?;
                return Ok(Claimed::Now);
            }
            let other = tx.locked(USED, "h", acceptance::find_params(key), used)?;
            other.ok_or_else(|| StoreError::Unavailable("the key was released at this moment; try again".into()))?
        }
    };
    let Used { digest: used_for, state, claimed_by, at: since } = known;
    let is_own = claimed_by.is_some() && (claimed_by == Some(*owner) || claimed_by == *from);
    let again = state == ClaimState::Unknown && again_since.is_some_and(|again_since| since >= again_since);
    if used_for != *digest || !(is_own || again) {
        return Ok(Claimed::Used { digest: used_for, state });
    }
    if claimed_by != Some(*owner) {
        tx.post(
            "UPDATE handled_inputs SET claimed_by = ?4
             WHERE key_channel = ?1 AND key_account = ?2 AND key_message = ?3",
            params![key.channel.as_str(), &*key.account, &*key.message_id, owner.as_uuid()],
        )?;
    }
    Ok(Claimed::Now)
}

/// Deletes the claim of this owner.
pub(super) fn release(tx: &mut Tx<'_>, key: &IdempotencyKey, owner: BootId) -> Done<()> {
    tx.post(
        "DELETE FROM handled_inputs
         WHERE key_channel = ?1 AND key_account = ?2 AND key_message = ?3 AND claimed_by = ?4",
        params![key.channel.as_str(), &*key.account, &*key.message_id, owner.as_uuid()],
    )
}

/// The command or the answer under a key, for a message that comes under it.
pub(super) fn find(tx: &mut Tx<'_>, key: &IdempotencyKey) -> Done<Option<(Option<String>, ClaimState)>> {
    let known = tx.row(USED, acceptance::find_params(key), used)?;
    Ok(known.map(|Used { digest, state, .. }| (digest, state)))
}

/// Records a key and ends its claim. The first record counts.
pub(super) fn note(tx: &mut Tx<'_>, ActedOn { key, digest, refused }: &ActedOn, at: UnixMillis) -> Done<()> {
    // Before the insertion: on PostgreSQL each insertion takes a number, and the oldest numbers are deleted.
    let claimed = tx.exec(
        "UPDATE handled_inputs SET refused = ?4, claimed_by = NULL
         WHERE key_channel = ?1 AND key_account = ?2 AND key_message = ?3 AND claimed_by IS NOT NULL",
        params![key.channel.as_str(), &*key.account, &*key.message_id, refused],
    )?;
    if claimed > 0 {
        return Ok(());
    }
    tx.post(
        "INSERT INTO handled_inputs (key_channel, key_account, key_message, digest, refused, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO NOTHING",
        params![key.channel.as_str(), &*key.account, &*key.message_id, digest, refused, at.0],
    )?;
    trim(tx)
}

/// Deletes the oldest keys beyond the limit.
fn trim(tx: &mut Tx<'_>) -> Done<()> {
    tx.post(
        "DELETE FROM handled_inputs WHERE seq <= (SELECT MAX(seq) FROM handled_inputs) - ?1",
        params![ACTED_ON_KEPT as i64],
    )
}

/// All recorded keys without a claim, oldest first.
pub(super) fn all(conn: &Connection) -> Done<Vec<ActedOn>> {
    let all = "SELECT key_channel, key_account, key_message, digest, refused FROM handled_inputs
               WHERE claimed_by IS NULL ORDER BY seq";
    super::tx::rows(conn, all, [], |row| {
        Ok(ActedOn { key: rows::key(row)?, digest: row.get("digest")?, refused: row.get("refused")? })
    })
}
