//! The store without a disk: for tests, and for trying things out. It forgets everything with the process and grows
//! with use.
//!
//! Written apart from the SQLite store, so that the conformance suite compares two accounts of the same promises.

mod archive;
mod edits;
mod gates;
mod jobs;
mod lanes;
mod outbox;
mod ports;
mod routines;
mod state;
mod switches;
mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_protocol::Seq;
use tokio::sync::watch;

use self::state::State;

/// A store in memory. Every write is "committed" when it returns.
///
/// Share it in an `Arc`. The lock inside is held for the length of one operation, never over an `.await`.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
    tip: watch::Sender<Seq>,
    outbox: watch::Sender<u64>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self { state: Mutex::default(), tip: watch::Sender::default(), outbox: watch::Sender::default() }
    }

    /// Does one operation, and tells who follows events and outbox when it has added some.
    fn with<T>(&self, operate: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let (newest, messages) = (state.newest_event(), state.outbox.len());
        let result = operate(&mut state);
        if state.newest_event() > newest {
            self.tip.send_replace(state.newest_event());
        }
        if state.outbox.len() > messages {
            self.outbox.send_modify(|commits| *commits += 1);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // An operation that panicked has checked before it wrote, or it has lost no more than itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}
