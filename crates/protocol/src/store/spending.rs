//! Money: the port [`SpendLedger`].

use async_trait::async_trait;

use crate::ids::{RunId, SessionKey};
use crate::purpose::{Purpose, Spent};
use crate::store_error::StoreError;

/// The ledger: money is reserved before each model call, settled after it, and counted by UTC day.
#[async_trait]
pub trait SpendLedger: Send + Sync {
    /// The money of a day by purpose: settled amounts plus open reservations.
    async fn spent(&self, utc_day: i64) -> Result<Spent, StoreError>;
    /// The cost of all runs of a session by their stored totals, in millionths of a US dollar.
    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError>;
    /// Reserves an amount before a model call and returns the number of the reservation. The store charges it to the
    /// sender of the run's message; for the run of a job or a routine, to the creator of the job or the routine.
    /// Committed, so that a crash during the call counts it as spent.
    async fn reserve(&self, reservation: NewReservation) -> Result<u64, StoreError>;
    /// Replaces a reservation by the cost of the call. `reservation`: the number that [`SpendLedger::reserve`] has
    /// returned. `model`: the model that answered; `None`: the model of the reservation. Relaxed.
    async fn settle(&self, reservation: u64, model: Option<&str>, micro_usd: u64) -> Result<(), StoreError>;
}

/// Money to reserve for one model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReservation {
    /// The run at the top of the run tree.
    pub run: RunId,
    /// The purpose of the run, which selects the budget.
    pub purpose: Purpose,
    /// The requested model.
    pub model: String,
    /// The UTC day, counted from 1970-01-01.
    pub utc_day: i64,
    /// The highest possible cost of the call, in millionths of a US dollar.
    pub micro_usd: u64,
}
