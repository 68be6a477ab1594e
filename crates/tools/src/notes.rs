//! `remember` and `recall`: notes of a session.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Clock, Effect, Note, NoteStore, StoreError, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arguments;

/// Longest key, in bytes.
const MAX_KEY_BYTES: usize = 128;
/// Longest note, in bytes. 16 KiB: several of them fit into one result.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// Longest query, in bytes.
const MAX_QUERY_BYTES: usize = 1024;
/// Most notes in one result.
const MAX_NOTES: u32 = 20;
/// Most bytes of notes in one result; below [`belay_protocol::tool::MAX_OUTPUT_BYTES`].
const MAX_NOTES_BYTES: usize = 60 * 1024;
/// Longest time for one call. The store commits in milliseconds unless the disk has a problem.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RememberArguments {
    /// A short name for the note, such as `birthday`. A note under the same key is replaced.
    #[schemars(length(min = 1, max = 128))]
    key: String,
    /// What to remember, at most 16 KiB.
    #[schemars(length(min = 1))]
    text: String,
}

/// The tool `remember`.
pub(crate) struct Remember {
    spec: ToolSpec,
    notes: Arc<dyn NoteStore>,
    clock: Arc<dyn Clock>,
}

impl Remember {
    pub(crate) fn new(notes: Arc<dyn NoteStore>, clock: Arc<dyn Clock>) -> Self {
        let description = "Saves a note for this session under a key. It outlives the conversation. A note that is \
            already stored under that key is replaced.";
        let spec = arguments::spec::<RememberArguments>("remember", description, Effect::Write, TIMEOUT);
        let spec = ToolSpec { kind: Some(ToolKind::Note), ..spec };
        Self { spec, notes, clock }
    }
}

#[async_trait]
impl Tool for Remember {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// A write that has begun is awaited even if the call is cancelled, so that the result says what happened.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let RememberArguments { key, text } = arguments::read(arguments)?;
        let key = key.trim();
        check(key, &text).map_err(ToolFailure::failed)?;
        if context.cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        match self.notes.remember(&context.session, key, &text, self.clock.now()).await {
            Ok(()) => Ok(format!("Remembered {key:?} ({} bytes).", text.len()).into()),
            Err(error) => Err(unavailable(&error, "The note was not saved")),
        }
    }
}

fn check(key: &str, text: &str) -> Result<(), String> {
    if key.is_empty() || text.trim().is_empty() {
        return Err("A note needs a key and a text that are not empty.".to_owned());
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(format!("The key has {} bytes; at most {MAX_KEY_BYTES} are allowed.", key.len()));
    }
    if key.chars().any(char::is_control) {
        return Err("The key has control characters or line breaks; use plain words.".to_owned());
    }
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("The text has {} bytes; at most {MAX_TEXT_BYTES} are kept in one note.", text.len()));
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecallArguments {
    /// Words to look for in keys and texts; any of them is enough. Empty: all notes.
    query: String,
}

/// The tool `recall`.
pub(crate) struct Recall {
    spec: ToolSpec,
    notes: Arc<dyn NoteStore>,
}

impl Recall {
    pub(crate) fn new(notes: Arc<dyn NoteStore>) -> Self {
        let description = "Looks up notes that were kept for this session with remember.";
        let spec = arguments::spec::<RecallArguments>("recall", description, Effect::Read, TIMEOUT);
        // A note may contain untrusted content of an earlier conversation.
        Self { spec: ToolSpec { untrusted: true, ..spec }, notes }
    }
}

#[async_trait]
impl Tool for Recall {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let RecallArguments { query } = arguments::read(arguments)?;
        if query.len() > MAX_QUERY_BYTES {
            return Err(ToolFailure::failed(format!("The query is longer than {MAX_QUERY_BYTES} bytes.")));
        }
        let query = query.trim();
        let found = tokio::select! {
            () = context.cancel.cancelled() => return Err(ToolFailure::Cancelled),
            found = self.notes.recall(&context.session, query, MAX_NOTES) => found,
        };
        match found {
            Ok(notes) => Ok(show(query, &notes).into()),
            Err(error) => Err(unavailable(&error, "The notes could not be read")),
        }
    }
}

fn show(query: &str, notes: &[Note]) -> String {
    match (notes, query) {
        ([], "") => return "There are no notes yet.".to_owned(),
        ([], _) => return format!("No note has anything about {query:?}."),
        _ => {}
    }
    let mut result = String::new();
    for (at, note) in notes.iter().enumerate() {
        let date = note.at.to_rfc3339();
        let day = date.split('T').next().unwrap_or(&date);
        if at > 0 && result.len() + note.text.len() > MAX_NOTES_BYTES {
            // Writing to a String cannot fail.
            let _ = write!(result, "[{} more; ask with fewer words]", notes.len() - at);
            return result;
        }
        let _ = writeln!(result, "{} ({day}): {}", note.key, note.text);
    }
    result.truncate(result.trim_end().len());
    if notes.len() >= MAX_NOTES as usize {
        let _ = write!(result, "\n[there may be more; ask for something narrower]");
    }
    result
}

/// The failure for the model. The cause is only logged.
fn unavailable(error: &StoreError, what: &str) -> ToolFailure {
    tracing::warn!(%error, "notes unavailable");
    ToolFailure::failed(format!("{what}: the store is not available just now."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use belay_protocol::UnixMillis;
    use serde_json::json;

    use super::*;
    use crate::testing::{FixedClock, MemoryNotes, call, context, failure};

    fn tools(store: MemoryNotes) -> (Remember, Recall) {
        let store = Arc::new(store);
        (Remember::new(store.clone(), Arc::new(FixedClock(1_795_203_780_123))), Recall::new(store))
    }

    #[tokio::test]
    async fn notes_are_only_recalled_in_their_own_session() {
        let (remember, recall) = tools(MemoryNotes::default());
        let kept = call(&remember, json!({"key": " cat ", "text": "black, called Tom"})).await;
        assert_eq!(kept, Ok("Remembered \"cat\" (17 bytes).".to_owned()));
        for query in ["cat", "TOM", "dog or tom", ""] {
            let found = call(&recall, json!({ "query": query })).await;
            assert_eq!(found, Ok("cat (2026-11-20): black, called Tom".to_owned()), "{query}");
        }
        let elsewhere = recall.call(json!({"query": "cat"}).as_object().unwrap(), &context("other")).await;
        assert_eq!(elsewhere, Ok("No note has anything about \"cat\".".into()));
    }

    #[tokio::test]
    async fn remembering_twice_is_the_same_as_once_and_replaces() {
        let (remember, recall) = tools(MemoryNotes::default());
        for text in ["one", "one", "two"] {
            call(&remember, json!({"key": "k", "text": text})).await.unwrap();
        }
        assert_eq!(call(&recall, json!({"query": "k"})).await, Ok("k (2026-11-20): two".to_owned()));
    }

    #[tokio::test]
    async fn an_empty_result_is_reported() {
        let (_, recall) = tools(MemoryNotes::default());
        assert_eq!(call(&recall, json!({"query": ""})).await, Ok("There are no notes yet.".to_owned()));
    }

    #[tokio::test]
    async fn notes_are_bounded_and_named_plainly() {
        let (remember, recall) = tools(MemoryNotes::default());
        for (key, text, expected_text) in [
            ("", "x", "empty"),
            ("  ", "x", "empty"),
            ("k", " ", "empty"),
            ("a\nb", "x", "control"),
            (&"k".repeat(129), "x", "128"),
            ("k", &"x".repeat(16 * 1024 + 1), "16384"),
        ] {
            let text = failure(call(&remember, json!({"key": key, "text": text})).await);
            assert!(text.contains(expected_text), "{text}");
        }
        call(&remember, json!({"key": "k".repeat(128), "text": "x".repeat(16 * 1024)})).await.unwrap();
        assert!(failure(call(&recall, json!({"query": "x".repeat(1025)})).await).contains("1024"));
    }

    #[tokio::test]
    async fn many_long_notes_fit_one_result() {
        let note = |n: usize| Note { key: n.to_string(), text: "x".repeat(16 * 1024), at: UnixMillis(0) };
        let text = show("x", &(0..20).map(note).collect::<Vec<_>>());
        assert!(
            text.len() < belay_protocol::tool::MAX_OUTPUT_BYTES && text.ends_with("[17 more; ask with fewer words]")
        );
    }

    #[tokio::test]
    async fn a_store_error_is_a_failure_without_its_cause() {
        let (remember, recall) = tools(MemoryNotes { broken: true, ..MemoryNotes::default() });
        for output in
            [call(&remember, json!({"key": "k", "text": "x"})).await, call(&recall, json!({"query": "k"})).await]
        {
            let text = failure(output);
            assert!(text.contains("not available") && !text.contains("secret"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_cancelled_call_keeps_nothing() {
        let (remember, recall) = tools(MemoryNotes::default());
        let cancelled = context("s");
        cancelled.cancel.cancel();
        let arguments = json!({"key": "k", "text": "x"});
        assert_eq!(remember.call(arguments.as_object().unwrap(), &cancelled).await, Err(ToolFailure::Cancelled));
        assert_eq!(call(&recall, json!({"query": ""})).await, Ok("There are no notes yet.".to_owned()));
    }
}
