//! The goal of a run as people see it. Its turn writes, the lane of the conversation reads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The goal of a run.
#[derive(Debug, Default)]
pub struct GoalPort(Mutex<State>); // held for a few instructions, never across an await

#[derive(Debug, Default)]
struct State {
    expected: bool,
    shown: Option<String>,
}

impl GoalPort {
    /// Notes that the run works for a goal.
    pub fn expect(&self) {
        self.lock().expected = true;
    }

    /// Whether the run works for a goal.
    pub fn is_expected(&self) -> bool {
        self.lock().expected
    }

    /// The goal as people see it; `None`: its turn has not begun.
    pub fn shown(&self) -> Option<String> {
        self.lock().shown.clone()
    }

    /// Sets what people see.
    pub fn show(&self, text: String) {
        self.lock().shown = Some(text);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
