//! Sessions and conversations, read: the ports [`SessionReader`] and [`ConversationReader`].

use async_trait::async_trait;
use serde::Serialize;

use crate::context::Conversation;
use crate::ids::{IdPrefix, RunId, SessionKey, ThreadId};
use crate::principal::{KnownPrincipal, PrincipalFilter};
use crate::route::ReplyRoute;
use crate::sent_file::SentFile;
use crate::session::{SessionFilter, SessionLifetime};
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;

/// Reads sessions, their history and the principals, for the API and the command line. Never blocks a writer.
#[async_trait]
pub trait SessionReader: Send + Sync {
    /// Sessions, most recently used first.
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError>;

    /// The session with this key.
    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError>;

    /// The texts of user and model in a session's active thread, oldest first, after the position `after`; without
    /// messages of run scope and tool calls.
    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError>;

    /// The newest `limit` lines of a session's history, oldest first.
    async fn recent_history(&self, session: &SessionKey, limit: u32) -> Result<Vec<HistoryEntry>, StoreError>;

    /// The principals that have sent a message, the most recently seen first. Background work is no principal.
    async fn principals(&self, filter: PrincipalFilter) -> Result<Vec<KnownPrincipal>, StoreError>;
}

/// Reads conversations for the agent itself. Never blocks a writer.
#[async_trait]
pub trait ConversationReader: Send + Sync {
    /// The present conversation of a session; `None`: there is no such session.
    async fn conversation(&self, session: &SessionKey) -> Result<Option<Conversation>, StoreError>;

    /// The conversations of a session with a visible message of a person, most recently used first, at most `limit`.
    /// `id`: only those whose id has this prefix.
    async fn conversations(
        &self,
        session: &SessionKey,
        id: Option<&IdPrefix>,
        limit: u32,
    ) -> Result<Vec<ConversationSummary>, StoreError>;

    /// Whether people are present: in the conversation `place`, or with `None` in any conversation. Messages from
    /// before `since` do not count.
    async fn presence(&self, _place: Option<&ReplyRoute>, _since: UnixMillis) -> Result<Presence, StoreError>;
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionSummary {
    /// Its key.
    pub session: SessionKey,
    /// The state of its active thread.
    pub state: ThreadState,
    /// The number of runs that have not ended.
    pub open_runs: u32,
    /// The time of its last use.
    pub last_active_at: UnixMillis,
    /// The title of its active thread: one that a model has written, or else the beginning of the first message of a
    /// person. One line, at most [`TITLE_MAX_CHARS`] characters.
    pub title: Option<String>,
    /// Its lifetime; the wire form omits the default.
    #[serde(skip_serializing_if = "SessionLifetime::is_lasting")]
    pub lifetime: SessionLifetime,
    /// Whether lists leave it out until its next message; the wire form omits `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A conversation in the list of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationSummary {
    /// Its id.
    pub thread: ThreadId,
    /// Whether it is the active one of the session.
    pub active: bool,
    /// The time of its last use.
    pub last_active_at: UnixMillis,
    /// The number of visible messages of people.
    pub messages: u32,
    /// Its title: one that a model has written, or else the beginning of the first of them. One line, at most
    /// [`TITLE_MAX_CHARS`] characters.
    pub title: Option<String>,
}

/// The maximum length of a session's title, in characters.
pub const TITLE_MAX_CHARS: usize = 80;

/// A line of history.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryEntry {
    /// Its position, for the parameter `after`.
    pub id: u64,
    /// `user`, `assistant`, or `system` for a notice.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["user", "assistant", "system"])))]
    pub role: String,
    /// The text.
    pub text: String,
    /// The run of the message.
    pub run_id: Option<RunId>,
    /// The time at which it was stored.
    pub at: UnixMillis,
    /// The files that were sent with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SentFile>,
}

/// The presence of people in a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Whether a person has written. Messages of timers and of the daemon's own programs do not count.
    pub spoken: bool,
    /// Whether a message is being answered or queued. A paused run does not count.
    pub at_work: bool,
}
