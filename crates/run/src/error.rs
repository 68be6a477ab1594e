//! What can keep the agent from starting.

use belay_protocol::{ChannelError, ChannelId, StoreError};

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
    /// An executor is to have a tool that there is not.
    #[error("agent.executors.{executor}.tools: there is no tool {tool}{}", did_you_mean(.nearest))]
    ExecutorTool {
        /// The executor.
        executor: String,
        /// What it is to have.
        tool: String,
        /// The tool whose name is nearest.
        nearest: Option<String>,
    },
    /// A hook is bound to tools by something that is no pattern.
    #[error("hooks: a pattern of tool names cannot be read: {0}")]
    HookTools(#[from] globset::Error),
    /// A channel has the name of what is the agent's own.
    #[error("channel {0}: this name is reserved for autonomous work; choose another name for the channel")]
    ChannelName(ChannelId),
    /// The heartbeat cannot be what the settings say.
    #[error("{0}")]
    Heartbeat(String),
    /// No channel at all.
    #[error("no channel is enabled: no message could ever arrive (enable [channels.stdin], [gateway] or another)")]
    NoChannel,
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}
