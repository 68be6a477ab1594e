//! Pairing codes, and the people whom pairing has admitted.

use async_trait::async_trait;
use belay_protocol::{
    ChannelId, Durability, PairedPerson, PendingPairing, PeopleStore, StoreError, Stranger, UnixMillis,
};
use rusqlite::{Connection, Row, params};

use super::tx::{self, Done, Tx};
use super::{SqliteStore, rows};

#[async_trait]
impl PeopleStore for SqliteStore {
    async fn paired(&self) -> Result<Vec<PairedPerson>, StoreError> {
        self.read(paired).await
    }

    async fn pending_pairings(&self, now: UnixMillis) -> Result<Vec<PendingPairing>, StoreError> {
        self.read(move |conn| pending(conn, now)).await
    }

    async fn put_pairing(&self, pairing: PendingPairing, now: UnixMillis) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| put(tx, &pairing, now)).await
    }

    async fn drop_pairing(&self, channel: ChannelId, id: String) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| drop_pairing(tx, &channel, &id)).await
    }

    async fn admit_person(&self, person: PairedPerson) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| admit(tx, &person)).await
    }

    async fn remove_person(&self, channel: ChannelId, id: String) -> Result<bool, StoreError> {
        let delete = "DELETE FROM paired_people WHERE channel = ?1 AND id = ?2";
        self.write(Durability::Committed, move |tx| Ok(tx.exec(delete, params![channel.as_str(), id])? > 0)).await
    }
}

fn put(tx: &mut Tx<'_>, pairing: &PendingPairing, now: UnixMillis) -> Done<()> {
    tx.exec("DELETE FROM pairings WHERE expires_at <= ?1", params![now.0])?;
    let PendingPairing { person, code_digest, expires_at } = pairing;
    tx.exec(
        "INSERT OR REPLACE INTO pairings (channel, id, name, conversation, code_digest, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![person.channel.as_str(), person.id, person.name, person.conversation, code_digest, expires_at.0],
    )?;
    Ok(())
}

fn drop_pairing(tx: &mut Tx<'_>, channel: &ChannelId, id: &str) -> Done<()> {
    tx.exec("DELETE FROM pairings WHERE channel = ?1 AND id = ?2", params![channel.as_str(), id])?;
    Ok(())
}

fn admit(tx: &mut Tx<'_>, paired: &PairedPerson) -> Done<()> {
    let PairedPerson { person, admitted_by, admitted_through, admitted_at } = paired;
    drop_pairing(tx, &person.channel, &person.id)?;
    tx.exec(
        "INSERT OR REPLACE INTO paired_people
             (channel, id, name, conversation, admitted_by, admitted_through, admitted_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
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
    tx::rows(conn, sql, params![now.0], |row| {
        let (code_digest, expires_at) = (row.get("code_digest")?, rows::date(row, "expires_at")?);
        Ok(PendingPairing { person: person(row)?, code_digest, expires_at })
    })
}

fn person(row: &Row<'_>) -> Done<Stranger> {
    Ok(Stranger {
        channel: ChannelId::new(row.get::<_, String>("channel")?),
        id: row.get("id")?,
        name: row.get("name")?,
        conversation: row.get("conversation")?,
    })
}
