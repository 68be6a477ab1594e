//! Where replies go.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::ChannelId;

/// Where a reply goes. Stored with the run, so that a restart can still answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplyRoute {
    /// The channel.
    pub channel: ChannelId,
    /// The conversation within it; deliveries to one conversation keep their order.
    pub conversation: Arc<str>,
    /// The message that is answered, as the platform names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Arc<str>>,
}
