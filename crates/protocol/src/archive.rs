//! The stored sessions as a whole: search, transcripts, deletion and retention.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ids::{RunId, SessionKey, ThreadId};
use crate::lease::Lease;
use crate::message::Message;
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;

/// The time for which the store certainly recognises a redelivered message, in milliseconds: 30 days. Platforms
/// redeliver for a day, programs of users for as long as their backlog lives.
pub const KEYS_KEPT_MS: i64 = 30 * 24 * 3600 * 1000;

/// Searches, reads and deletes stored sessions. Reading never blocks a writer. Deleting works in small pieces, between
/// which other writes take their turn.
#[async_trait]
pub trait Archive: Send + Sync {
    /// The messages of people and model that contain every word of the query, or words that begin with it; best first,
    /// newer before older, without regard to case. Undone and cleared messages are not found, nor messages of one run
    /// alone. A query without a word finds nothing.
    async fn search(&self, query: SearchQuery) -> Result<Vec<Found>, StoreError>;

    /// The conversations of a session, oldest first; empty if there is no such session.
    async fn threads(&self, session: &SessionKey) -> Result<Vec<ThreadSummary>, StoreError>;

    /// Changes how lists show a session, as a whole or not at all. Committed. Without such a session, nothing changes.
    async fn change_session(&self, session: &SessionKey, change: SessionChange) -> Result<(), StoreError>;

    /// The messages of a conversation after a position, oldest first, at most `limit`. Undone and cleared messages are
    /// left out, and so are messages of one run alone.
    async fn transcript(&self, thread: ThreadId, after: u64, limit: u32) -> Result<Vec<TranscriptLine>, StoreError>;

    /// Deletes a session with its conversations, ended runs, events, approval requests, grants, notes, secrets, and
    /// replies that are not being delivered. The keys that recognise redelivered messages stay for [`KEYS_KEPT_MS`].
    /// The lease is void afterwards; the next opening creates a new session with that key. Committed.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] while a run has not ended.
    async fn delete_session(&self, lease: &Lease, at: UnixMillis) -> Result<Removed, StoreError>;

    /// Deletes about `most` rows that are too old, in one commit. The caller repeats it until [`Removed::is_nothing`].
    ///
    /// It spares sessions with a run that has not ended, sessions whose lane was opened after the date, and the
    /// newest event, so that sequence numbers never go back. It spares an ephemeral session also while one of its
    /// messages is not delivered or a job that it asked for is not over. An ephemeral session is deleted with its notes
    /// and secrets.
    async fn prune(&self, old: Retention, most: u32) -> Result<Removed, StoreError>;

    /// The counts that [`Archive::prune`] would delete in all.
    async fn prunable(&self, old: Retention) -> Result<Removed, StoreError>;

    /// Returns at most `pages` freed pages of the database to the disk.
    async fn shrink(&self, pages: u32) -> Result<(), StoreError>;
}

/// A change of how lists show a session. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionChange {
    /// Gives its current conversation this title. Empty: its first words are its title again, until a model writes one.
    pub title: Option<String>,
    /// Whether lists leave it out until its next message.
    pub hidden: Option<bool>,
}

impl SessionChange {
    /// A new title, or none of its own if it is empty.
    pub fn title(title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..Self::default() }
    }

    /// Leaves the session out of lists until its next message, or lists it again.
    pub fn hidden(hidden: bool) -> Self {
        Self { hidden: Some(hidden), ..Self::default() }
    }
}

/// Deletes the data that is too old by the settings.
#[async_trait]
pub trait Janitor: Send + Sync {
    /// Deletes the data now. With `dry_run`, it only counts the data.
    async fn tidy(&self, dry_run: bool) -> Result<Removed, StoreError>;
}

/// The maximum length of a search query, in bytes.
pub const QUERY_MAX_BYTES: usize = 1000;

/// A search.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    /// The words as a person types them. There is no query syntax.
    pub words: String,
    /// Only in this session.
    pub session: Option<SessionKey>,
    /// The number of best messages to leave out: those of the pages before.
    pub skip: u32,
    /// The maximum count; 0 means 20.
    pub limit: u32,
}

impl SearchQuery {
    /// The words in lower case, without punctuation and white space.
    pub fn terms(&self) -> Vec<String> {
        self.words.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect()
    }
}

/// A message that a search has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Found {
    /// Its session.
    pub session: SessionKey,
    /// Its conversation.
    pub thread: ThreadId,
    /// Its position in it.
    pub id: u64,
    /// `user` or `assistant`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["user", "assistant"])))]
    pub role: String,
    /// The words around the first hit, with `…` in place of omitted text.
    pub snippet: String,
    /// The run of the message.
    pub run_id: Option<RunId>,
    /// The time at which it was stored.
    pub at: UnixMillis,
}

/// A conversation in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadSummary {
    /// Its id.
    pub thread: ThreadId,
    /// Its state.
    pub state: ThreadState,
    /// Whether it is the active conversation of the session.
    pub active: bool,
    /// The time of its last use.
    pub last_active_at: UnixMillis,
    /// The summary of its older messages, if they were compacted.
    pub summary: Option<String>,
}

/// A message of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptLine {
    /// Its position, for the parameter `after`.
    pub id: u64,
    /// The run of the message.
    pub run_id: Option<RunId>,
    /// The time at which it was stored.
    pub at: UnixMillis,
    /// The message.
    pub message: Arc<Message>,
}

/// The dates before which data is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Deletes conversations that were last used before this date, with their runs, and principals that were last seen
    /// before it; `None`: none.
    pub threads_before: Option<UnixMillis>,
    /// Deletes events from before this date; `None`: only events of deleted runs.
    pub events_before: Option<UnixMillis>,
    /// Deletes routine runs that ended before this date, with their sessions; `None`: like conversations.
    pub ended_routine_runs_before: Option<UnixMillis>,
    /// Deletes ephemeral sessions that were last used before this date; `None`: like conversations.
    pub ephemeral_before: Option<UnixMillis>,
    /// The keys of messages from before this date may be deleted, and so may the answered mail of nodes and its secrets.
    pub keys_before: UnixMillis,
}

impl Retention {
    /// The date before which ended routine runs are deleted. The row of a routine run that a webhook or an event has
    /// started also recognises a redelivery, so such a row stays until [`Retention::keys_before`] as well. A scheduled
    /// time is recognised by its routine.
    pub fn routine_runs_before(&self) -> Option<UnixMillis> {
        self.ended_routine_runs_before.or(self.threads_before)
    }
}

/// The counts of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Removed {
    /// Sessions of which only notes and secrets are left. A deleted or ephemeral session leaves nothing.
    pub sessions: u64,
    /// Conversations.
    pub threads: u64,
    /// Messages.
    pub messages: u64,
    /// Runs, including those of which only the key for redeliveries is left.
    pub runs: u64,
    /// Events.
    pub events: u64,
    /// Replies that were delivered or have failed.
    pub replies: u64,
    /// Notes.
    pub notes: u64,
    /// Secrets.
    pub secrets: u64,
    /// Jobs that were over.
    pub jobs: u64,
    /// Ended routine runs, and missed times.
    pub routine_runs: u64,
    /// Runs whose kept outputs can no longer be read.
    #[serde(skip)]
    pub run_ids: Vec<RunId>,
}

impl Removed {
    /// Whether nothing was deleted.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the counts of another deletion.
    pub fn add(&mut self, other: Self) {
        let Self { sessions, threads, messages, runs, events, replies, notes, secrets, jobs, routine_runs, run_ids } =
            other;
        self.sessions += sessions;
        self.threads += threads;
        self.messages += messages;
        self.runs += runs;
        self.events += events;
        self.replies += replies;
        self.notes += notes;
        self.secrets += secrets;
        self.jobs += jobs;
        self.routine_runs += routine_runs;
        self.run_ids.extend(run_ids);
    }
}

impl std::fmt::Display for Removed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [
            (self.sessions, "session"),
            (self.threads, "conversation"),
            (self.messages, "message"),
            (self.runs, "run"),
            (self.events, "event"),
            (self.replies, "delivered reply"),
            (self.notes, "note"),
            (self.secrets, "secret"),
            (self.jobs, "job"),
            (self.routine_runs, "routine_run"),
        ];
        let said: Vec<String> =
            counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {}", plural(n, what))).collect();
        if said.is_empty() { f.write_str("nothing") } else { f.write_str(&said.join(", ")) }
    }
}

fn plural(n: u64, what: &str) -> String {
    match (n, what.strip_suffix('y')) {
        (1, _) => what.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_deleted_is_said_in_words() {
        assert_eq!(Removed::default().to_string(), "nothing");
        let mut removed = Removed { threads: 1, messages: 12, ..Removed::default() };
        removed.add(Removed { messages: 1, replies: 2, ..Removed::default() });
        assert_eq!(removed.to_string(), "1 conversation, 13 messages, 2 delivered replies");
    }

    #[test]
    fn a_query_is_words_and_nothing_else() {
        let terms = |words: &str| SearchQuery { words: words.into(), ..SearchQuery::default() }.terms();
        assert_eq!(terms("Deploy \"to\" prod-1 OR NEAR(x*) "), ["deploy", "to", "prod", "1", "or", "near", "x"]);
        assert_eq!(terms("Ключ 🗝"), ["ключ"]);
        assert!(terms(" \"*-() ").is_empty());
    }
}
