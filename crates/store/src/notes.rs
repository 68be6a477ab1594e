//! Notes: the ranking of search results, and the limits.

use std::cmp::Reverse;

use belay_protocol::{Note, SearchQuery, StoreError};

/// The maximum number of notes of one owner.
pub(crate) const NOTES_MAX: usize = 1000;

/// The maximum length of a note, in bytes.
pub(crate) const NOTE_MAX_BYTES: usize = 16 * 1024;

/// The maximum length of a note's key, in bytes.
pub(crate) const NOTE_KEY_MAX_BYTES: usize = 256;

/// Refuses a note that is too long.
pub(crate) fn check_size(key: &str, text: &str) -> Result<(), StoreError> {
    if key.len() > NOTE_KEY_MAX_BYTES {
        return Err(StoreError::TooMuch(format!("a note's key has at most {NOTE_KEY_MAX_BYTES} bytes")));
    }
    if text.len() > NOTE_MAX_BYTES {
        return Err(StoreError::TooMuch(format!("a note has at most {NOTE_MAX_BYTES} bytes")));
    }
    Ok(())
}

/// The error for a note beyond the limit of the owner.
pub(crate) fn too_many() -> StoreError {
    StoreError::TooMuch(format!("there are {NOTES_MAX} notes, and more are not kept: forget old ones first"))
}

/// The notes that contain any word of the query in key or text, case-insensitive: most matching words first, then
/// newest. All notes for a query without words.
pub(crate) fn rank(notes: Vec<Note>, query: &str, limit: u32) -> Vec<Note> {
    let words = SearchQuery { words: query.to_owned(), ..SearchQuery::default() }.terms();
    let mut found: Vec<(usize, Note)> = notes
        .into_iter()
        .filter_map(|note| {
            let haystack = format!("{}\n{}", note.key.as_deref().unwrap_or_default(), note.text).to_lowercase();
            let hits = words.iter().filter(|word| haystack.contains(word.as_str())).count();
            (hits > 0 || words.is_empty()).then_some((hits, note))
        })
        .collect();
    found.sort_by(|(a_hits, a), (b_hits, b)| {
        (Reverse(a_hits), Reverse(a.at), Reverse(a.id)).cmp(&(Reverse(b_hits), Reverse(b.at), Reverse(b.id)))
    });
    found.into_iter().take(limit as usize).map(|(_, note)| note).collect()
}
