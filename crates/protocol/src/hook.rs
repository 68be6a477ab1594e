//! Hooks: the operator's own programs at named points of a run.

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

            /// What hooks may do there.
            pub fn kind(self) -> HookKind {
                match self { $(Self::$name => HookKind::$kind,)* }
            }

            /// How long one may take, where the configuration does not say.
            pub fn default_timeout(self) -> Duration {
                Duration::from_secs(match self { $(Self::$name => $seconds,)* })
            }

            /// What a hook that fails means, where the configuration does not say.
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
    /// Once before a run asks the model for the first time. May change `prompt`, or refuse the run.
    BeforeAgentStart = "before_agent_start", Decide, 15, Open;
    /// After a run has ended, however it did.
    AgentEnd = "agent_end", Observe, 30, Open;
    /// Before older messages are replaced by a summary.
    BeforeCompaction = "before_compaction", Observe, 5, Open;
    /// After it.
    AfterCompaction = "after_compaction", Observe, 5, Open;
    /// Before a tool call is looked at by the rules of approval. May change `arguments`, or refuse the call.
    BeforeToolCall = "before_tool_call", Decide, 15, Closed;
    /// After a tool call.
    AfterToolCall = "after_tool_call", Observe, 5, Open;
    /// Before a tool's result enters the conversation. May change `text`.
    ToolResultPersist = "tool_result_persist", Change, 5, Open;
    /// A message has come in. May change `text`, or refuse it.
    MessageReceived = "message_received", Decide, 5, Open;
    /// Before a message goes out. May change `text`, or refuse it.
    MessageSending = "message_sending", Decide, 15, Open;
    /// After it went out, or could not.
    MessageSent = "message_sent", Observe, 5, Open;
    /// A session has its first message, or its first after `/new`.
    SessionStart = "session_start", Observe, 5, Open;
    /// A session was ended by `/new` or `/reset`.
    SessionEnd = "session_end", Observe, 5, Open;
    /// The daemon takes messages.
    GatewayStart = "gateway_start", Observe, 5, Open;
    /// The daemon drains.
    GatewayStop = "gateway_stop", Observe, 5, Open;
}

impl HookPoint {
    /// The point of that name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|point| point.word() == word)
    }
}

/// What hooks may do at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// Look on; they run side by side, and what they answer is not read.
    Observe,
    /// Change what is there; one after the other, each sees what the one before made of it.
    Change,
    /// Change or refuse; a refusal ends the chain.
    Decide,
}

/// What a hook that fails, crashes or takes too long means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookFailure {
    /// Nothing: it goes on as if the hook had said so.
    Open,
    /// A refusal.
    Closed,
}

/// What a hook is told: one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookEvent {
    /// The point's name.
    pub hook: &'static str,
    /// When.
    pub at: UnixMillis,
    /// The session, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// The run, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// What the point is about. What may be changed is a field of it.
    pub data: Value,
}

/// What a hook answers.
#[derive(Clone, Debug, PartialEq)]
pub enum HookAnswer {
    /// Go on.
    Continue,
    /// Go on with these fields of the data instead; others stay as they are.
    Change(serde_json::Map<String, Value>),
    /// Do not; the text says why, for whoever asked.
    Refuse(String),
}

/// A program of the operator's.
#[async_trait]
pub trait Hook: Send + Sync {
    /// Its name in the configuration, for the log.
    fn name(&self) -> &str;

    /// Tells it and hears its answer. The caller bounds the time and drops the future at its end; the hook then ends
    /// whatever it started.
    ///
    /// # Errors
    /// Plain words: it could not be asked, or its answer cannot be read.
    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String>;
}

/// A hook at its point.
#[derive(Clone)]
pub struct BoundHook {
    /// Where.
    pub point: HookPoint,
    /// Higher ones first; among equals, the order of the configuration.
    pub priority: i32,
    /// How long it may take.
    pub timeout: Duration,
    /// What its failure means.
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
