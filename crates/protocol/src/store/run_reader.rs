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
    /// The run of that id.
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Runs, newest first.
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRecord>, StoreError>;

    /// All messages of a run in their order, those for the run alone and tool traffic included; none that were cleared.
    /// Up to the newest checkpoint while the run goes on.
    async fn run_messages(&self, id: RunId) -> Result<Vec<Arc<Message>>, StoreError>;
}

/// Which runs.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Whose id begins so.
    pub id: Option<IdPrefix>,
    /// Of this session only.
    pub session: Option<SessionKey>,
    /// With this status only.
    pub status: Option<RunStatus>,
    /// At most so many; 0 means 50.
    pub limit: u32,
}
