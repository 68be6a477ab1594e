//! Runs, read: the ports [`RunReader`] and [`EndReader`].

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::client_tools::ClientNote;
use crate::ids::{IdPrefix, RunId, SessionKey};
use crate::message::Message;
use crate::run::RunRecord;
use crate::run_status::RunStatus;
use crate::stop::StopReason;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Reads runs. Never blocks a writer.
#[async_trait]
pub trait RunReader: Send + Sync {
    /// The run with this id.
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Runs, newest first.
    ///
    /// # Errors
    /// [`StoreError::InvalidCursor`] if the run `filter.before` does not exist.
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError>;

    /// All messages of a run, in order, including those of run scope and tool calls with results, without cleared ones.
    /// While the run has not ended, up to its newest checkpoint.
    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError>;

    /// What the clients of a run want to read again beside its answers; empty: nothing, or there is no such run.
    async fn client_notes(&self, _id: RunId) -> Result<Vec<ClientNote>, StoreError> {
        Ok(Vec::new())
    }
}

/// The filter of a list of runs.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only those whose id has this prefix.
    pub id: Option<IdPrefix>,
    /// Only those of this session.
    pub session: Option<SessionKey>,
    /// Only those with one of these statuses; empty: with any status.
    pub statuses: Vec<RunStatus>,
    /// Only those that have ended for one of these reasons; empty: for any reason, or not at all.
    pub reasons: Vec<StopReason>,
    /// Only those that were accepted at this date or later.
    pub since: Option<UnixMillis>,
    /// Only those that were accepted before this date.
    pub until: Option<UnixMillis>,
    /// Only those that were accepted before this run, in the order of the list.
    pub before: Option<RunId>,
    /// The maximum count; 0 means 50.
    pub limit: u32,
}

/// Counts ended runs. Never blocks a writer.
#[async_trait]
pub trait EndReader: Send + Sync {
    /// The number of runs that have ended for each reason in each period, oldest period first. Periods and reasons
    /// without an end are left out. A run that was accepted more than seven days before `query.since` is not counted.
    async fn ends(&self, query: EndQuery) -> Result<Vec<EndCount>, StoreError>;
}

/// The length of the periods of [`EndReader::ends`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// An hour.
    Hour,
    /// A UTC day.
    #[default]
    Day,
}

impl Period {
    /// The length in milliseconds.
    pub fn millis(self) -> i64 {
        match self {
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }
}

/// A query of [`EndReader::ends`].
#[derive(Clone, Copy, Debug)]
pub struct EndQuery {
    /// The length of a period.
    pub by: Period,
    /// Only runs that have ended at this date or later.
    pub since: UnixMillis,
    /// Only runs that have ended before this date.
    pub until: UnixMillis,
    /// Whether the channels are counted apart. It reads a row for each run instead of an index alone.
    pub by_channel: bool,
    /// Whether the models are counted apart, likewise.
    pub by_model: bool,
}

/// The number of ends for a reason in a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndCount {
    /// The start of the period.
    pub at: UnixMillis,
    /// The reason.
    pub reason: StopReason,
    /// The channel of the runs; `None`: all of them.
    pub channel: Option<String>,
    /// The model that answered the last step of the runs, empty if it is not known; `None`: all of them.
    pub model: Option<String>,
    /// The number of runs.
    pub count: u64,
}
