//! The clients that wait for the answer of a run over the OpenAI-compatible API.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use belay_protocol::RunId;

/// The number of clients that wait for each run.
#[derive(Default)]
pub(crate) struct Readers(Mutex<HashMap<RunId, usize>>);

impl Readers {
    /// Whether a client waits for this run.
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&run)
    }

    /// Adds a client.
    pub(crate) fn add(&self, run: RunId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(run).or_default() += 1;
    }

    /// Removes a client, and returns whether it was the last one.
    pub(crate) fn remove(&self, run: RunId) -> bool {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = readers.get(&run).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            readers.remove(&run);
        } else {
            readers.insert(run, left);
        }
        left == 0
    }
}
