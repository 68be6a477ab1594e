//! The port for the approved descriptions of MCP tools.

use async_trait::async_trait;

use crate::store_error::StoreError;

/// Keeps the approved descriptions of MCP tools as one text: in a file of one daemon, or in the database that the nodes of
/// a cluster share. Only `belay_tools` knows the format of the text.
#[async_trait]
pub trait PinStore: Send + Sync {
    /// The text; `None`: nothing was approved yet.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the text cannot be read. Then nothing counts as approved.
    async fn pins(&self) -> Result<Option<String>, StoreError>;

    /// Replaces the text durably if it is still `before`, as [`pins`](Self::pins) has returned it. Returns whether it was
    /// replaced; `false`: somebody else has changed it, so read it again.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the text is unchanged, or the answer of the database was lost.
    ///
    /// # Cancel safety
    /// If the future is dropped, the text is either unchanged or replaced.
    async fn replace_pins(&self, before: Option<&str>, after: &str) -> Result<bool, StoreError>;

    /// The place of the text, for error messages: the path of the file, or the database.
    fn location(&self) -> String;
}
