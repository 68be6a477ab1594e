//! Notes, the memory over conversations: the ports [`NoteStore`], [`NoteArchive`], [`PromptNotes`] and [`NoteVectors`].

use async_trait::async_trait;
use serde::Serialize;

use crate::archive::Found;
use crate::ids::{RunId, SessionKey};
use crate::memory::MemoryOwner;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Note {
    /// Its id. The id of a deleted note is not used again.
    pub id: u64,
    /// Its owner.
    pub owner: MemoryOwner,
    /// Its key, unique among the notes of its owner; `None`: it has none.
    pub key: Option<String>,
    /// Its text.
    pub text: String,
    /// The time at which it was stored or last changed.
    pub at: UnixMillis,
    /// The session in which it was written.
    pub session: SessionKey,
    /// Whether the run that wrote it had read untrusted content before.
    pub untrusted: bool,
}

/// A note to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNote {
    /// Its owner.
    pub owner: MemoryOwner,
    /// Its key; `None`: it has none.
    pub key: Option<String>,
    /// Its text.
    pub text: String,
    /// The present time.
    pub at: UnixMillis,
    /// The session of the run.
    pub session: SessionKey,
    /// Whether the run has read untrusted content.
    pub untrusted: bool,
}

/// The result of storing a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// It is stored under this id. A note with the same key was replaced.
    Stored(u64),
    /// Nothing has changed: the note with this id has the same key and was written without untrusted content, but the
    /// new one was not.
    Protected(u64),
}

/// The result of deleting a note for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// It is deleted.
    Deleted,
    /// The owner has no note with this id.
    Missing,
    /// It was written without untrusted content, but the run has read untrusted content. It stays.
    Protected,
}

/// A search for messages of an owner's conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidQuery {
    /// The owner. A person: the messages of its own runs outside of groups. A group: the messages of its session.
    pub owner: MemoryOwner,
    /// The words as a person types them. Any of them is enough.
    pub words: String,
    /// The messages of this run are not found.
    pub except: RunId,
    /// The maximum count; at most 1000.
    pub limit: u32,
}

/// Notes and earlier messages, as the tools of runs use them.
#[async_trait]
pub trait NoteStore: Send + Sync {
    /// Stores a note. It replaces the note of the same owner with the same key, or without a key and with the same text.
    /// Committed.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] if the note is too long or the owner has too many notes; the text says so.
    async fn remember(&self, note: NewNote) -> Result<Remembered, StoreError>;

    /// The notes of this owner whose key or text contains any word of the query, case-insensitive, best and newest
    /// first; all notes for a query without words.
    async fn recall(&self, owner: &MemoryOwner, query: &str, limit: u32) -> Result<Vec<Note>, StoreError>;

    /// The messages that contain any word of the query, or words that begin with it, best first. Undone and cleared
    /// messages are not found.
    async fn said(&self, query: SaidQuery) -> Result<Vec<Found>, StoreError>;

    /// Deletes a note of this owner. `untrusted`: whether the run has read untrusted content. Committed.
    async fn forget_note(&self, owner: &MemoryOwner, id: u64, untrusted: bool) -> Result<Forgotten, StoreError>;
}

/// The vector of a note.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteVector {
    /// The note.
    pub note: u64,
    /// The time of the note's last change when the vector was made. A vector of an older text is not used.
    pub at: UnixMillis,
    /// The vector; the store brings it to the length 1.
    pub vector: Vec<f32>,
}

/// The vectors of notes, for the search by meaning. Deleted with their notes.
#[async_trait]
pub trait NoteVectors: Send + Sync {
    /// The notes of this owner that have no vector of this model for their present text, the oldest first.
    async fn notes_without_vector(&self, owner: &MemoryOwner, model: &str, limit: u32)
    -> Result<Vec<Note>, StoreError>;

    /// Stores vectors. Leaves out those of notes that are deleted or were changed meanwhile. Committed.
    async fn put_vectors(&self, model: &str, vectors: Vec<NoteVector>) -> Result<(), StoreError>;

    /// The notes of this owner whose vectors have at least this cosine with the vector, the nearest first.
    async fn nearest_notes(
        &self,
        owner: &MemoryOwner,
        model: &str,
        vector: Vec<f32>,
        min_similarity: f32,
        limit: u32,
    ) -> Result<Vec<Note>, StoreError>;
}

/// Notes, as people read and change them.
#[async_trait]
pub trait NoteArchive: Send + Sync {
    /// The notes of a list.
    async fn notes(&self, filter: NoteFilter) -> Result<Vec<Note>, StoreError>;

    /// Replaces the text of a note. From then on, it counts as written without untrusted content: a person has read
    /// it. Returns whether the note exists. Committed.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] if the text is too long.
    async fn edit_note(&self, id: u64, text: &str, at: UnixMillis) -> Result<bool, StoreError>;

    /// Deletes notes and returns their count. Committed.
    async fn delete_notes(&self, which: NoteSelection) -> Result<u64, StoreError>;
}

/// A list of notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoteFilter {
    /// Only notes of this owner.
    pub owner: Option<MemoryOwner>,
    /// Only the note with this id.
    pub id: Option<u64>,
    /// Only notes with a higher id.
    pub after: u64,
    /// Only notes whose key or text contains any of these words, best first; empty: all, oldest first.
    pub words: String,
    /// The maximum count; 0 means 1000, which is the most.
    pub limit: u32,
}

/// Notes to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteSelection {
    /// The note with this id.
    One(u64),
    /// All notes of this owner.
    AllOf(MemoryOwner),
}

/// Notes for prompts.
#[async_trait]
pub trait PromptNotes: Send + Sync {
    /// Whether the owner may have notes. It reads memory alone, so that a message of an owner without notes costs no
    /// query. `false` is certain; `true` also holds for an owner whose notes were deleted since the start.
    fn may_have_notes(&self, owner: &MemoryOwner) -> bool;

    /// The newest notes of this owner that were written without untrusted content, newest first, with at most
    /// `max_chars` characters of key and text in total. A note that does not fit is left out.
    async fn prompt_notes(&self, owner: &MemoryOwner, max_chars: u32) -> Result<Vec<Note>, StoreError>;
}
