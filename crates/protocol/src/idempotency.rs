//! Recognition of redelivered messages.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::ChannelId;

/// Identifies a message, so that its redelivery is recognised: `(channel, account, message id)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// The channel.
    pub channel: ChannelId,
    /// The account within which the message id is unique: the bot, or for HTTP the session.
    pub account: Arc<str>,
    /// The id that the platform or the client has given.
    pub message_id: Arc<str>,
}
