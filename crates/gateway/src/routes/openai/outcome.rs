//! The end of an answer, in the terms that all faces of this API share: calls of the client's tools, a text, or an error.

use std::sync::Arc;

use belay_protocol::{RunId, RunRecord, RunStatus, RunWatch};
use serde_json::Value;

use super::answer::{Head, finish_reason, sent_files};
use super::error::OpenAiError;
use super::paused::ApprovalAnswer;
use super::tool_calls::ToolCallBody;
use crate::app::App;
use crate::error::ApiError;

/// A run that has ended or waits, and what its client reads.
pub(super) struct Outcome {
    pub(super) run: Arc<RunRecord>,
    pub(super) end: End,
}

/// The end of an answer.
pub(super) enum End {
    /// The run waits for the results of these calls.
    Calls(Vec<ToolCallBody>),
    /// The reply, or the question that the run waits for.
    Text {
        text: String,
        finish: &'static str,
        /// The field `belay`.
        belay: Option<Value>,
    },
    /// The run has failed, or continues beyond the longest wait.
    Error(OpenAiError),
}

impl Outcome {
    /// Waits until the run has ended or waits for somebody.
    ///
    /// # Errors
    /// The store cannot be read, or has no such run.
    pub(super) async fn when_there(
        app: &App,
        head: &Head,
        run: RunId,
        watch: Option<RunWatch>,
    ) -> Result<Self, ApiError> {
        let run = app.wait_for_run(run, watch, app.config.max_wait()).await?;
        let run = run.ok_or_else(|| ApiError::no_answer("the run is not in the store"))?;
        Ok(Self::of(app, head, run).await)
    }

    /// The outcome of a run as it is.
    pub(super) async fn of(app: &App, head: &Head, run: Arc<RunRecord>) -> Self {
        let end = match ToolCallBody::of(&run) {
            Some(calls) => End::Calls(calls),
            None => match ApprovalAnswer::of(app, head, &run).await {
                Some(ApprovalAnswer { text, belay }) => End::Text { text, finish: "stop", belay: Some(belay) },
                None => End::of_ended(head, &run),
            },
        };
        Self { run, end }
    }

    /// The text that the answer ends with.
    pub(super) fn text(&self) -> &str {
        match &self.end {
            End::Calls(_) => self.run.reply.as_deref().unwrap_or_default(),
            End::Text { text, .. } => text,
            End::Error(_) => "",
        }
    }
}

impl End {
    fn of_ended(head: &Head, run: &RunRecord) -> Self {
        match finish_reason(run) {
            Some(finish) => Self::Text { text: head.form().content(run), finish, belay: sent_files(run) },
            None if run.status == RunStatus::Failed => Self::Error(OpenAiError::failed(run)),
            None => Self::Error(OpenAiError::still_running(&run.run_id.to_string())),
        }
    }
}
