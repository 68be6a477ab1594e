//! Notes of the model: the port [`NoteStore`].

use async_trait::async_trait;
use serde::Serialize;

use crate::ids::SessionKey;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Keeps the notes that models write for a session.
#[async_trait]
pub trait NoteStore: Send + Sync {
    /// Stores a note under a key and replaces an earlier one. Committed.
    async fn remember(&self, session: &SessionKey, key: &str, text: &str, at: UnixMillis) -> Result<(), StoreError>;
    /// The notes whose key or text contains any word of the query, case-insensitive, best and newest first; all notes
    /// for an empty query.
    async fn recall(&self, session: &SessionKey, query: &str, limit: u32) -> Result<Vec<Note>, StoreError>;
}

/// A note.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// Its key.
    pub key: String,
    /// Its text.
    pub text: String,
    /// The time at which it was stored.
    pub at: UnixMillis,
}
