//! Runs, read: the port [`RunReader`].

use std::sync::Arc;

use async_trait::async_trait;

use crate::ids::{IdPrefix, RunId, SessionKey};
use crate::message::Message;
use crate::run::RunRecord;
use crate::run_status::RunStatus;
use crate::store_error::StoreError;

/// Reads runs. Never blocks a writer.
#[async_trait]
pub trait RunReader: Send + Sync {
    /// The run with this id.
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Runs, newest first.
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError>;

    /// All messages of a run, in order, including those of run scope and tool calls with results, without cleared ones.
    /// While the run has not ended, up to its newest checkpoint.
    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError>;
}

/// The filter of a list of runs.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only those whose id has this prefix.
    pub id: Option<IdPrefix>,
    /// Only those of this session.
    pub session: Option<SessionKey>,
    /// Only those with this status.
    pub status: Option<RunStatus>,
    /// The maximum count; 0 means 50.
    pub limit: u32,
}
