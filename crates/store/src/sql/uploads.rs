//! Uploads, and the references of runs, uploads and deliveries to blobs.

use async_trait::async_trait;
use belay_protocol::{
    Attachment, BlobDigest, Durability, StoreError, UnixMillis, Upload, UploadId, UploadStore, Uploader,
};
use uuid::Uuid;

use super::connection::{Connection, Engine};
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use super::{SqlStore, rows};
use crate::value::params;

#[async_trait]
impl UploadStore for SqlStore {
    async fn uploaded_since(&self, from: &Uploader, since: UnixMillis) -> Result<u64, StoreError> {
        let from = from.clone();
        self.read(move |conn| uploaded_since(conn, &from, since)).await
    }

    async fn record_upload(
        &self,
        from: &Uploader,
        upload: &Upload,
        at: UnixMillis,
        since: UnixMillis,
        max_bytes: u64,
    ) -> Result<bool, StoreError> {
        let (from, upload) = (from.clone(), upload.clone());
        self.write(Durability::Committed, move |tx| record(tx, &from, &upload, at, since, max_bytes)).await
    }

    async fn update_upload(&self, upload: &Upload) -> Result<(), StoreError> {
        let upload = upload.clone();
        self.write(Durability::Committed, move |tx| update(tx, &upload)).await
    }

    async fn renew_upload(
        &self,
        from: &Uploader,
        digest: &BlobDigest,
        name: &str,
        since: UnixMillis,
        at: UnixMillis,
    ) -> Result<Option<Upload>, StoreError> {
        let (from, digest, name) = (from.clone(), digest.clone(), name.to_owned());
        self.write(Durability::Committed, move |tx| renew(tx, &from, &digest, &name, since, at)).await
    }

    async fn upload(&self, from: &Uploader, id: UploadId, since: UnixMillis) -> Result<Option<Attachment>, StoreError> {
        let from = from.clone();
        self.read(move |conn| upload(conn, &from, id, since)).await
    }

    async fn forget_uploads(&self, before: UnixMillis) -> Result<u64, StoreError> {
        self.write(Durability::Relaxed, move |tx| forget(tx, before)).await
    }

    async fn unused_blobs(&self, digests: Vec<BlobDigest>) -> Result<Vec<BlobDigest>, StoreError> {
        self.read(move |conn| unused(conn, &digests)).await
    }
}

const SUM: &str = "SELECT COALESCE(SUM(bytes), 0) FROM uploads WHERE channel = ?1 AND principal = ?2 AND at >= ?3";

fn uploaded_since(conn: &Connection, from: &Uploader, since: UnixMillis) -> Done<u64> {
    Ok(tx::row(conn, SUM, params![from.channel.as_str(), from.principal, since.0], |row| {
        Ok(from_sql_int(row.get(0)?))
    })?
    .unwrap_or(0))
}

fn record(
    tx: &mut Tx<'_>,
    from: &Uploader,
    upload: &Upload,
    at: UnixMillis,
    since: UnixMillis,
    max_bytes: u64,
) -> Done<bool> {
    let Upload { id, attachment } = upload;
    tx.exclusive(&format!("uploads {} {}", from.channel.as_str(), from.principal))?;
    let used = tx
        .row(SUM, params![from.channel.as_str(), from.principal, since.0], |row| Ok(from_sql_int(row.get(0)?)))?
        .unwrap_or(0);
    if used.saturating_add(attachment.bytes) > max_bytes {
        return Ok(false);
    }
    tx.post(
        "INSERT INTO uploads (id, channel, principal, at, bytes, attachment) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            id.as_uuid(),
            from.channel.as_str(),
            from.principal,
            at.0,
            to_sql_int(attachment.bytes),
            rows::to_json(attachment)?
        ],
    )?;
    refer(tx, id.as_uuid(), std::slice::from_ref(attachment))?;
    Ok(true)
}

fn update(tx: &mut Tx<'_>, upload: &Upload) -> Done<()> {
    let Upload { id, attachment } = upload;
    let sql = "UPDATE uploads SET attachment = ?2 WHERE id = ?1 AND attachment IS NOT NULL";
    if tx.exec(sql, params![id.as_uuid(), rows::to_json(attachment)?])? > 0 {
        refer(tx, id.as_uuid(), std::slice::from_ref(attachment))?;
    }
    Ok(())
}

/// Finds the upload by the reference to its file, which has an index.
const BY_DIGEST: &str = "SELECT u.id, u.attachment FROM blob_references r JOIN uploads u ON u.id = r.owner
    WHERE r.digest = ?1 AND u.channel = ?2 AND u.principal = ?3 AND u.at >= ?4
    AND u.attachment ->> 'digest' = ?1 AND u.attachment ->> 'name' = ?5 ORDER BY u.at DESC LIMIT 1";

fn renew(
    tx: &mut Tx<'_>,
    from: &Uploader,
    digest: &BlobDigest,
    name: &str,
    since: UnixMillis,
    at: UnixMillis,
) -> Done<Option<Upload>> {
    let found =
        tx.row(BY_DIGEST, params![digest.as_str(), from.channel.as_str(), from.principal, since.0, name], |row| {
            Ok((row.get::<_, Uuid>(0)?, row.get::<_, String>(1)?))
        })?;
    let Some((id, attachment)) = found else { return Ok(None) };
    // Another writer may have forgotten it since.
    if tx.exec("UPDATE uploads SET at = ?2 WHERE id = ?1 AND attachment IS NOT NULL", params![id, at.0])? == 0 {
        return Ok(None);
    }
    Ok(Some(Upload { id: UploadId::from(id), attachment: rows::from_json(&attachment)? }))
}

fn upload(conn: &Connection, from: &Uploader, id: UploadId, since: UnixMillis) -> Done<Option<Attachment>> {
    let sql = "SELECT attachment FROM uploads WHERE id = ?1 AND channel = ?2 AND principal = ?3 AND at >= ?4
               AND attachment IS NOT NULL";
    tx::row(conn, sql, params![id.as_uuid(), from.channel.as_str(), from.principal, since.0], |row| {
        rows::from_json(&row.get::<_, String>(0)?)
    })
}

fn forget(tx: &mut Tx<'_>, before: UnixMillis) -> Done<u64> {
    if tx.engine() == Engine::Postgres {
        // Both statements must see the same rows: an upload that another writer renews in between would lose its references.
        tx.post("SELECT id FROM uploads WHERE at < ?1 ORDER BY id FOR UPDATE", params![before.0])?;
    }
    tx.post("DELETE FROM blob_references WHERE owner IN (SELECT id FROM uploads WHERE at < ?1)", params![before.0])?;
    Ok(tx.exec("DELETE FROM uploads WHERE at < ?1", params![before.0])? as u64)
}

fn unused(conn: &Connection, digests: &[BlobDigest]) -> Done<Vec<BlobDigest>> {
    let mut unused = Vec::new();
    for digest in digests {
        let sql = "SELECT 1 FROM blob_references WHERE digest = ?1 LIMIT 1";
        if tx::row(conn, sql, params![digest.as_str()], |_| Ok(()))?.is_none() {
            unused.push(digest.clone());
        }
    }
    Ok(unused)
}

/// Adds the references of an upload or a run to the blobs of its attachments.
pub(super) fn refer(tx: &mut Tx<'_>, owner: Uuid, attachments: &[Attachment]) -> Done<()> {
    attachments.iter().flat_map(Attachment::digests).try_for_each(|digest| refer_to(tx, owner, digest))
}

/// Adds the reference of a run or a delivery to the blob of a file that it sends. A blob in the table `blobs` is locked
/// until the commit: a sweep waits for it, and then sees the reference.
pub(super) fn refer_to(tx: &mut Tx<'_>, owner: Uuid, digest: &BlobDigest) -> Done<()> {
    let refer = match tx.engine() {
        Engine::Sqlite => "INSERT INTO blob_references (owner, digest) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        Engine::Postgres => {
            "WITH kept AS MATERIALIZED (SELECT 1 FROM blobs WHERE digest = ?2 AND part = 0 FOR KEY SHARE)
             INSERT INTO blob_references (owner, digest) SELECT ?1, ?2 FROM (SELECT COUNT(*) FROM kept) AS locked
             ON CONFLICT DO NOTHING"
        }
    };
    tx.post(refer, params![owner, digest.as_str()])
}

/// Adds the references of a copied thread: the blobs of the runs whose messages it has, and of the thread that it is a
/// copy of. The runs belong to the original, which may be deleted first.
pub(super) fn refer_copy(tx: &mut Tx<'_>, original: Uuid, copy: Uuid) -> Done<()> {
    tx.post(
        "INSERT INTO blob_references (owner, digest)
         SELECT ?2, digest FROM blob_references
         WHERE owner = ?1 OR owner IN (SELECT run_id FROM messages WHERE thread = ?2)
         ON CONFLICT DO NOTHING",
        params![original, copy],
    )?;
    Ok(())
}

/// Forgets the uploads of the files that a run needs, if nothing but uploads needs them besides. Their rows stay without the
/// file, because they count for the limit of the day.
pub(super) fn forget_of_run(tx: &mut Tx<'_>, run: Uuid) -> Done<()> {
    let forgotten = tx.exec(
        "UPDATE uploads SET attachment = NULL
         WHERE id IN (SELECT other.owner FROM blob_references mine JOIN blob_references other ON other.digest = mine.digest
                      WHERE mine.owner = ?1)
           AND (channel, principal) = (SELECT channel, principal FROM runs WHERE id = ?1)
           AND EXISTS (SELECT 1 FROM blob_references mine
                       WHERE mine.owner = ?1 AND mine.digest = uploads.attachment ->> 'digest')
           AND NOT EXISTS (SELECT 1 FROM blob_references other
                           WHERE other.digest = uploads.attachment ->> 'digest' AND other.owner <> ?1
                             AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.id = other.owner))",
        params![run],
    )?;
    if forgotten > 0 {
        let sql = "DELETE FROM blob_references WHERE owner IN (SELECT id FROM uploads WHERE attachment IS NULL)";
        tx.post(sql, params![])?;
    }
    Ok(())
}

/// Deletes the references of a run or a copied thread.
pub(super) fn release(tx: &mut Tx<'_>, owner: Uuid) -> Done<()> {
    tx.post("DELETE FROM blob_references WHERE owner = ?1", params![owner])?;
    Ok(())
}
