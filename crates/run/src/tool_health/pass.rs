//! The leave to call a tool.

use std::sync::Arc;

use super::book::Trial;
use super::health::Health;

/// Held by a call from before it begins until its end was noted. Dropped before that, the call has said nothing of its tool:
/// where it was to show whether the tool works again, the next one may.
pub struct Permit {
    health: Arc<Health>,
    trials: Vec<Trial>,
}

impl Permit {
    pub(super) fn new(health: Arc<Health>, trials: Vec<Trial>) -> Self {
        Self { health, trials }
    }

    /// The trials that the call is, to be settled by its end.
    pub(super) fn take_trials(&mut self) -> Vec<Trial> {
        std::mem::take(&mut self.trials)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.trials.is_empty() {
            self.health.give_back(&self.trials);
        }
    }
}
