//! What can keep the agent from starting.

use belay_protocol::{ChannelError, StoreError};

/// The agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A channel refuses.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The store does not answer.
    #[error("the store does not answer: {0}")]
    Store(#[from] StoreError),
    /// A tool's declaration is unusable: a bug of whoever wrote the tool.
    #[error("tool {tool} declares an unusable schema: {detail}")]
    Tool {
        /// Its name.
        tool: String,
        /// What is wrong.
        detail: String,
    },
    /// No channel at all.
    #[error("no channel is enabled: nothing could ever come in (enable [channels.stdin], [gateway] or another)")]
    NoChannel,
}
