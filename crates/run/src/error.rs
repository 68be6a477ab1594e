//! Errors that keep the agent from starting.

use belay_protocol::{ChannelError, ChannelId, StoreError};

/// Reason why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A channel reports an error.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The store does not respond.
    #[error("the store does not answer: {0}")]
    Store(#[from] StoreError),
    /// An executor's list of tools names an unknown tool.
    #[error("agent.executors.{executor}.tools: there is no tool {tool}{}", did_you_mean(.nearest))]
    ExecutorTool {
        /// Name of the executor.
        executor: String,
        /// The unknown name.
        tool: String,
        /// The tool with the most similar name.
        nearest: Option<String>,
    },
    /// A hook's pattern of tool names is invalid.
    #[error("hooks: a pattern of tool names cannot be read: {0}")]
    HookTools(#[from] globset::Error),
    /// A channel uses a name that is reserved for autonomous work.
    #[error("channel {0}: this name is reserved for autonomous work; choose another name for the channel")]
    ChannelName(ChannelId),
    /// The settings of the heartbeat are invalid.
    #[error("{0}")]
    Heartbeat(String),
    /// The settings of titles name an unknown model.
    #[error("{0}")]
    Titles(String),
    /// No channel is enabled.
    #[error("no channel is enabled: no message could ever arrive (enable [channels.stdin], [gateway] or another)")]
    NoChannel,
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}
