//! The port for the calls that clients carry out.

use async_trait::async_trait;

use crate::approval::Decided;
use crate::client_tools::ClientResult;
use crate::ids::ApprovalId;
use crate::options::RunOptions;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Keeps the answers of clients to the calls of paused runs.
#[async_trait]
pub trait ClientCallStore: Send + Sync {
    /// Stores the results of the calls that this request waits for, and the options with which its run continues, in one
    /// commit. Only the first answer counts. Committed.
    async fn answer_client_calls(
        &self,
        id: ApprovalId,
        results: Vec<ClientResult>,
        options: RunOptions,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError>;
}
