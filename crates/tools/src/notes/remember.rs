//! `remember`.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Clock, Effect, NewNote, NoteStore, Remembered, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{TIMEOUT, unavailable};
use crate::arguments;

/// Longest key, in bytes.
const MAX_KEY_BYTES: usize = 128;
/// Longest note, in bytes. 16 KiB: several of them fit into one result.
pub(super) const MAX_TEXT_BYTES: usize = 16 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RememberArguments {
    /// Such as `birthday`. Replaces the note with this key.
    #[schemars(length(min = 1, max = 128))]
    key: Option<String>,
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
        let description = "Saves a note about the user or the group for later conversations.";
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
        let key = key.map(|key| key.trim().to_owned());
        check(key.as_deref(), &text).map_err(ToolFailure::failed)?;
        if context.cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        let bytes = text.len();
        let named = key.as_ref().map(|key| format!(" {key:?}")).unwrap_or_default();
        let note = NewNote {
            owner: context.memory.clone(),
            key,
            text,
            at: self.clock.now(),
            session: context.session.clone(),
            untrusted: context.untrusted,
        };
        match self.notes.remember(note).await {
            Ok(Remembered::Stored(id)) => Ok(format!("Remembered{named} as note {id} ({bytes} bytes).").into()),
            Ok(Remembered::Protected(id)) => Err(ToolFailure::failed(format!(
                "Not saved: note {id} has this key and was written without untrusted content, and this conversation \
                 has read untrusted content. Use another key."
            ))),
            Err(error) => Err(unavailable(&error, "The note was not saved")),
        }
    }
}

fn check(key: Option<&str>, text: &str) -> Result<(), String> {
    if key == Some("") || text.trim().is_empty() {
        return Err("A note needs a text that is not empty, and a key is not empty either.".to_owned());
    }
    let key = key.unwrap_or_default();
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
