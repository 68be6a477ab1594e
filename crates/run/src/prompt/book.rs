//! Cache of [`Reasoning`] values by content. Their prompts are long, and are built and serialised once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use belay_agent_loop::Reasoning;

use super::Briefing;

/// Capacity. 32: the number of channels times the variants of sessions. Beyond it, the least recently used entry is
/// evicted.
const CAPACITY: usize = 32;

/// Cache, most recently used first. The lock is held for a look-up, and while an entry is made.
#[derive(Default)]
pub struct PromptBook(Mutex<VecDeque<(Briefing, Arc<Reasoning>)>>);

impl PromptBook {
    /// The reasoning for this briefing; `make` builds it on a miss.
    pub fn get(&self, briefing: &Briefing, make: impl FnOnce() -> Reasoning) -> Arc<Reasoning> {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = book.iter().position(|(known, _)| known.is_same(briefing));
        let entry = known.and_then(|at| book.remove(at)).unwrap_or_else(|| (briefing.clone(), Arc::new(make())));
        let reasoning = entry.1.clone();
        book.push_front(entry);
        book.truncate(CAPACITY);
        reasoning
    }
}

impl PromptBook {
    /// Forgets all entries, because the tools have changed.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl fmt::Debug for PromptBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromptBook")
    }
}
