//! The permit to call a tool.

use std::sync::Arc;

use super::book::Trial;
use super::health::Health;

/// Held by a call from before it starts until its end is evaluated. If it is dropped before that, the call has no
/// result. If the call was a trial, the next call may be the trial.
pub struct Permit {
    health: Arc<Health>,
    trials: Vec<Trial>,
}

impl Permit {
    pub(super) fn new(health: Arc<Health>, trials: Vec<Trial>) -> Self {
        Self { health, trials }
    }

    /// Takes the trials of the call, which its end settles.
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
