//! `recall`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Effect, Found, Note, NoteStore, SaidQuery, StoreError, Tool, ToolContext, ToolFailure, ToolOutput, ToolReply,
    ToolSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::meaning::{FoundBy, Meaning, Near, RECALL_LIMIT, merged};
use super::{TIMEOUT, unavailable};
use crate::arguments;

/// Longest query, in bytes.
const MAX_QUERY_BYTES: usize = 1000;
/// Most notes in one result.
const MAX_NOTES: u32 = 20;
/// Most messages in one result.
const MAX_MESSAGES: u32 = 20;
/// Most bytes of notes in one result; below [`belay_protocol::tool::MAX_OUTPUT_BYTES`].
const MAX_NOTES_BYTES: usize = 50 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecallArguments {
    /// Any of these words; empty for all notes.
    query: String,
    /// Searches them also if notes are found.
    #[serde(default)]
    conversations: bool,
}

/// The tool `recall`.
pub(crate) struct Recall {
    spec: ToolSpec,
    notes: Arc<dyn NoteStore>,
    meaning: Option<Meaning>,
}

/// The result of a search.
struct Recalled {
    notes: Vec<(Note, Option<FoundBy>)>,
    said: Vec<Found>,
    remark: Option<String>,
}

impl Recall {
    pub(crate) fn new(notes: Arc<dyn NoteStore>, meaning: Option<Meaning>) -> Self {
        let description = "Finds saved notes, and what was said in earlier conversations.";
        let limit = if meaning.is_some() { RECALL_LIMIT } else { TIMEOUT };
        let spec = arguments::spec::<RecallArguments>("recall", description, Effect::Read, limit);
        Self { spec, notes, meaning }
    }

    /// Searches notes, and earlier conversations if they are asked for or no note has the words.
    async fn search(&self, query: &str, conversations: bool, context: &ToolContext) -> Result<Recalled, StoreError> {
        let by_meaning = async {
            match self.meaning.as_ref().filter(|_| !query.is_empty()) {
                Some(meaning) => Some(meaning.search(&context.memory, query).await),
                None => None,
            }
        };
        let by_words = self.notes.recall(&context.memory, query, MAX_NOTES);
        let (words, near) = tokio::join!(by_words, by_meaning);
        let words = words?;
        let mut said = Vec::new();
        if conversations || words.is_empty() {
            let query = SaidQuery {
                owner: context.memory.clone(),
                words: query.to_owned(),
                except: context.run_id,
                limit: MAX_MESSAGES,
            };
            said = self.notes.said(query).await?;
        }
        let (notes, remark) = match near {
            None => (words.into_iter().map(|note| (note, None)).collect(), None),
            Some(Near { notes: near, remark }) => {
                let both = merged(words, near, MAX_NOTES as usize);
                (both.into_iter().map(|(note, by)| (note, Some(by))).collect(), remark)
            }
        };
        Ok(Recalled { notes, said, remark })
    }
}

#[async_trait]
impl Tool for Recall {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let RecallArguments { query, conversations } = arguments::read(arguments)?;
        if query.len() > MAX_QUERY_BYTES {
            return Err(ToolFailure::failed(format!("The query is longer than {MAX_QUERY_BYTES} bytes.")));
        }
        let query = query.trim();
        let found = tokio::select! {
            () = context.cancel.cancelled() => return Err(ToolFailure::Cancelled),
            found = self.search(query, conversations, context) => found,
        };
        match found {
            Ok(Recalled { notes, said, remark }) => {
                // The words of earlier conversations may be untrusted content, and so may a note from a run that had
                // read some.
                let untrusted = !said.is_empty() || notes.iter().any(|(note, _)| note.untrusted);
                let mut text = show(query, &notes, &said);
                text.extend(remark.iter().flat_map(|remark| ["\n", remark]));
                Ok(ToolReply { text, untrusted, ..ToolReply::default() })
            }
            Err(error) => Err(unavailable(&error, "The notes could not be read")),
        }
    }
}

/// The text of a result.
pub(super) fn show(query: &str, notes: &[(Note, Option<FoundBy>)], said: &[Found]) -> String {
    match (notes, said, query) {
        ([], [], "") => return "There are no notes yet.".to_owned(),
        ([], [], _) => return format!("No note and no earlier conversation has anything about {query:?}."),
        _ => {}
    }
    let mut result = String::new();
    for (at, (note, by)) in notes.iter().enumerate() {
        if at > 0 && result.len() + note.text.len() > MAX_NOTES_BYTES {
            // Writing to a String cannot fail.
            let _ = writeln!(result, "[{} more notes; ask with fewer words]", notes.len() - at);
            break;
        }
        let Note { id, key, text, at, session, untrusted, .. } = note;
        let key = key.as_ref().map(|key| format!(", {key}")).unwrap_or_default();
        let mark = if *untrusted { ", written under untrusted content" } else { "" };
        let by = by.map(|by| format!(", found by {}", by.word())).unwrap_or_default();
        let _ = writeln!(result, "note {id}{key} (of {}, from session {session}{mark}{by}): {text}", at.day());
    }
    if notes.len() >= MAX_NOTES as usize {
        let _ = writeln!(result, "[there may be more notes; ask for something narrower]");
    }
    // A copied conversation has the same messages.
    let mut known = HashSet::new();
    for found in said.iter().filter(|found| known.insert((&found.role, &found.snippet))) {
        let Found { role, at, session, snippet, .. } = found;
        let _ = writeln!(result, "said by the {role} on {}, in session {session}: {snippet}", at.day());
    }
    result.truncate(result.trim_end().len());
    result
}
