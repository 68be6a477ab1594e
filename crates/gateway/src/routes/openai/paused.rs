//! The answer of a run that rests on a question: the question itself, in the place of a reply.
//!
//! A client that knows nothing of Belay shows it to its person like any other answer, and sends what the person writes to
//! it as the next message, which the agent takes as the answer.

use belay_protocol::{RunRecord, RunStatus};
use serde_json::{Value, json};

use super::answer::Head;
use crate::app::App;
use crate::routes::approvals::Approval;

/// A question as an answer.
pub(crate) struct Asked {
    /// What the person reads, in Markdown.
    pub(crate) text: String,
    /// What a program reads: the field `belay` of the answer.
    pub(crate) belay: Value,
}

impl Asked {
    /// The question that a run rests on; `None`: it does not rest on one.
    pub(crate) async fn of(app: &App, head: &Head, run: &RunRecord) -> Option<Self> {
        let question = run.waiting_for.as_ref().filter(|_| run.status == RunStatus::Paused)?;
        let (mut text, approval) = match app.gates.gate(question.approval).await {
            Ok(Some(gate)) => {
                let now = app.clock.now();
                let approval = serde_json::to_value(Approval::at(&gate, now)).unwrap_or_default();
                ((app.question)(&gate, now), approval)
            }
            // What the run says of it is enough to answer it by its id.
            _ => (question.summary.clone(), serde_json::to_value(question).unwrap_or_default()),
        };
        if let Some(session) = head.nameless_session() {
            text.push_str(&format!(
                "\n\n(This request named no session, so that a bare answer would reach another one. Send `/approve {gate}` or \
                 `/deny {gate}`, or send the header `X-Belay-Session: {session}` with your answer.)",
                gate = question.approval
            ));
        }
        let belay = json!({"run_id": run.run_id, "status": run.status, "approval": approval});
        Some(Self { text, belay })
    }
}
