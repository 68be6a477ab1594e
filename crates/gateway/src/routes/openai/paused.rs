//! The answer of a run that waits for approval: the approval request instead of a reply.
//!
//! A client that does not know Belay shows it to its person like any other answer. It sends the person's text as the
//! next message, which the agent takes as the answer. A client without a session sends the question again with it, see
//! `resent`.

use belay_protocol::{RunRecord, RunStatus};
use serde_json::{Value, json};

use super::answer::Head;
use crate::app::App;
use crate::routes::approvals::Approval;

/// An approval request as an answer.
pub(crate) struct ApprovalAnswer {
    /// The text for the person, in Markdown.
    pub(crate) text: String,
    /// The data for a program: the field `belay` of the answer.
    pub(crate) belay: Value,
}

impl ApprovalAnswer {
    /// The approval request that a run waits for; `None`: it waits for none.
    pub(crate) async fn of(app: &App, head: &Head, run: &RunRecord) -> Option<Self> {
        let question = run.waiting_for.as_ref().filter(|_| run.status == RunStatus::Paused)?;
        let (mut text, approval) = match app.approvals.approval(question.approval).await {
            Ok(Some(request)) => {
                let now = app.clock.now();
                let approval = serde_json::to_value(Approval::at(&request, now)).unwrap_or_default();
                ((app.texts.question)(&request, now), approval)
            }
            // The run's own data is enough to answer the request by its id.
            _ => (question.summary.clone(), serde_json::to_value(question).unwrap_or_default()),
        };
        // Without a session, a history that is sent again names the question by its id.
        let id = question.approval.to_string();
        if head.is_nameless() && !text.contains(&id) {
            text.push_str(&format!("\n\n(/approve {id}, /deny {id})"));
        }
        let belay = json!({"run_id": run.run_id, "status": run.status, "approval": approval});
        Some(Self { text, belay })
    }
}
