//! What is kept of sessions beyond their active conversation: found, read out, deleted.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::ids::{RunId, SessionKey, ThreadId};
use crate::lease::Lease;
use crate::message::Message;
use crate::store_error::StoreError;
use crate::thread::ThreadState;
use crate::time::UnixMillis;

/// Longest that what recognises a second delivery of a message is certainly kept: 30 days. Platforms offer a message again for
/// a day, and people's programs for as long as a backlog lives.
pub const KEYS_KEPT_MS: i64 = 30 * 24 * 3600 * 1000;

/// Finds, reads out and deletes what sessions have said. Reading never blocks a writer; deleting comes in small pieces, between
/// which other writes take their turn.
#[async_trait]
pub trait Archive: Send + Sync {
    /// What people and model said that has every word of the query, or words that begin so; best first, newer before older.
    /// Without case. What was taken back or forgotten, and what was for one run alone, is not found. Nothing for a query
    /// without a word.
    async fn search(&self, query: SearchQuery) -> Result<Vec<Found>, StoreError>;

    /// The conversations of a session, oldest first; empty where there is none of that key.
    async fn threads(&self, session: &SessionKey) -> Result<Vec<ThreadSummary>, StoreError>;

    /// A conversation as it was, after a position, oldest first, at most `limit` messages; without what was taken back or
    /// forgotten, and without what was for one run alone.
    async fn transcript(&self, thread: ThreadId, after: u64, limit: u32) -> Result<Vec<TranscriptLine>, StoreError>;

    /// Deletes a session with everything of it: conversations, ended runs, facts, questions, what it was granted, notes,
    /// secrets, and replies that are no longer on their way. What recognises a second delivery stays for
    /// [`KEYS_KEPT_MS`]. The lease is void afterwards, and the next opening makes a new session of that key. Committed.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] while a run has not ended.
    async fn delete_session(&self, lease: &Lease, at: UnixMillis) -> Result<Removed, StoreError>;

    /// Deletes at most about `most` rows of what is too old, in one commit. Done when [`Removed::is_nothing`]; asked again
    /// otherwise. Spared are sessions with a run that has not ended or whose lane was opened since, and the newest
    /// fact, so that numbers never go back. An ephemeral session is spared besides while a message of it is not delivered yet
    /// or a job that it asked for is not over; it goes with its notes and secrets.
    async fn prune(&self, old: Retention, most: u32) -> Result<Removed, StoreError>;

    /// What [`Archive::prune`] would delete in all, as it stands.
    async fn prunable(&self, old: Retention) -> Result<Removed, StoreError>;

    /// Gives the disk back what deletions have freed, at most `pages` pages of it.
    async fn shrink(&self, pages: u32) -> Result<(), StoreError>;
}

/// Sees to it that what is too old by the settings goes.
#[async_trait]
pub trait Janitor: Send + Sync {
    /// Deletes it now; with `dry_run`, says what would be deleted and changes nothing.
    async fn tidy(&self, dry_run: bool) -> Result<Removed, StoreError>;
}

/// Longest query of a search, in bytes.
pub const QUERY_MAX_BYTES: usize = 1000;

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    /// Words, as a person types them; nothing in it has a meaning of its own.
    pub words: String,
    /// In this session only.
    pub session: Option<SessionKey>,
    /// At most so many; 0 means 20.
    pub limit: u32,
}

impl SearchQuery {
    /// The words, in lower case and without what is between them.
    pub fn terms(&self) -> Vec<String> {
        self.words.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect()
    }
}

/// A message that was looked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Its session.
    pub session: SessionKey,
    /// Its conversation.
    pub thread: ThreadId,
    /// Its position in it.
    pub id: u64,
    /// `user` or `assistant`.
    pub role: String,
    /// The words around the first hit, with `…` where something was left out.
    pub snippet: String,
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// When it was stored.
    pub at: UnixMillis,
}

/// A conversation in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadSummary {
    /// Its id.
    pub thread: ThreadId,
    /// Its state.
    pub state: ThreadState,
    /// Whether it is the one that goes on.
    pub active: bool,
    /// When it was last used.
    pub last_active_at: UnixMillis,
    /// The account of its older messages, where they were compacted.
    pub summary: Option<String>,
}

/// A message in a conversation as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptLine {
    /// Its position; what `after` takes.
    pub id: u64,
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// When it was stored.
    pub at: UnixMillis,
    /// What was said.
    pub message: Arc<Message>,
}

/// From when on things are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Conversations that were used last before this go, with their runs, and principals that were seen last before this; `None`:
    /// none do.
    pub threads_before: Option<UnixMillis>,
    /// Facts that happened before this go; `None`: none do but those of deleted runs.
    pub events_before: Option<UnixMillis>,
    /// Routine runs of routines that ended before this go, with their sessions; `None`: they go as conversations do.
    pub ended_routine_runs_before: Option<UnixMillis>,
    /// Ephemeral sessions that were used last before this go; `None`: they go as conversations do.
    pub ephemeral_before: Option<UnixMillis>,
    /// What recognises a second delivery of a message from before this may go.
    pub keys_before: UnixMillis,
}

impl Retention {
    /// From when on routine runs of routines are kept that have ended. Of those that are set off by a delivery or an event the row is
    /// what recognises a second one, so that they stay for as long as [`Retention::keys_before`] says besides; a scheduled time
    /// is recognised by its routine.
    pub fn routine_runs_before(&self) -> Option<UnixMillis> {
        self.ended_routine_runs_before.or(self.threads_before)
    }
}

/// What was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Sessions of which nothing is left but notes and secrets, or, where the session was deleted or ephemeral, nothing.
    pub sessions: u64,
    /// Conversations.
    pub threads: u64,
    /// Messages.
    pub messages: u64,
    /// Runs, those included of which only what recognises a second delivery is left.
    pub runs: u64,
    /// Facts.
    pub events: u64,
    /// Replies that were delivered, or given up.
    pub replies: u64,
    /// Notes.
    pub notes: u64,
    /// Secrets.
    pub secrets: u64,
    /// Jobs that were over.
    pub jobs: u64,
    /// Routine runs of routines that had ended, and times that were missed.
    pub routine_runs: u64,
    /// Whose outputs nobody can ask for any more.
    #[serde(skip)]
    pub run_ids: Vec<RunId>,
}

impl Removed {
    /// Whether nothing was.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what another deletion removed.
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
