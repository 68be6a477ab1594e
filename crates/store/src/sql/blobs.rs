//! Files of messages in the table `blobs`, in parts of [`PART_BYTES`](crate::parts::PART_BYTES).
//!
//! A file is written under a name that is no digest, and gets its digest with its last part. A reference to a file locks
//! it (`uploads::refer_to`), so that the sweep, which locks it too, sees the reference.

use belay_protocol::{BlobDigest, Durability, StoreError, UnixMillis};

use super::SqlStore;
use super::connection::{Connection, Row};
use super::tx::{self, Done, Failure, Tx, from_sql_int, to_sql_int};
use crate::value::params;

/// The beginning of the names of files that are being written. No digest has it.
const UNFINISHED: &str = "unfinished ";

impl SqlStore {
    /// Stores a part of a file that is being written. Committed.
    pub(crate) async fn put_blob_part(
        &self,
        file: String,
        part: u64,
        bytes: Vec<u8>,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        let put = "INSERT INTO blobs (digest, part, at, bytes) VALUES (?1, ?2, ?3, ?4)";
        self.write(Durability::Committed, move |tx| {
            tx.post(put, params![format!("{UNFINISHED}{file}"), to_sql_int(part), at.0, bytes])
        })
        .await
    }

    /// Gives a file of so many parts its digest. If there is a file with this digest, it counts as written now. Committed.
    pub(crate) async fn name_blob(
        &self,
        file: String,
        parts: u64,
        digest: BlobDigest,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| {
            name(tx, &format!("{UNFINISHED}{file}"), parts, digest.as_str(), at)
        })
        .await
    }

    /// The number of parts of a file; 0: there is no such file.
    pub(crate) async fn blob_parts(&self, digest: &BlobDigest) -> Result<u64, StoreError> {
        let digest = digest.as_str().to_owned();
        self.read(move |conn| parts(conn, &digest)).await
    }

    /// A part of a file; `None`: the file was removed.
    pub(crate) async fn blob_part(&self, digest: &BlobDigest, part: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let digest = digest.as_str().to_owned();
        let sql = "SELECT bytes FROM blobs WHERE digest = ?1 AND part = ?2";
        self.read(move |conn| tx::row(conn, sql, params![digest, to_sql_int(part)], |row| row.get("bytes"))).await
    }

    /// The files that were last written before a date. Removes parts that were written before it, of files that were not
    /// finished. Committed.
    pub(crate) async fn old_blobs(&self, before: UnixMillis) -> Result<Vec<BlobDigest>, StoreError> {
        self.write(Durability::Committed, move |tx| {
            let end = format!("{UNFINISHED}~"); // a name goes on with hexadecimal digits and hyphens
            let unfinished = "DELETE FROM blobs WHERE at < ?1 AND digest > ?2 AND digest < ?3";
            tx.post(unfinished, params![before.0, UNFINISHED, end])?;
            let sql = "SELECT digest FROM blobs WHERE part = 0 AND at < ?1 AND NOT (digest > ?2 AND digest < ?3)
                       ORDER BY digest";
            tx.rows(sql, params![before.0, UNFINISHED, end], digest)
        })
        .await
    }

    /// Removes files that nothing refers to, except those that were written after the date. Returns their number.
    /// Committed.
    pub(crate) async fn remove_blobs(
        &self,
        mut digests: Vec<BlobDigest>,
        before: UnixMillis,
    ) -> Result<u64, StoreError> {
        digests.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str())); // all daemons lock in one order
        self.write(Durability::Committed, move |tx| {
            let mut removed = 0;
            for digest in &digests {
                removed += u64::from(remove(tx, digest.as_str(), before)?);
            }
            Ok(removed)
        })
        .await
    }
}

fn name(tx: &mut Tx<'_>, unfinished: &str, parts: u64, digest: &str, at: UnixMillis) -> Done<()> {
    tx.exclusive(&format!("blob {digest}"))?; // two daemons may store the same file
    let known = tx.exec("UPDATE blobs SET at = ?2 WHERE digest = ?1 AND part = 0", params![digest, at.0])?;
    if known > 0 {
        return tx.post("DELETE FROM blobs WHERE digest = ?1", params![unfinished]);
    }
    let named =
        tx.exec("UPDATE blobs SET digest = ?2, at = ?3 WHERE digest = ?1", params![unfinished, digest, at.0])?;
    if named as u64 == parts {
        return Ok(());
    }
    let lost = "parts of a file were removed while it was written: its writing took too long";
    Err(Failure::Refused(StoreError::Unavailable(lost.to_owned())))
}

/// Locks the file first: the deletion then sees the references of the transactions that had locked it.
fn remove(tx: &mut Tx<'_>, digest: &str, before: UnixMillis) -> Done<bool> {
    let written = "SELECT at FROM blobs WHERE digest = ?1 AND part = 0";
    let written = tx.locked(written, "blobs", params![digest], |row| row.get::<_, i64>("at"))?;
    if written.is_none_or(|at| at >= before.0) {
        return Ok(false);
    }
    let unused = "DELETE FROM blobs WHERE digest = ?1
                    AND NOT EXISTS (SELECT 1 FROM blob_references WHERE blob_references.digest = ?1)";
    Ok(tx.exec(unused, params![digest])? > 0)
}

fn parts(conn: &Connection, digest: &str) -> Done<u64> {
    let sql = "SELECT COUNT(*) FROM blobs WHERE digest = ?1";
    Ok(tx::row(conn, sql, params![digest], |row| Ok(from_sql_int(row.get(0)?)))?.unwrap_or(0))
}

fn digest(row: &Row<'_>) -> Done<BlobDigest> {
    row.get::<_, String>("digest")?.parse().map_err(Failure::damaged)
}
