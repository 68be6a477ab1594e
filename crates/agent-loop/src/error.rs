//! Errors that end a run because our side could not continue. Problems that the model or the person can correct are
//! values instead.

use belay_protocol::{ModelError, Purpose, StoreError};

/// A daily budget that does not cover a request. Amounts are in millionths of a US dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the day's budget does not suffice: {spent_micro_usd} of {limit_micro_usd} millionths of a US dollar are spent, and a \
     request may cost {needed_micro_usd}"
)]
pub struct Shortage {
    /// The purpose with this budget; `None`: the budget of all purposes together.
    pub budget: Option<Purpose>,
    /// Spent and reserved so far.
    pub spent_micro_usd: u64,
    /// The limit of the budget.
    pub limit_micro_usd: u64,
    /// The highest possible cost of the request.
    pub needed_micro_usd: u64,
}

/// Why a run could not continue.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The model call failed after all retries. [`ModelError::kind`] says what to tell the person.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The next model call might exceed a daily budget, so it was not made.
    #[error(transparent)]
    CostRefused(#[from] Shortage),
    /// Progress could not be stored. After [`StoreError::LeaseLost`] another process owns the run.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LoopError {
    /// Whether the run ends only here, because another owner continues it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_elsewhere())
    }
}
