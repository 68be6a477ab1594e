//! The forms of MCP servers that an earlier attempt of a run has left. A form belongs to one call: a call that goes on
//! asks it again, and every other form has ended.

use std::collections::HashSet;

use belay_agent_loop::{AdmittedCall, LoopContext, LoopError};
use belay_delegates::chat::ChatDelegate;
use belay_protocol::{ApprovalRequest, ApprovalState, CallId, Form, Outbound, StoreError};
use belay_run::approvals::shown_line;

use super::TurnJob;

/// Withdraws each open form whose call does not go on in this attempt, so that no answer is taken that no server gets.
/// Tells the person who was asked, also one whose answer came before the interruption and may not have reached the
/// server.
///
/// Called after the briefing, whose tools decide which calls go on.
///
/// # Errors
/// The store does not answer.
///
/// # Cancel safety
/// If the future is dropped, the next attempt ends the rest. A person may be told twice.
pub(super) async fn end_lost(delegate: &ChatDelegate, context: &LoopContext, job: &TurnJob) -> Result<(), LoopError> {
    // A turn that is stopped has no briefing, so its tools say nothing about its calls.
    if job.progress.attempt < 2 || job.run.control.cancel.is_cancelled() {
        return Ok(());
    }
    let wait = delegate.core.journal.wait();
    let stored = wait.until_stored(|| job.services.store.approvals.approvals_of(job.run.id)).await?;
    let forms: Vec<_> = stored.into_iter().filter(|asked| asked.kind.form().is_some()).collect();
    if forms.is_empty() {
        return Ok(());
    }
    let calls = delegate.open_calls(context, delegate.reasoning.tools());
    let (go_on, lost): (Vec<_>, Vec<_>) = calls.into_iter().partition(|admitted| admitted.refused.is_none());
    let ids = |calls: Vec<AdmittedCall>| calls.into_iter().map(|admitted| admitted.call.id).collect();
    let (go_on, mut untold): (HashSet<CallId>, HashSet<CallId>) = (ids(go_on), ids(lost));
    // An open form is the last one of its call.
    for asked in forms.iter().rev().filter(|asked| !go_on.contains(&asked.call_id)) {
        let is_open = match asked.state {
            ApprovalState::Waiting => true,
            ApprovalState::Used => false,
            _ => continue,
        };
        // Before the withdrawal, after which no attempt would find the form open.
        if untold.remove(&asked.call_id) || is_open {
            wait.until_stored(|| tell(asked, is_open, job)).await?;
        }
        // An answer that has come since the forms were read counts as one before.
        if is_open && !wait.until_stored(|| withdraw(asked, job)).await? {
            wait.until_stored(|| tell(asked, false, job)).await?;
        }
    }
    Ok(())
}

/// Withdraws a form. Returns whether it was open.
async fn withdraw(asked: &ApprovalRequest, job: &TurnJob) -> Result<bool, StoreError> {
    job.services.store.child_questions.withdraw(asked.id, job.services.clock.now()).await
}

/// Tells the person who was asked that the call has ended.
async fn tell(asked: &ApprovalRequest, was_open: bool, job: &TurnJob) -> Result<(), StoreError> {
    let route = asked.present_place().and_then(|place| place.route.clone());
    let (Some(route), Some(form)) = (route, asked.kind.form()) else { return Ok(()) };
    tracing::info!(run = %asked.run_id, approval = %asked.id, was_open, "the call of a form does not go on");
    job.services.store.outbox.enqueue(Outbound::new(Some(asked.run_id), route, line_of(form, was_open))).await
}

fn line_of(form: &Form, was_open: bool) -> String {
    let server = shown_line(&form.server);
    match was_open {
        true => format!(
            "The question of the MCP server {server} has ended without an answer: Belay was interrupted, and the call that \
             asked cannot go on. The server got nothing, and whether the call had an effect is unknown."
        ),
        false => format!(
            "Belay was interrupted during a call of the MCP server {server}, for which you had answered a question. The call \
             cannot go on, and whether your answer has reached the server is unknown."
        ),
    }
}
