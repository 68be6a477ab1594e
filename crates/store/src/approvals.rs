//! Approval requests: the rules that the store enforces, its errors and its events.

use belay_protocol::{
    ApprovalFilter, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, EventKind, Lease, NewEvent, PausedRun,
    RunId, SessionKey, StoreError, UnixMillis,
};

use crate::limits::PAGE_MAX;

/// The rows of a list of approval requests if the filter has the limit 0.
const APPROVALS_DEFAULT: u32 = 50;

/// The actor of a withdrawal, which no person has decided.
const WITHDRAWN_BY: &str = "the end of its run";

/// The number of rows that a filter allows.
pub(crate) fn approvals_limit(filter: &ApprovalFilter) -> u32 {
    if filter.limit == 0 { APPROVALS_DEFAULT } else { filter.limit.min(PAGE_MAX) }
}

/// Refuses a pause whose approval request belongs to another run or is already answered. Its answer would resume
/// something that nobody was asked about.
pub(crate) fn check_question(lease: &Lease, paused: &PausedRun) -> Result<(), StoreError> {
    let approval = &paused.approval;
    if approval.run_id != paused.checkpoint.run || approval.session != lease.session {
        return Err(StoreError::Unavailable(format!(
            "question {} is about another run than the one it pauses",
            approval.id
        )));
    }
    if approval.state != ApprovalState::Waiting || approval.decided_by.is_some() || approval.decided_at.is_some() {
        return Err(StoreError::Unavailable(format!("question {} is answered before it is asked", approval.id)));
    }
    Ok(())
}

/// Refuses a state that is not an answer.
pub(crate) fn check_answer(state: ApprovalState) -> Result<(), StoreError> {
    match state {
        ApprovalState::Approved | ApprovalState::Denied | ApprovalState::Expired => Ok(()),
        ApprovalState::Waiting | ApprovalState::Used | ApprovalState::Withdrawn => {
            let word = state.word();
            Err(StoreError::Unavailable(format!("{word:?} is no answer: approved, denied and expired are")))
        }
    }
}

/// The error for an approval that does not allow the call that is about to start.
pub(crate) fn not_approved(id: ApprovalId) -> StoreError {
    StoreError::NotFound(format!("approval {id}: it is not this run's, was not given, or is used up"))
}

/// The event of a new approval request.
pub(crate) fn asked(approval: &ApprovalRequest) -> NewEvent {
    let kind = EventKind::ApprovalRequested {
        approval: approval.id,
        call_id: approval.call_id.clone(),
        name: approval.tool.clone(),
        kind: kind_word(&approval.kind).into(),
        summary: approval.summary.clone(),
        detail: approval.detail.clone(),
    };
    NewEvent { at: approval.asked_at, session: Some(approval.session.clone()), run_id: Some(approval.run_id), kind }
}

/// The event of an answer.
pub(crate) fn decided(approval: &ApprovalRequest, by: &str, at: UnixMillis) -> NewEvent {
    let kind =
        EventKind::ApprovalResolved { approval: approval.id, state: approval.state.word().into(), actor: by.into() };
    NewEvent { at, session: Some(approval.session.clone()), run_id: Some(approval.run_id), kind }
}

/// The event of a withdrawal: the run has ended before an answer, or before it has used the approval.
pub(crate) fn withdrawn(approval: ApprovalId, session: &SessionKey, run: RunId, at: UnixMillis) -> NewEvent {
    let kind = EventKind::ApprovalResolved {
        approval,
        state: ApprovalState::Withdrawn.word().into(),
        actor: WITHDRAWN_BY.into(),
    };
    NewEvent { at, session: Some(session.clone()), run_id: Some(run), kind }
}

/// The name of the kind of an approval request.
pub(crate) fn kind_word(kind: &ApprovalKind) -> &'static str {
    match kind {
        ApprovalKind::Approval => "approval",
        ApprovalKind::Credential { .. } => "credential",
    }
}
