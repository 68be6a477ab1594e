//! Requests of the OpenAI-compatible API that their clients may send again.
//!
//! A retry that a client marks has no key of its own. So the first attempt gets one, and the retry finds it by the sender
//! and the bytes of the body. The store recognises the key also after a restart; this table lasts until then.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use belay_protocol::{RunId, SessionKey};
use tokio::time::Instant;

/// Most first attempts that are known. Beyond it the oldest is forgotten, and its retry is a request of its own.
const KNOWN_MAX: usize = 1024;
/// How long a first attempt is known. 1 hour: the longest wait for a run (`gateway.max_wait_ms`).
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// The first attempts that may be sent again.
#[derive(Default)]
pub(crate) struct FirstAttempts(Mutex<VecDeque<Known>>);

struct Known {
    sender: Box<str>,
    body: blake3::Hash,
    at: Instant,
    key: Arc<str>,
    taken: Option<Taken>,
    /// Dead once no client waits for the answer.
    client: Weak<()>,
}

/// What a first attempt was taken for: by now the store has its message, and its question has an answer.
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
    /// The key of a request with this body, and what its first attempt was taken for. Of equal requests, the one whose
    /// client has gone is sent again. `client`: held while the client waits.
    pub(crate) fn key_of(
        &self,
        sender: &str,
        body: blake3::Hash,
        is_retry: bool,
        client: &Arc<()>,
    ) -> (Arc<str>, Option<Taken>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| known.at.elapsed() < KNOWN_FOR);
        let own = known.iter_mut().filter(|known| is_retry && *known.sender == *sender && known.body == body);
        if let Some(first) = own.min_by_key(|known| known.client.strong_count()) {
            first.client = Arc::downgrade(client);
            return (first.key.clone(), first.taken.clone());
        }
        if known.len() >= KNOWN_MAX {
            known.pop_front();
        }
        let key: Arc<str> = RunId::new().to_string().into();
        let (at, client) = (Instant::now(), Arc::downgrade(client));
        known.push_back(Known { sender: sender.into(), body, at, key: key.clone(), taken: None, client });
        (key, None)
    }

    /// Keeps what the request with this key was taken for.
    pub(crate) fn remember(&self, key: &Arc<str>, taken: Taken) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter_mut().find(|known| known.key == *key) {
            known.taken.get_or_insert(taken);
        }
    }
}
