//! What ends a run because our side could not go on. What the model or the person can correct is a value instead.

use belay_protocol::{ModelError, Purpose, StoreError};

/// A budget of the day that does not suffice for a request. Amounts are in millionths of a US dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the day's budget does not suffice: {spent_micro_usd} of {limit_micro_usd} millionths of a US dollar are spent, and a \
     request may cost {needed_micro_usd}"
)]
pub struct Shortage {
    /// Whose budget; `None`: that of all.
    pub budget: Option<Purpose>,
    /// Spent and reserved so far.
    pub spent_micro_usd: u64,
    /// The budget.
    pub limit_micro_usd: u64,
    /// What the request may cost at most.
    pub needed_micro_usd: u64,
}

/// A run that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The model could not be asked. Retries are behind us; [`ModelError::kind`] says what to tell the person.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The next call might exceed a budget of the day, so it was not made.
    #[error(transparent)]
    CostRefused(#[from] Shortage),
    /// Progress could not be stored. After [`StoreError::LeaseLost`] the run belongs to somebody else.
    #[error(transparent)]
    Store(#[from] StoreError),
}
