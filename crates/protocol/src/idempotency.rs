//! Telling a second delivery of a message from another message.

use std::sync::Arc;

use crate::ids::ChannelId;

/// Recognises a second delivery of the same message: `(channel, account, message id)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// The channel.
    pub channel: ChannelId,
    /// Within which the message id is unique: the bot, or for HTTP the session.
    pub account: Arc<str>,
    /// The platform's or client's own id.
    pub message_id: Arc<str>,
}
