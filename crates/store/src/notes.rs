//! Notes: the ranking of search results, and the limits.

use std::cmp::Reverse;

use belay_protocol::{Note, StoreError};

/// The maximum number of notes of one session.
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

/// The error for a note beyond the limit of the session.
pub(crate) fn too_many() -> StoreError {
    StoreError::TooMuch(format!("a session keeps at most {NOTES_MAX} notes"))
}

/// The notes that contain any word of the query in key or text, case-insensitive: most matching words first, then
/// newest, then by key. All notes for a query without words.
pub(crate) fn rank(notes: Vec<Note>, query: &str, limit: u32) -> Vec<Note> {
    let query = query.to_lowercase();
    let words: Vec<&str> = query.split_whitespace().collect();
    let mut found: Vec<(usize, Note)> = notes
        .into_iter()
        .filter_map(|note| {
            let haystack = format!("{}\n{}", note.key, note.text).to_lowercase();
            let hits = words.iter().filter(|word| haystack.contains(**word)).count();
            (hits > 0 || words.is_empty()).then_some((hits, note))
        })
        .collect();
    found.sort_by(|(a_hits, a), (b_hits, b)| {
        (Reverse(a_hits), Reverse(a.at), &a.key).cmp(&(Reverse(b_hits), Reverse(b.at), &b.key))
    });
    found.into_iter().take(limit as usize).map(|(_, note)| note).collect()
}
