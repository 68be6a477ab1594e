//! Conversations to which a platform has given another address, such as a group of Telegram that became a supergroup.

use async_trait::async_trait;

use crate::ids::ChannelId;
use crate::store_error::StoreError;

/// A conversation that has another address now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedConversation {
    /// The channel.
    pub channel: ChannelId,
    /// The old address.
    pub from: String,
    /// The new address.
    pub to: String,
    /// Whether messages from the new address continue the session of the old one. `false`: they already have a session of
    /// their own, and only messages to the old address follow.
    pub keeps_session: bool,
}

/// Keeps the conversations that have moved.
#[async_trait]
pub trait MoveStore: Send + Sync {
    /// The moved conversations of a channel.
    ///
    /// # Errors
    /// The store fails.
    async fn moves(&self, channel: ChannelId) -> Result<Vec<MovedConversation>, StoreError>;

    /// Stores a move, in place of an earlier one from the same address. Committed.
    ///
    /// # Errors
    /// The store fails. The move may have been stored all the same.
    async fn put_move(&self, moved: MovedConversation) -> Result<(), StoreError>;
}
