//! Clients of the OpenAI-compatible API that send the whole conversation each time, though they name its session.
//!
//! A request without an answer of the assistant is either all that such a client shows, after its user went back to the
//! first message, or the next message of a client that sends only what is new. The earlier requests of the client tell
//! which.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most clients that are known. Beyond it the one that was noted first is forgotten, and counts as one that sends only what
/// is new.
const KNOWN_MAX: usize = 1024;

/// The clients. The table lasts until the daemon ends.
#[derive(Default)]
pub(crate) struct Resenders(Mutex<VecDeque<blake3::Hash>>);

impl Resenders {
    /// Notes a client that has sent an answer of the assistant again: a principal with a program, in one session.
    pub(crate) fn note(&self, client: [&[u8]; 3]) {
        let (mut known, client) = (self.known(), digest(client));
        known.retain(|other| *other != client);
        if known.len() >= KNOWN_MAX {
            known.pop_front();
        }
        known.push_back(client);
    }

    /// Whether the client was noted.
    pub(crate) fn has(&self, client: [&[u8]; 3]) -> bool {
        self.known().contains(&digest(client))
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<blake3::Hash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(client: [&[u8]; 3]) -> blake3::Hash {
    let mut digest = blake3::Hasher::new();
    for part in client {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize()
}
