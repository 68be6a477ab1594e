//! Clients of the OpenAI-compatible API that send the whole conversation each time, though they name its session.
//!
//! A request without an answer of the assistant is either all that such a client shows, after its user went back to the
//! first message, or the next message of a client that sends only what is new. The earlier requests of the client tell
//! which.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most clients that are known. Beyond it the one of the busiest principal that was noted first is forgotten, and
/// counts as one that sends only what is new.
const KNOWN_MAX: usize = 1024;

/// The clients, each with the digest of its principal. The table lasts until the daemon ends.
#[derive(Default)]
pub(crate) struct Resenders(Mutex<VecDeque<Known>>);

type Known = (blake3::Hash, blake3::Hash);

impl Resenders {
    /// Notes a client that has sent an answer of the assistant again: a principal with a program, in one session.
    pub(crate) fn note(&self, client: [&[u8]; 3]) {
        let (mut known, client) = (self.known(), (blake3::hash(client[0]), digest(client)));
        known.retain(|other| *other != client);
        if known.len() >= KNOWN_MAX {
            remove_oldest_of_busiest(&mut known, |(principal, _)| principal);
        }
        known.push_back(client);
    }

    /// Whether the client was noted.
    pub(crate) fn has(&self, client: [&[u8]; 3]) -> bool {
        let client = digest(client);
        self.known().iter().any(|(_, known)| *known == client)
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Known>> {
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

/// Removes the oldest entry of the sender with the most.
pub(crate) fn remove_oldest_of_busiest<T, S: Eq + Hash + ?Sized>(known: &mut VecDeque<T>, sender: impl Fn(&T) -> &S) {
    let mut counts: HashMap<&S, usize> = HashMap::new();
    known.iter().for_each(|known| *counts.entry(sender(known)).or_default() += 1);
    let most = counts.values().max().copied().unwrap_or_default();
    if let Some(at) = known.iter().position(|known| counts.get(sender(known)) == Some(&most)) {
        known.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_principal_does_not_displace_the_clients_of_others() {
        let known = Resenders::default();
        known.note([b"quiet", b"chat", b"zoo"]);
        for number in 0..2 * KNOWN_MAX {
            known.note([b"busy", b"chat", &number.to_le_bytes()]);
        }
        assert!(known.has([b"quiet", b"chat", b"zoo"]));
        assert!(!known.has([b"busy", b"chat", &0_usize.to_le_bytes()]));
    }
}
