//! `forget`.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{Effect, Forgotten, NoteStore, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{TIMEOUT, unavailable};
use crate::arguments;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForgetArguments {
    /// Its number.
    id: u64,
}

/// The tool `forget`.
pub(crate) struct Forget {
    spec: ToolSpec,
    notes: Arc<dyn NoteStore>,
}

impl Forget {
    pub(crate) fn new(notes: Arc<dyn NoteStore>) -> Self {
        let description = "Deletes a saved note by its number.";
        let spec = arguments::spec::<ForgetArguments>("forget", description, Effect::Write, TIMEOUT);
        Self { spec: ToolSpec { kind: Some(ToolKind::Note), deferred: true, ..spec }, notes }
    }
}

#[async_trait]
impl Tool for Forget {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// A deletion that has begun is awaited even if the call is cancelled, so that the result says what happened.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let ForgetArguments { id } = arguments::read(arguments)?;
        if context.cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        match self.notes.forget_note(&context.memory, id, context.untrusted).await {
            Ok(Forgotten::Deleted) => Ok(format!("Note {id} is deleted.").into()),
            Ok(Forgotten::Missing) => {
                Err(ToolFailure::failed(format!("There is no note {id} here; recall shows the numbers.")))
            }
            Ok(Forgotten::Protected) => Err(ToolFailure::failed(format!(
                "Note {id} was written without untrusted content, and this conversation has read untrusted content, so \
                 it stays. The user can delete it with /forget {id}."
            ))),
            Err(error) => Err(unavailable(&error, "The note was not deleted")),
        }
    }
}
