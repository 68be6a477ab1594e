//! Hooks: programs and addresses of the operator that are called at named points of a run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{RunId, SessionKey};
use crate::time::UnixMillis;

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $kind:ident, $seconds:literal, $failure:ident;)*) => {
        /// A point at which hooks are called.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum HookPoint { $($(#[$doc])* $name,)* }

        impl HookPoint {
            /// Every point.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in the configuration and on the wire.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The effect that hooks may have at this point.
            pub fn kind(self) -> HookKind {
                match self { $(Self::$name => HookKind::$kind,)* }
            }

            /// The timeout of a hook, if the configuration sets none.
            pub fn default_timeout(self) -> Duration {
                Duration::from_secs(match self { $(Self::$name => $seconds,)* })
            }

            /// The effect of a failed hook, if the configuration sets none.
            pub fn default_failure(self) -> HookFailure {
                match self { $(Self::$name => HookFailure::$failure,)* }
            }
        }
    };
}

points! {
    /// Before the system prompt of a run is final. May change `prompt` and `files`.
    Bootstrap = "agent:bootstrap", Change, 5, Open;
    /// Any command in a conversation.
    Command = "command", Observe, 5, Open;
    /// `/new`.
    CommandNew = "command:new", Observe, 5, Open;
    /// `/reset`.
    CommandReset = "command:reset", Observe, 5, Open;
    /// `/stop`.
    CommandStop = "command:stop", Observe, 5, Open;
    /// Once before the first model call of a run. May change `prompt`, or refuse the run.
    BeforeAgentStart = "before_agent_start", Decide, 15, Open;
    /// After a run has ended, for whatever reason.
    AgentEnd = "agent_end", Observe, 30, Open;
    /// Before older messages are replaced by a summary.
    BeforeCompaction = "before_compaction", Observe, 5, Open;
    /// After older messages were replaced by a summary.
    AfterCompaction = "after_compaction", Observe, 5, Open;
    /// Before the approval rules check a tool call. May change `arguments`, or refuse the call.
    BeforeToolCall = "before_tool_call", Decide, 15, Closed;
    /// After a tool call.
    AfterToolCall = "after_tool_call", Observe, 5, Open;
    /// Before a tool's result enters the conversation. May change `text`.
    ToolResultPersist = "tool_result_persist", Change, 5, Open;
    /// A message has arrived. May change `text`, or refuse the message.
    MessageReceived = "message_received", Decide, 5, Open;
    /// Before a message is sent. May change `text`, or refuse it.
    MessageSending = "message_sending", Decide, 15, Open;
    /// After a message was sent, or could not be sent.
    MessageSent = "message_sent", Observe, 5, Open;
    /// A session has its first message, or its first after `/new`.
    SessionStart = "session_start", Observe, 5, Open;
    /// `/new` or `/reset` has ended a session.
    SessionEnd = "session_end", Observe, 5, Open;
    /// The daemon accepts messages.
    GatewayStart = "gateway_start", Observe, 5, Open;
    /// The daemon is draining.
    GatewayStop = "gateway_stop", Observe, 5, Open;
}

impl HookPoint {
    /// The point with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|point| point.word() == word)
    }
}

/// The effect that hooks may have at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// Observe. These hooks run side by side, and their answers are not read.
    Observe,
    /// Change the data. These hooks run one after the other, and each sees the changes of the one before.
    Change,
    /// Change the data or refuse. A refusal ends the chain.
    Decide,
}

/// The effect of a hook that fails, crashes or exceeds its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookFailure {
    /// The run continues as if the hook had answered [`HookAnswer::Continue`].
    Open,
    /// It counts as a refusal.
    Closed,
}

/// The input of a hook: one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookEvent {
    /// The point's name.
    pub hook: &'static str,
    /// The time.
    pub at: UnixMillis,
    /// The session, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// The run, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The data of the point. Each value that may be changed is a field of it.
    pub data: Value,
}

/// The answer of a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum HookAnswer {
    /// Continue.
    Continue,
    /// Continue with these fields of the data; others stay as they are.
    Change(serde_json::Map<String, Value>),
    /// Refuse; the text is the reason, for the person who asked.
    Refuse(String),
}

/// A program or an address of the operator.
#[async_trait]
pub trait Hook: Send + Sync {
    /// Its name in the configuration, for the log.
    fn name(&self) -> &str;

    /// Calls the hook and returns its answer. The caller limits the time and drops the future at the limit; the hook
    /// then ends everything that it has started.
    ///
    /// # Errors
    /// The reason, for people: the hook could not be called, or its answer is invalid.
    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String>;
}

/// A hook, bound to its point.
#[derive(Clone)]
pub struct BoundHook {
    /// The point.
    pub point: HookPoint,
    /// Higher priorities run first; equal ones in the order of the configuration.
    pub priority: i32,
    /// The timeout.
    pub timeout: Duration,
    /// The effect of a failure.
    pub on_failure: HookFailure,
    /// For tool points: only these tools. Empty: all.
    pub tools: Vec<String>,
    /// The hook.
    pub hook: Arc<dyn Hook>,
}

impl fmt::Debug for BoundHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.hook.name(), self.point.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_found_by_its_name() {
        for point in HookPoint::ALL {
            assert_eq!(HookPoint::from_word(point.word()), Some(*point));
        }
        assert_eq!(HookPoint::ALL.len(), 19);
    }
}
