//! Money: the ports [`SpendLedger`] and [`SpendReader`].

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ids::{BootId, ChannelId, RunId, SessionKey};
use crate::model::Usage;
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
    /// Replaces a reservation by the charge for the call. `reservation`: the number that [`SpendLedger::reserve`] has
    /// returned. If it is settled again, the new cost replaces the earlier one, and the tokens and requests do not
    /// count again. Relaxed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]: there is no such reservation (SQLite). PostgreSQL may return `Ok`: the store then drops the
    /// settlement, and writes an error into the log.
    async fn settle(&self, reservation: u64, charge: CallCharge) -> Result<(), StoreError>;
}

/// Reads what model calls have cost. Never blocks a writer.
#[async_trait]
pub trait SpendReader: Send + Sync {
    /// Cost and usage of the days of the query, one row for each key, at most `query.limit` rows: for
    /// [`CostKey::Day`] the newest day first, else the highest cost first.
    ///
    /// Calls of models that cost nothing are not in the ledger. Their tokens are taken from stored runs without any
    /// cost, at most the newest 100,000 runs of the days, and have the model `""`. They are lost with these runs.
    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRow>, StoreError>;
}

/// The charge for one model call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCharge {
    /// The model that answered; `None`: the model of the reservation.
    pub model: Option<String>,
    /// The cost, in millionths of a US dollar.
    pub micro_usd: u64,
    /// The tokens, estimated ones included.
    pub usage: Usage,
    /// The requests that were sent.
    pub requests: u32,
}

/// The key by which costs are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CostKey {
    /// The UTC day.
    #[default]
    Day,
    /// The person or program that is charged.
    Person,
    /// The model that answered.
    Model,
    /// The purpose of the run.
    Purpose,
    /// The UTC day and the purpose, with a space between them.
    DayPurpose,
}

/// A query of [`SpendReader::costs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostQuery {
    /// The key of the rows.
    pub by: CostKey,
    /// The first UTC day, counted from 1970-01-01.
    pub first_day: i64,
    /// The last UTC day.
    pub last_day: i64,
    /// Only what this person is charged: the channel, and the id within it.
    pub only: Option<(ChannelId, String)>,
    /// The maximum count of rows.
    pub limit: u32,
}

/// Costs and usage of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostRow {
    /// The day (`2026-11-20`), the person (`CHANNEL:ID`), the model, the purpose, or both (`2026-11-20 chat`). Empty: a
    /// call outside every run has no person, and a call that costs nothing has no model.
    pub key: String,
    /// The name of a person, as the platform shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The cost, in millionths of a US dollar; open reservations count in full.
    pub cost_micro_usd: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Requests to models, including failed ones.
    pub calls: u64,
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
    /// The node of a cluster that pays it from its slices; `None`: the daemon is alone, or no budget has a limit. It is
    /// refused ([`StoreError::Unavailable`]) after the slices of the node were reconciled, when the node has ended.
    pub node: Option<BootId>,
}

/// The budgets of days, which the nodes of a cluster share by slices: money that one node may spend without asking the
/// others. The slices of a day never exceed its limit together with the money that was spent before the first of them.
#[async_trait]
pub trait BudgetSlices: Send + Sync {
    /// Adds money of a budget to the slice of a node. Committed.
    ///
    /// # Errors
    /// The store fails, or the node has ended. The money may be in the slice all the same.
    async fn draw(&self, draw: Draw) -> Result<Drawn, StoreError>;

    /// Reduces the slice of a node to `keep_micro_usd`: others may draw the rest. Nothing happens if the slice is not
    /// larger, or was reconciled. A repeated call changes nothing more. Committed.
    ///
    /// # Errors
    /// The store fails. The slice may be reduced all the same.
    async fn give_back(
        &self,
        utc_day: i64,
        budget: Option<Purpose>,
        boot: BootId,
        keep_micro_usd: u64,
    ) -> Result<(), StoreError>;

    /// Returns what the ended nodes have not spent of their slices of a day, once for each slice. An open reservation
    /// counts as spent in full. Returns the sum for the budget of all purposes. Committed.
    ///
    /// # Errors
    /// The store fails.
    async fn reconcile(&self, utc_day: i64) -> Result<u64, StoreError>;
}

/// A request for money of a budget. All amounts are in millionths of a US dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The UTC day, counted from 1970-01-01.
    pub utc_day: i64,
    /// The purpose with this budget; `None`: the budget of all purposes.
    pub budget: Option<Purpose>,
    /// The node.
    pub boot: BootId,
    /// The limit of the budget.
    pub limit: u64,
    /// Less than this is of no use.
    pub least: u64,
    /// The amount that is needed now.
    pub need: u64,
    /// The wanted amount. Of the last tenth of a budget a node gets no more than it needs.
    pub want: u64,
}

/// The answer to a [`Draw`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// The money that was added to the slice; 0: there is less than the least useful amount.
    pub granted: u64,
    /// The money of the budget that is in no slice.
    pub left: u64,
}
