//! Approval requests: the rules that the store enforces, its errors and its events.

use belay_protocol::{
    ApprovalFilter, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, EventKind, FirstYes, Lease, NewEvent,
    PausedRun, RunId, SessionKey, StoreError, UnixMillis,
};

use crate::limits::PAGE_MAX;

/// The rows of a list of approval requests if the filter has the limit 0.
const APPROVALS_DEFAULT: u32 = 50;

/// The actor of a withdrawal, which no person has decided.
pub(crate) const ENDED_RUN: &str = "the end of its run";
/// The same, while the run goes on.
pub(crate) const ENDED_CALL: &str = "the end of its call";

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

/// Refuses an approval request of a run that another run has started if it is not of this lane, is already answered, or
/// does not say that it is asked in place.
pub(crate) fn check_child_question(lease: &Lease, approval: &ApprovalRequest) -> Result<(), StoreError> {
    let waits = approval.state == ApprovalState::Waiting && approval.decided_by.is_none();
    if approval.session != lease.session || !waits || !approval.is_in_place() {
        return Err(StoreError::Unavailable(format!("question {} cannot be asked in place", approval.id)));
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

/// The events of a new approval request: of the run and, for autonomous work, of the conversation in which it asks. Calls
/// of a client ask no person: the events of the calls are those of the run.
pub(crate) fn asked(approval: &ApprovalRequest) -> Vec<NewEvent> {
    if approval.kind.is_of_client() {
        return Vec::new();
    }
    let kind = requested(approval);
    let event = |session: &SessionKey, run_id| NewEvent {
        at: approval.asked_at,
        session: Some(session.clone()),
        run_id,
        kind: kind.clone(),
    };
    let elsewhere = approval.place.as_ref().map(|place| event(&place.session, None));
    std::iter::once(event(&approval.session, Some(approval.run_id))).chain(elsewhere).collect()
}

/// The events of the first of two approvals: of the run, and the question in the conversation of the second person.
pub(crate) fn first_yes(approval: &ApprovalRequest, first: &FirstYes) -> Vec<NewEvent> {
    let kind = EventKind::ApprovalFirstYes { approval: approval.id, actor: first.by.clone() };
    let session = Some(approval.session.clone());
    let given = NewEvent { at: first.at, session, run_id: Some(approval.run_id), kind };
    let elsewhere = approval.present_place().map(|place| NewEvent {
        at: first.at,
        session: Some(place.session.clone()),
        run_id: None,
        kind: requested(approval),
    });
    std::iter::once(given).chain(elsewhere).collect()
}

fn requested(approval: &ApprovalRequest) -> EventKind {
    EventKind::ApprovalRequested {
        approval: approval.id,
        call_id: approval.call_id.clone(),
        name: approval.tool.clone(),
        kind: kind_word(&approval.kind).into(),
        summary: approval.summary.clone(),
        detail: approval.detail.clone(),
    }
}

/// The event of an answer.
pub(crate) fn decided(approval: &ApprovalRequest, by: &str, at: UnixMillis) -> NewEvent {
    let kind =
        EventKind::ApprovalResolved { approval: approval.id, state: approval.state.word().into(), actor: by.into() };
    NewEvent { at, session: Some(approval.session.clone()), run_id: Some(approval.run_id), kind }
}

/// The event of a withdrawal: the run, or the call of a run that it has started, has ended before an answer, or before it
/// has used the approval.
pub(crate) fn withdrawn(
    approval: ApprovalId,
    session: &SessionKey,
    run: RunId,
    actor: &str,
    at: UnixMillis,
) -> NewEvent {
    let kind =
        EventKind::ApprovalResolved { approval, state: ApprovalState::Withdrawn.word().into(), actor: actor.into() };
    NewEvent { at, session: Some(session.clone()), run_id: Some(run), kind }
}

/// The kind of a request that waits for results of a client.
pub(crate) const CLIENT_CALLS: &str = "client_calls";

/// The kind of a form that a person fills in.
pub(crate) const FORM: &str = "form";

/// The name of the kind of an approval request.
pub(crate) fn kind_word(kind: &ApprovalKind) -> &'static str {
    match kind {
        ApprovalKind::Approval => "approval",
        ApprovalKind::Credential { .. } => "credential",
        ApprovalKind::ClientCalls { .. } => CLIENT_CALLS,
        ApprovalKind::Form { .. } => FORM,
    }
}
