//! The search for notes by meaning: each note has a vector, and so has the query.
//!
//! The vectors of notes are made at the first search after a change, a bounded number in each search. If the server that
//! makes them fails, notes are found by words alone, and the result says so.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Embedder, MemoryOwner, Note, NoteVector, NoteVectors, StoreError};
use tokio::time::timeout;

/// Longest time of a search, with the vectors of new notes.
const LIMIT: Duration = Duration::from_secs(25);

/// Longest time for a call of `recall` that searches by meaning.
pub(super) const RECALL_LIMIT: Duration = Duration::from_secs(30);

/// Most notes that get a vector in one search. 256: four requests.
const INDEXED_MAX: u32 = 256;

/// Most texts of one request, and most of their bytes. Source: OpenAI API reference: 2048 texts, 300,000 tokens.
const BATCH_MAX: usize = 64;
const BATCH_MAX_BYTES: usize = 256 * 1024;

/// Longest part of a note that is compared, in bytes. 8 KiB: models accept 8192 tokens, and no token is shorter.
const TEXT_MAX_BYTES: usize = 8192;

/// Most notes that are found by meaning alone. 5: further ones are seldom about the query.
const NEAREST_MAX: u32 = 5;

/// The services of a search by meaning.
pub struct Meaning {
    /// Makes vectors.
    pub embedder: Arc<dyn Embedder>,
    /// Stores the vectors of notes.
    pub vectors: Arc<dyn NoteVectors>,
    /// The smallest cosine between the vectors of a note and of a query that are about the same, -1 to 1.
    pub min_similarity: f32,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct Near {
    /// The nearest notes, the nearest first.
    pub(super) notes: Vec<Note>,
    /// A remark for the model, if the search was not complete.
    pub(super) remark: Option<String>,
}

impl Meaning {
    /// The notes of this owner that are about the query.
    pub(super) async fn search(&self, owner: &MemoryOwner, query: &str) -> Near {
        let failed = |why: String| {
            let remark = format!("[the search by meaning failed, notes were compared by words alone: {why}]");
            Near { notes: Vec::new(), remark: Some(remark) }
        };
        match timeout(LIMIT, self.nearest(owner, query)).await {
            Ok(Ok(near)) => near,
            Ok(Err(why)) => {
                tracing::warn!(detail = why, "notes were not searched by meaning");
                failed(why)
            }
            Err(_elapsed) => failed(format!("no answer within {} s", LIMIT.as_secs())),
        }
    }

    async fn nearest(&self, owner: &MemoryOwner, query: &str) -> Result<Near, String> {
        let store = |error: StoreError| {
            tracing::warn!(%error, "embeddings of notes unavailable");
            "the store is not available just now".to_owned()
        };
        let model = self.embedder.model();
        let missing = self.vectors.notes_without_vector(owner, model, INDEXED_MAX + 1).await.map_err(store)?;
        let is_incomplete = missing.len() > INDEXED_MAX as usize;
        let (mut wanted, mut refused) = (None, None);
        for batch in batches(&missing[..missing.len().min(INDEXED_MAX as usize)]) {
            let is_first = wanted.is_none();
            let texts = is_first.then(|| query.to_owned()).into_iter().chain(batch.iter().map(text)).collect();
            let mut vectors = match self.embedder.embed(texts).await {
                Ok(vectors) => vectors.into_iter(),
                Err(error) if batch.is_empty() => return Err(error.to_string()),
                // The server may refuse one of the notes, which must not hide those that have vectors.
                Err(error) => {
                    if is_first {
                        let alone = self.embedder.embed(vec![query.to_owned()]).await;
                        wanted = alone.map_err(|error| error.to_string())?.pop();
                    }
                    refused = Some(format!("[some notes were not compared by meaning: {error}]"));
                    break;
                }
            };
            if is_first {
                wanted = vectors.next();
            }
            let of_note = |(note, vector): (&Note, Vec<f32>)| NoteVector { note: note.id, at: note.at, vector };
            let made: Vec<NoteVector> = batch.iter().zip(vectors).map(of_note).collect();
            if !made.is_empty() {
                self.vectors.put_vectors(model, made).await.map_err(store)?;
            }
        }
        let wanted = wanted.ok_or("the server gave no vector")?;
        let notes = self.vectors.nearest_notes(owner, model, wanted, self.min_similarity, NEAREST_MAX).await;
        let unfinished = || "[not every note was compared by meaning yet; ask again for more]".to_owned();
        let remark = refused.or_else(|| is_incomplete.then(unfinished));
        Ok(Near { notes: notes.map_err(store)?, remark })
    }
}

/// The notes in groups, one for each request. The first group may be empty: its request has the query alone.
fn batches(notes: &[Note]) -> Vec<&[Note]> {
    let (mut batches, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, note) in notes.iter().enumerate() {
        let more = text(note).len();
        if at > from && (at - from >= BATCH_MAX - 1 || bytes + more > BATCH_MAX_BYTES) {
            batches.push(&notes[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    batches.push(&notes[from..]);
    batches
}

/// The text of a note that is compared.
fn text(note: &Note) -> String {
    let whole = match &note.key {
        Some(key) => format!("{key}: {}", note.text),
        None => note.text.clone(),
    };
    whole[..whole.floor_char_boundary(TEXT_MAX_BYTES)].to_owned()
}

/// How a note was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    Words,
    Meaning,
    Both,
}

impl FoundBy {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Meaning => "meaning",
            Self::Both => "words and meaning",
        }
    }
}

/// The notes of both searches in one order, the best first: by reciprocal rank fusion.
///
/// Source: Cormack, Clarke, Büttcher, "Reciprocal Rank Fusion", 2009, with their constant 60.
pub(super) fn merged(words: Vec<Note>, meaning: Vec<Note>, most: usize) -> Vec<(Note, FoundBy)> {
    let score = |rank: usize| 1.0 / (61.0 + rank as f64);
    let mut found: Vec<(f64, Note, FoundBy)> =
        words.into_iter().enumerate().map(|(rank, note)| (score(rank), note, FoundBy::Words)).collect();
    for (rank, note) in meaning.into_iter().enumerate() {
        match found.iter_mut().find(|(_, known, _)| known.id == note.id) {
            Some((total, _, by)) => {
                *total += score(rank);
                *by = FoundBy::Both;
            }
            None => found.push((score(rank), note, FoundBy::Meaning)),
        }
    }
    found.sort_by(|(a, ..), (b, ..)| b.total_cmp(a)); // stable: of equal ones, those with the words come first
    found.into_iter().take(most).map(|(_, note, by)| (note, by)).collect()
}
