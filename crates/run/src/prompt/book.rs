//! Ways of asking, made once for each content and shared: their prompts are long, and serialised once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use belay_agent_loop::Reasoning;

use super::Briefing;

/// How many are kept. 32: places times what sessions add; beyond, the one that was used longest ago is made again.
const CAPACITY: usize = 32;

/// Ways of asking, the last used first. Held for a look-up, and while one is made.
#[derive(Default)]
pub struct PromptBook(Mutex<VecDeque<(Briefing, Arc<Reasoning>)>>);

impl PromptBook {
    /// The way of asking for these surroundings.
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

impl fmt::Debug for PromptBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromptBook")
    }
}
