//! Embeddings of notes. Each is stored as a vector of length 1, in 32-bit numbers, little-endian.
//!
//! The nearest notes of an owner are found by comparing all of them: an owner has at most
//! [`NOTES_MAX`](crate::notes::NOTES_MAX).

use async_trait::async_trait;
use belay_protocol::{Durability, MemoryOwner, Note, NoteVector, NoteVectors, StoreError};

use super::SqlStore;
use super::connection::Connection;
use super::notes::{COLUMNS, columns, note};
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use crate::value::{ValueRef, params};

#[async_trait]
impl NoteVectors for SqlStore {
    async fn notes_without_vector(
        &self,
        owner: &MemoryOwner,
        model: &str,
        limit: u32,
    ) -> Result<Vec<Note>, StoreError> {
        let (owner, model) = (owner.clone(), model.to_owned());
        self.read(move |conn| without_vector(conn, &owner, &model, limit)).await
    }

    async fn put_vectors(&self, model: &str, vectors: Vec<NoteVector>) -> Result<(), StoreError> {
        let model = model.to_owned();
        // Committed, because the next search reads them.
        self.write(Durability::Committed, move |tx| put(tx, &model, &vectors)).await
    }

    async fn nearest_notes(
        &self,
        owner: &MemoryOwner,
        model: &str,
        vector: Vec<f32>,
        min_similarity: f32,
        limit: u32,
    ) -> Result<Vec<Note>, StoreError> {
        let (owner, model) = (owner.clone(), model.to_owned());
        self.read(move |conn| nearest(conn, &owner, &model, vector, min_similarity, limit)).await
    }
}

fn without_vector(conn: &Connection, owner: &MemoryOwner, model: &str, limit: u32) -> Done<Vec<Note>> {
    let (kind, channel, owner) = columns(owner);
    let sql = format!(
        "SELECT {COLUMNS} FROM notes WHERE kind = ?1 AND channel = ?2 AND owner = ?3 AND NOT EXISTS
            (SELECT 1 FROM note_embeddings e WHERE e.note = notes.id AND e.model = ?4 AND e.note_at = notes.at)
         ORDER BY id LIMIT ?5"
    );
    tx::rows(conn, &sql, params![kind, channel, owner, model, limit], note)
}

/// Stores the vectors of notes that have not changed meanwhile.
fn put(tx: &mut Tx<'_>, model: &str, vectors: &[NoteVector]) -> Done<()> {
    for NoteVector { note, at, vector } in vectors {
        let Some(vector) = normalised(vector.clone()) else { continue };
        let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        tx.post(
            "INSERT INTO note_embeddings (note, model, note_at, vector)
             SELECT id, ?3, at, ?4 FROM notes WHERE id = ?1 AND at = ?2
             ON CONFLICT (note) DO UPDATE SET model = excluded.model, note_at = excluded.note_at,
                vector = excluded.vector",
            params![to_sql_int(*note), at.0, model, bytes],
        )?;
    }
    Ok(())
}

fn nearest(
    conn: &Connection,
    owner: &MemoryOwner,
    model: &str,
    vector: Vec<f32>,
    min_similarity: f32,
    limit: u32,
) -> Done<Vec<Note>> {
    let Some(vector) = normalised(vector) else { return Ok(Vec::new()) };
    let (kind, channel, owner) = columns(owner);
    let of_owner = "SELECT e.note, e.vector FROM notes n JOIN note_embeddings e ON e.note = n.id
        WHERE n.kind = ?1 AND n.channel = ?2 AND n.owner = ?3 AND e.model = ?4 AND e.note_at = n.at";
    let of = params![kind, channel, owner, model];
    let all = tx::rows(conn, of_owner, of, |row| {
        let similarity = match row.get_ref(1)? {
            ValueRef::Blob(bytes) => similarity(&vector, bytes),
            _ => None,
        };
        Ok((from_sql_int(row.get(0)?), similarity))
    })?;
    let mut near: Vec<(u64, f32)> = all
        .into_iter()
        .filter_map(|(id, similarity)| Some((id, similarity.filter(|it| *it >= min_similarity)?)))
        .collect();
    near.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut notes = Vec::new();
    for (id, _) in near.into_iter().take(limit as usize) {
        let sql = format!("SELECT {COLUMNS} FROM notes WHERE id = ?1 AND kind = ?2 AND channel = ?3 AND owner = ?4");
        notes.extend(tx::row(conn, &sql, params![to_sql_int(id), kind, channel, owner], note)?);
    }
    Ok(notes)
}

/// The cosine of the angle between a vector of length 1 and a stored one; `None`: they have different dimensions.
fn similarity(vector: &[f32], stored: &[u8]) -> Option<f32> {
    let (numbers, rest) = stored.as_chunks::<4>();
    let same = numbers.len() == vector.len() && rest.is_empty();
    same.then(|| numbers.iter().zip(vector).map(|(bytes, number)| f32::from_le_bytes(*bytes) * number).sum())
}

/// The vector with length 1; `None`: it has no direction.
fn normalised(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if !length.is_finite() || length <= f32::EPSILON {
        return None;
    }
    vector.iter_mut().for_each(|number| *number /= length);
    Some(vector)
}
