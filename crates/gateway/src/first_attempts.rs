//! Requests of the OpenAI-compatible API that their clients may send again.
//!
//! A retry that a client marks has no key of its own. So the first attempt gets one, and the retry finds it by the sender
//! and the digest of what was sent. The store recognises the key also after a restart; this table lasts until then. A
//! request with a key of its own is here for what it was taken for.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use belay_protocol::{RunId, SessionKey};
use tokio::time::Instant;

use crate::resenders::{Resenders, remove_oldest_of_busiest};

/// Most first attempts that are known. Beyond it the oldest of the sender with the most is forgotten, and its retry is a
/// request of its own.
const KNOWN_MAX: usize = 1024;
/// How long a first attempt is known. 1 hour: the longest wait for a run (`gateway.max_wait_ms`).
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// The first attempts that may be sent again, and the clients that send whole conversations again.
#[derive(Default)]
pub(crate) struct FirstAttempts {
    known: Mutex<VecDeque<Known>>,
    pub(crate) resenders: Resenders,
}

struct Known {
    sender: Box<str>,
    digest: blake3::Hash,
    at: Instant,
    key: Arc<str>,
    taken: Option<Taken>,
    waits: Weak<()>,
    is_served: Arc<AtomicBool>,
}

/// The client of an attempt. No client waits for the answer once all clones are dropped.
#[derive(Clone, Default)]
pub(crate) struct Waiting {
    waits: Arc<()>,
    is_served: Arc<AtomicBool>,
}

impl Waiting {
    /// The client has its answer.
    pub(crate) fn served(&self) {
        self.is_served.store(true, Ordering::Relaxed);
    }
}

/// Which of several equal attempts a retry repeats, the first one before the others.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Likely {
    /// Its client has gone without an answer.
    Gone,
    /// Its client waits, or nothing has told yet that it has gone.
    Waits,
    /// The whole answer was sent, and may have been lost.
    Served,
}

impl Known {
    fn of(sender: &str, digest: blake3::Hash, key: &Arc<str>, client: &Waiting) -> Self {
        let Waiting { waits, is_served } = client;
        Self {
            sender: sender.into(),
            digest,
            at: Instant::now(),
            key: key.clone(),
            taken: None,
            waits: Arc::downgrade(waits),
            is_served: is_served.clone(),
        }
    }

    /// From now on this client waits for the answer.
    fn joined_by(&mut self, client: &Waiting) -> (Arc<str>, Option<Taken>) {
        (self.waits, self.is_served) = (Arc::downgrade(&client.waits), client.is_served.clone());
        (self.key.clone(), self.taken.clone())
    }

    /// How likely a retry repeats this attempt; `None`: it does not. A client reads its stream, so it has not sent it again.
    fn likely(&self, streams: bool) -> Option<Likely> {
        match (self.waits.strong_count() > 0, self.is_served.load(Ordering::Relaxed)) {
            (true, _) if streams => None,
            (true, _) => Some(Likely::Waits),
            (false, false) => Some(Likely::Gone),
            (false, true) => Some(Likely::Served),
        }
    }
}

/// A request as its client marks it.
#[derive(Clone, Copy)]
pub(crate) struct Retry {
    /// Whether the client says that it sends the request again.
    pub(crate) is_marked: bool,
    /// Whether the answer is a stream.
    pub(crate) streams: bool,
}

/// The meaning that a first attempt was given: by now the store has its message, and its question has an answer.
#[derive(Clone)]
pub(crate) struct Taken {
    pub(crate) session: SessionKey,
    pub(crate) is_named: bool,
    /// Whether only the messages after the last answer were taken.
    pub(crate) takes_new: bool,
    /// Whether it was a request for plain text.
    pub(crate) text_only: bool,
    /// The command that it was, as the answer to a question.
    pub(crate) order: Option<String>,
}

impl FirstAttempts {
    /// The key of a request that has none of its own, and what its first attempt was taken for. Of equal requests, the
    /// newest one whose client has gone is sent again.
    pub(crate) fn key_of(
        &self,
        sender: &str,
        digest: blake3::Hash,
        retry: Retry,
        client: &Waiting,
    ) -> (Arc<str>, Option<Taken>) {
        let mut known = self.in_time();
        if retry.is_marked {
            let own = known.iter().enumerate().filter(|(_, known)| *known.sender == *sender && known.digest == digest);
            let own = own.filter_map(|(at, known)| Some((known.likely(retry.streams)?, Reverse(at))));
            if let Some(first) = own.min().and_then(|(_, Reverse(at))| known.get_mut(at)) {
                return first.joined_by(client);
            }
        }
        let key: Arc<str> = RunId::new().to_string().into();
        add(&mut known, Known::of(sender, digest, &key, client));
        (key, None)
    }

    /// What the first request with this key of the sender was taken for, if it was the same one.
    pub(crate) fn taken_with(&self, sender: &str, key: &str, digest: blake3::Hash, client: &Waiting) -> Option<Taken> {
        let mut known = self.in_time();
        match known.iter_mut().find(|known| *known.sender == *sender && *known.key == *key) {
            Some(first) if first.digest == digest => first.joined_by(client).1,
            Some(_) => None, // the agent compares the messages
            None => {
                add(&mut known, Known::of(sender, digest, &key.into(), client));
                None
            }
        }
    }

    /// Keeps what the first request with this key of the sender was taken for.
    pub(crate) fn remember(&self, sender: &str, key: &str, digest: blake3::Hash, taken: Taken) {
        let mut known = self.in_time();
        let is_first = |known: &&mut Known| *known.sender == *sender && *known.key == *key && known.digest == digest;
        if let Some(known) = known.iter_mut().find(is_first) {
            known.taken.get_or_insert(taken);
        }
    }

    fn in_time(&self) -> MutexGuard<'_, VecDeque<Known>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| known.at.elapsed() < KNOWN_FOR);
        known
    }
}

fn add(known: &mut VecDeque<Known>, new: Known) {
    if known.len() >= KNOWN_MAX {
        remove_oldest_of_busiest(known, |known| &*known.sender);
    }
    known.push_back(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_sender_does_not_displace_the_attempts_of_others() {
        let attempts = FirstAttempts::default();
        let digest = |number: usize| blake3::hash(&number.to_le_bytes());
        let key = |sender: &str, number, is_marked| {
            let retry = Retry { is_marked, streams: false };
            attempts.key_of(sender, digest(number), retry, &Waiting::default()).0
        };
        let first = key("quiet", 0, false);
        let keys: Vec<_> = (0..2 * KNOWN_MAX).map(|number| key("busy", number, false)).collect();
        assert_eq!(key("quiet", 0, true), first);
        assert_eq!(key("busy", keys.len() - 1, true), keys[keys.len() - 1]);
        assert_ne!(key("busy", 0, true), keys[0]);
    }
}
