//! Pairing codes, and the people whom pairing has admitted.

use async_trait::async_trait;
use belay_protocol::cluster::Topic;
use belay_protocol::people::PENDING_MAX;
use belay_protocol::{
    ChannelId, Durability, PairedPerson, PendingPairing, PeopleStore, StoreError, Stranger, UnixMillis,
};

use super::connection::{Connection, Row};
use super::tx::{self, Done, Tx};
use super::{SqlStore, rows};
use crate::value::params;

#[async_trait]
impl PeopleStore for SqlStore {
    async fn paired(&self) -> Result<Vec<PairedPerson>, StoreError> {
        self.read(paired).await
    }

    async fn pending_pairings(&self, now: UnixMillis) -> Result<Vec<PendingPairing>, StoreError> {
        self.read(move |conn| pending(conn, now)).await
    }

    async fn put_pairing(&self, pairing: PendingPairing, now: UnixMillis) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| put(tx, &pairing, now)).await.inspect(|_| self.hint(Topic::People))
    }

    async fn take_pairing(&self, code_digest: String, now: UnixMillis) -> Result<Option<PendingPairing>, StoreError> {
        let take = "DELETE FROM pairings WHERE code_digest = ?1 AND expires_at > ?2
                    RETURNING channel, id, name, conversation, code_digest, expires_at";
        self.write(Durability::Committed, move |tx| tx.row(take, params![code_digest, now.0], pairing)).await
    }

    async fn drop_pairing(&self, channel: ChannelId, id: String) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| drop_pairing(tx, &channel, &id))
            .await
            .inspect(|_| self.hint(Topic::People))
    }

    async fn admit_person(&self, person: PairedPerson) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| admit(tx, &person)).await.inspect(|_| self.hint(Topic::People))
    }

    async fn remove_person(&self, channel: ChannelId, id: String) -> Result<bool, StoreError> {
        let delete = "DELETE FROM paired_people WHERE channel = ?1 AND id = ?2";
        self.write(Durability::Committed, move |tx| Ok(tx.exec(delete, params![channel.as_str(), id])? > 0))
            .await
            .inspect(|_| self.hint(Topic::People))
    }
}

fn put(tx: &mut Tx<'_>, pairing: &PendingPairing, now: UnixMillis) -> Done<()> {
    tx.exclusive("pairings")?;
    let PendingPairing { person, code_digest, expires_at } = pairing;
    let written = tx.exec(
        "INSERT INTO pairings (channel, id, name, conversation, code_digest, expires_at)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6
         WHERE (SELECT COUNT(*) FROM pairings WHERE channel = ?1 AND id <> ?2 AND expires_at > ?7) < ?8
         ON CONFLICT (channel, id) DO UPDATE SET name = excluded.name, conversation = excluded.conversation,
             code_digest = excluded.code_digest, expires_at = excluded.expires_at",
        params![
            person.channel.as_str(),
            person.id,
            person.name,
            person.conversation,
            code_digest,
            expires_at.0,
            now.0,
            PENDING_MAX as i64
        ],
    )?;
    if written == 0 {
        let refused = format!("{PENDING_MAX} strangers of the channel {} have a pairing code already", person.channel);
        return Err(StoreError::TooMuch(refused).into());
    }
    tx.post("DELETE FROM pairings WHERE expires_at <= ?1", params![now.0])?;
    Ok(())
}

fn drop_pairing(tx: &mut Tx<'_>, channel: &ChannelId, id: &str) -> Done<()> {
    tx.post("DELETE FROM pairings WHERE channel = ?1 AND id = ?2", params![channel.as_str(), id])?;
    Ok(())
}

fn admit(tx: &mut Tx<'_>, paired: &PairedPerson) -> Done<()> {
    let PairedPerson { person, admitted_by, admitted_through, admitted_at } = paired;
    drop_pairing(tx, &person.channel, &person.id)?;
    tx.post(
        "INSERT INTO paired_people
             (channel, id, name, conversation, admitted_by, admitted_through, admitted_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (channel, id) DO UPDATE SET name = excluded.name, conversation = excluded.conversation,
             admitted_by = excluded.admitted_by, admitted_through = excluded.admitted_through,
             admitted_at = excluded.admitted_at",
        params![
            person.channel.as_str(),
            person.id,
            person.name,
            person.conversation,
            admitted_by,
            admitted_through.as_str(),
            admitted_at.0
        ],
    )?;
    Ok(())
}

fn paired(conn: &Connection) -> Done<Vec<PairedPerson>> {
    let sql = "SELECT channel, id, name, conversation, admitted_by, admitted_through, admitted_at FROM paired_people
               ORDER BY admitted_at, channel, id";
    tx::rows(conn, sql, [], |row| {
        Ok(PairedPerson {
            person: person(row)?,
            admitted_by: row.get("admitted_by")?,
            admitted_through: ChannelId::new(row.get::<_, String>("admitted_through")?),
            admitted_at: rows::date(row, "admitted_at")?,
        })
    })
}

fn pending(conn: &Connection, now: UnixMillis) -> Done<Vec<PendingPairing>> {
    let sql = "SELECT channel, id, name, conversation, code_digest, expires_at FROM pairings WHERE expires_at > ?1
               ORDER BY expires_at, channel, id";
    tx::rows(conn, sql, params![now.0], pairing)
}

fn pairing(row: &Row<'_>) -> Done<PendingPairing> {
    let (code_digest, expires_at) = (row.get("code_digest")?, rows::date(row, "expires_at")?);
    Ok(PendingPairing { person: person(row)?, code_digest, expires_at })
}

fn person(row: &Row<'_>) -> Done<Stranger> {
    Ok(Stranger {
        channel: ChannelId::new(row.get::<_, String>("channel")?),
        id: row.get("id")?,
        name: row.get("name")?,
        conversation: row.get("conversation")?,
    })
}
