//! The sign-ins of browsers at the console, and one-time links to it.

use async_trait::async_trait;
use belay_protocol::cluster::Topic;
use belay_protocol::{Durability, LINKS_MAX, SIGN_INS_MAX, SignIn, SignInStore, StoreError, UnixMillis};

use super::connection::Row;
use super::tx::{self, Done, Tx};
use super::{SqlStore, rows};
use crate::value::params;

const COLUMNS: &str = "id, digest, tokens, principal, agent, created_at, used_at, expires_at";

#[async_trait]
impl SignInStore for SqlStore {
    async fn put_sign_in(&self, sign_in: SignIn) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| put(tx, &sign_in)).await
    }

    async fn sign_in(&self, digest: String) -> Result<Option<SignIn>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM sign_ins WHERE digest = ?1");
        self.read(move |conn| Ok(tx::rows(conn, &sql, params![digest], sign_in)?.pop())).await
    }

    async fn use_sign_in(&self, id: String, used_at: UnixMillis, expires_at: UnixMillis) -> Result<(), StoreError> {
        let update = "UPDATE sign_ins SET used_at = ?2, expires_at = ?3 WHERE id = ?1";
        self.write(Durability::Relaxed, move |tx| tx.exec(update, params![id, used_at.0, expires_at.0]).map(|_| ()))
            .await
    }

    async fn sign_ins(&self) -> Result<Vec<SignIn>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM sign_ins ORDER BY created_at DESC, id DESC");
        self.read(move |conn| tx::rows(conn, &sql, [], sign_in)).await
    }

    async fn end_sign_ins(&self, ids: Vec<String>) -> Result<usize, StoreError> {
        let mut ids = ids;
        ids.sort_unstable(); // two daemons that end the same ones lock them in one order
        self.write(Durability::Committed, move |tx| {
            let mut ended = 0;
            for id in &ids {
                ended += tx.exec("DELETE FROM sign_ins WHERE id = ?1", params![id])?;
            }
            Ok(ended)
        })
        .await
        .inspect(|_| self.hint(Topic::SignIns))
    }

    async fn put_link(&self, digest: String, now: UnixMillis, expires_at: UnixMillis) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| put_link(tx, &digest, now, expires_at)).await
    }

    async fn take_link(&self, digest: String, now: UnixMillis) -> Result<bool, StoreError> {
        // A stranger may ask for any link: a wrong one costs no commit.
        let known = "SELECT 1 FROM sign_in_links WHERE digest = ?1";
        let presented = digest.clone();
        if self.read(move |conn| tx::row(conn, known, params![presented], |_| Ok(()))).await?.is_none() {
            return Ok(false);
        }
        let take = "DELETE FROM sign_in_links WHERE digest = ?1 RETURNING expires_at";
        self.write(Durability::Committed, move |tx| {
            let expires_at = tx.row(take, params![digest], |row| rows::date(row, "expires_at"))?;
            Ok(expires_at.is_some_and(|expires_at| expires_at > now))
        })
        .await
    }

    async fn drop_links(&self) -> Result<(), StoreError> {
        self.write(Durability::Committed, |tx| {
            tx.exclusive(LINKS)?; // a link that is not committed yet would outlive this deletion
            tx.post("DELETE FROM sign_in_links", [])
        })
        .await
    }
}

/// The subject of the lock for one-time links.
const LINKS: &str = "sign_in_links";

fn put_link(tx: &mut Tx<'_>, digest: &str, now: UnixMillis, expires_at: UnixMillis) -> Done<()> {
    tx.exclusive(LINKS)?;
    tx.post("DELETE FROM sign_in_links WHERE expires_at <= ?1", params![now.0])?;
    tx.post("INSERT INTO sign_in_links (digest, expires_at) VALUES (?1, ?2)", params![digest, expires_at.0])?;
    let too_many = "DELETE FROM sign_in_links WHERE digest <> ?1 AND digest NOT IN (
                        SELECT digest FROM sign_in_links WHERE digest <> ?1 ORDER BY expires_at DESC, digest LIMIT ?2)";
    let kept = i64::try_from(LINKS_MAX - 1).unwrap_or(i64::MAX);
    tx.post(too_many, params![digest, kept])
}

fn put(tx: &mut Tx<'_>, sign_in: &SignIn) -> Done<()> {
    let SignIn { id, digest, tokens, principal, agent, created_at, used_at, expires_at } = sign_in;
    tx.exclusive("sign_ins")?;
    tx.post("DELETE FROM sign_ins WHERE expires_at <= ?1", params![created_at.0])?;
    tx.post(
        &format!("INSERT INTO sign_ins ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"),
        params![id, digest, tokens, principal, agent, created_at.0, used_at.0, expires_at.0],
    )?;
    let too_many = "DELETE FROM sign_ins WHERE principal = ?1 AND id <> ?2 AND id NOT IN (
                        SELECT id FROM sign_ins WHERE principal = ?1 AND id <> ?2
                        ORDER BY used_at DESC, id DESC LIMIT ?3)";
    let kept = i64::try_from(SIGN_INS_MAX - 1).unwrap_or(i64::MAX);
    tx.post(too_many, params![principal, id, kept])?;
    Ok(())
}

fn sign_in(row: &Row<'_>) -> Done<SignIn> {
    Ok(SignIn {
        id: row.get("id")?,
        digest: row.get("digest")?,
        tokens: row.get("tokens")?,
        principal: row.get("principal")?,
        agent: row.get("agent")?,
        created_at: rows::date(row, "created_at")?,
        used_at: rows::date(row, "used_at")?,
        expires_at: rows::date(row, "expires_at")?,
    })
}
