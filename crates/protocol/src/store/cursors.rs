//! How far channels have read their sources: the port [`Cursors`].

use std::sync::Arc;

use async_trait::async_trait;

use crate::cursor::Cursor;
use crate::ids::ChannelId;
use crate::store_error::StoreError;

/// The maximum number of cursors of a channel.
pub const CURSORS_MAX: u32 = 1_000;

/// Keeps the cursors of channels.
#[async_trait]
pub trait Cursors: Send + Sync {
    /// The value of a cursor; `None`: nothing was read through it.
    async fn cursor(&self, channel: &ChannelId, name: &str) -> Result<Option<Arc<str>>, StoreError>;

    /// Replaces the value of a cursor. Committed. Call it after each message that the cursor covers was acknowledged,
    /// see [`Cursor`].
    ///
    /// # Errors
    /// [`StoreError::TooMuch`]: the channel has [`CURSORS_MAX`] other cursors. Or the store fails; then the value may
    /// have been stored all the same.
    async fn keep_cursor(&self, channel: &ChannelId, cursor: &Cursor) -> Result<(), StoreError>;
}
