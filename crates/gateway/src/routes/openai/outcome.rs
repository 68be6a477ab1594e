//! The end of an answer, in the terms that all faces of this API share: calls of the client's tools, a text, or an error.

use std::sync::Arc;

use belay_protocol::{ApprovalId, ApprovalRequest, ApprovalState, RunId, RunRecord, RunStatus, RunWatch, UsedTokens};
use serde_json::Value;

use super::answer::{Head, finish_reason, sent_files};
use super::error::OpenAiError;
use super::paused::ApprovalAnswer;
use super::tool_calls::ToolCallBody;
use super::used::{used_by, used_since};
use crate::app::App;
use crate::error::ApiError;

/// A run that has ended or waits, and what its client reads.
pub(super) struct Outcome {
    pub(super) run: Arc<RunRecord>,
    pub(super) end: End,
    /// The tokens of this answer.
    pub(super) used: UsedTokens,
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
        Self { used: used_since(head.used, used_by(&run.usage)), run, end }
    }

    /// Whether the answer has ended: the run has, or it waits for somebody.
    pub(super) fn is_over(&self) -> bool {
        match &self.end {
            End::Calls(_) | End::Text { .. } => true,
            End::Error(_) => self.run.status.is_end(),
        }
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

/// The run of a request that has its answer, as running: its record says for a moment that it waits for that.
pub(super) fn going_on(run: Arc<RunRecord>, requests: &[ApprovalRequest]) -> Arc<RunRecord> {
    let is_answered = |asked: ApprovalId| {
        requests.iter().any(|request| request.id == asked && request.state != ApprovalState::Waiting)
    };
    match &run.waiting_for {
        Some(waits) if is_answered(waits.approval) => {
            let (status, waiting_for, reply) = (RunStatus::Running, None, None);
            Arc::new(RunRecord { status, waiting_for, reply, ..RunRecord::clone(&run) })
        }
        _ => run,
    }
}
