//! Money: the port [`SpendLedger`].

use async_trait::async_trait;

use crate::ids::{RunId, SessionKey};
use crate::purpose::{Purpose, Spent};
use crate::store_error::StoreError;

/// Money: reserved before each call, settled after, counted by UTC day.
#[async_trait]
pub trait SpendLedger: Send + Sync {
    /// What a day has cost, by what it went for: settled amounts plus reservations that nobody settled.
    async fn spent(&self, utc_day: i64) -> Result<Spent, StoreError>;
    /// What all runs of a session have cost, by the totals they had stored last, in millionths of a US dollar.
    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError>;
    /// Reserves an amount before a model call and returns the number of the reservation. The store charges it to the principal
    /// that sent the run's message; for the run of a job or a routine, to the principal that created the job or the routine.
    /// Committed, so that a crash during the call counts it as spent.
    async fn reserve(&self, reservation: NewReservation) -> Result<u64, StoreError>;
    /// Replaces a reservation, by the number that [`SpendLedger::reserve`] returned, by the cost of the call. `model`: the
    /// model that answered; `None`: the model of the reservation. Relaxed.
    async fn settle(&self, reservation: u64, model: Option<&str>, micro_usd: u64) -> Result<(), StoreError>;
}

/// Money to reserve for one model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReservation {
    /// The run at the top of the call's tree of runs.
    pub run: RunId,
    /// The purpose of the run, whose budget it uses.
    pub purpose: Purpose,
    /// The requested model.
    pub model: String,
    /// The UTC day, counted from 1970-01-01.
    pub utc_day: i64,
    /// The most that the call can cost, in millionths of a US dollar.
    pub micro_usd: u64,
}
