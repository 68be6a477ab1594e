//! What ends a run because our side could not go on. What the model or the person can correct is a value instead.

use belay_protocol::{ModelError, StoreError};

/// A run that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The model could not be asked. Retries are behind us; [`ModelError::kind`] says what to tell the person.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The next call might exceed the budget, so it was not made.
    #[error(
        "the budget does not suffice: {spent_micro_usd} of {limit_micro_usd} millionths of a US dollar are spent, and a \
         request may cost {needed_micro_usd}"
    )]
    CostRefused {
        /// Spent and reserved so far, in millionths of a US dollar.
        spent_micro_usd: u64,
        /// The budget, in millionths of a US dollar.
        limit_micro_usd: u64,
        /// What the request may cost at most, in millionths of a US dollar.
        needed_micro_usd: u64,
    },
    /// Progress could not be stored. After [`StoreError::LeaseLost`] the run belongs to somebody else.
    #[error(transparent)]
    Store(#[from] StoreError),
}
