//! Destinations of replies.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::ChannelId;

/// The destination of a reply. Stored with the run, so that a restarted daemon can still reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplyRoute {
    /// The channel.
    pub channel: ChannelId,
    /// The conversation within the channel; deliveries to one conversation keep their order.
    pub conversation: Arc<str>,
    /// The platform's id of the message that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Arc<str>>,
}
