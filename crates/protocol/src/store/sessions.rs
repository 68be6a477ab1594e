//! Sessions and conversations, read: the ports [`SessionReader`] and [`ConversationReader`].

use async_trait::async_trait;
use serde::Serialize;

use crate::context::Conversation;
use crate::ids::{RunId, SessionKey};
use crate::principal::KnownPrincipal;
use crate::route::ReplyRoute;
use crate::session::{SessionFilter, SessionLifetime};
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;

/// Reads sessions, their history and the principals, for the API and the command line. Never blocks a writer.
#[async_trait]
pub trait SessionReader: Send + Sync {
    /// Sessions, most recently used first.
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionSummary>, StoreError>;

    /// The session of that key. As it stands this looks through the whole list; a store with an index answers directly.
    async fn session(&self, key: &SessionKey) -> Result<Option<SessionSummary>, StoreError>;

    /// What people and model said in a session's active thread, oldest first, after the position `after`: user and
    /// assistant texts, without run-scope messages and tool traffic.
    async fn history(&self, session: &SessionKey, after: u64, limit: u32) -> Result<Vec<HistoryEntry>, StoreError>;

    /// The newest `limit` lines of a session's history, oldest first. As it stands this looks through all of it, page by
    /// page; a store with an index answers directly.
    async fn recent_history(&self, session: &SessionKey, limit: u32) -> Result<Vec<HistoryEntry>, StoreError>;

    /// The principals that have sent a message, the most recently seen first. Background work is no principal. The default knows
    /// of none.
    async fn principals(&self, _limit: u32) -> Result<Vec<KnownPrincipal>, StoreError>;
}

/// Reads conversations for the agent itself. Never blocks a writer.
#[async_trait]
pub trait ConversationReader: Send + Sync {
    /// The conversation of a session as it stands; `None`: there is no such session. As it stands this knows texts only; a
    /// store that has the rest answers with everything.
    async fn conversation(&self, session: &SessionKey) -> Result<Option<Conversation>, StoreError>;

    /// Whether people are there: in the conversation that answers go to, or in any where none is named. What was said before
    /// `since` is not looked for. As it stands this knows of nobody; a store that keeps what was said answers.
    async fn presence(&self, _place: Option<&ReplyRoute>, _since: UnixMillis) -> Result<Presence, StoreError>;
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionSummary {
    /// Its key.
    pub session: SessionKey,
    /// The state of its active thread.
    pub state: ThreadState,
    /// Runs that have not ended.
    pub open_runs: u32,
    /// When it was last used.
    pub last_active_at: UnixMillis,
    /// The first words that a person said in its active thread: one line, at most [`TITLE_MAX_CHARS`] characters.
    pub title: Option<String>,
    /// How long it is kept; a lasting one does not say so on the wire.
    #[serde(skip_serializing_if = "SessionLifetime::is_lasting")]
    pub lifetime: SessionLifetime,
}

/// Longest title of a session, in characters.
pub const TITLE_MAX_CHARS: usize = 80;

/// A line of history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryEntry {
    /// Its position; what `after` takes.
    pub id: u64,
    /// `user`, `assistant`, or `system` for a notice.
    pub role: String,
    /// The text.
    pub text: String,
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// When it was stored.
    pub at: UnixMillis,
}

/// Whether people are in a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Whether somebody has spoken, timers and programs of the daemon's own aside.
    pub spoken: bool,
    /// Whether a message is being answered there, or waits for that. One that rests on a question to a person does not count.
    pub at_work: bool,
}
