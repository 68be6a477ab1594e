//! The sign-ins of browsers at the console.

use async_trait::async_trait;
use belay_protocol::{Durability, SIGN_INS_MAX, SignIn, SignInStore, StoreError, UnixMillis};
use rusqlite::{Row, params};

use super::tx::{self, Done, Tx};
use super::{SqliteStore, rows};

const COLUMNS: &str = "id, digest, tokens, principal, agent, created_at, used_at, expires_at";

#[async_trait]
impl SignInStore for SqliteStore {
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
        self.write(Durability::Committed, move |tx| {
            let mut ended = 0;
            for id in &ids {
                ended += tx.exec("DELETE FROM sign_ins WHERE id = ?1", params![id])?;
            }
            Ok(ended)
        })
        .await
    }
}

fn put(tx: &mut Tx<'_>, sign_in: &SignIn) -> Done<()> {
    let SignIn { id, digest, tokens, principal, agent, created_at, used_at, expires_at } = sign_in;
    tx.exec("DELETE FROM sign_ins WHERE expires_at <= ?1", params![created_at.0])?;
    tx.exec(
        &format!("INSERT INTO sign_ins ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"),
        params![id, digest, tokens, principal, agent, created_at.0, used_at.0, expires_at.0],
    )?;
    let too_many = "DELETE FROM sign_ins WHERE principal = ?1 AND id <> ?2 AND id NOT IN (
                        SELECT id FROM sign_ins WHERE principal = ?1 AND id <> ?2
                        ORDER BY used_at DESC, id DESC LIMIT ?3)";
    let kept = i64::try_from(SIGN_INS_MAX - 1).unwrap_or(i64::MAX);
    tx.exec(too_many, params![principal, id, kept])?;
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
