//! Approval requests: the rules that the store enforces, its errors and its events.

use belay_protocol::{
    EventKind, Gate, GateFilter, GateId, GateKind, GateState, Lease, NewEvent, PausedRun, RunId, SessionKey,
    StoreError, UnixMillis,
};

use crate::limits::PAGE_MAX;

/// The rows of a list of approval requests if the filter has the limit 0.
const GATES_DEFAULT: u32 = 50;

/// The actor of a withdrawal, which no person has decided.
const WITHDRAWN_BY: &str = "the end of its run";

/// The number of rows that a filter allows.
pub(crate) fn gates_limit(filter: &GateFilter) -> u32 {
    if filter.limit == 0 { GATES_DEFAULT } else { filter.limit.min(PAGE_MAX) }
}

/// Refuses a pause whose approval request belongs to another run or is already answered. Its answer would resume
/// something that nobody was asked about.
pub(crate) fn check_question(lease: &Lease, paused: &PausedRun) -> Result<(), StoreError> {
    let gate = &paused.gate;
    if gate.run_id != paused.checkpoint.run || gate.session != lease.session {
        return Err(StoreError::Unavailable(format!(
            "question {} is about another run than the one it pauses",
            gate.id
        )));
    }
    if gate.state != GateState::Waiting || gate.decided_by.is_some() || gate.decided_at.is_some() {
        return Err(StoreError::Unavailable(format!("question {} is answered before it is asked", gate.id)));
    }
    Ok(())
}

/// Refuses a state that is not an answer.
pub(crate) fn check_answer(state: GateState) -> Result<(), StoreError> {
    match state {
        GateState::Approved | GateState::Denied | GateState::Expired => Ok(()),
        GateState::Waiting | GateState::Used | GateState::Withdrawn => {
            let word = state.word();
            Err(StoreError::Unavailable(format!("{word:?} is no answer: approved, denied and expired are")))
        }
    }
}

/// The error for an approval that does not allow the call that is about to start.
pub(crate) fn not_approved(id: GateId) -> StoreError {
    StoreError::NotFound(format!("approval {id}: it is not this run's, was not given, or is used up"))
}

/// The event of a new approval request.
pub(crate) fn asked(gate: &Gate) -> NewEvent {
    let kind = EventKind::ApprovalRequested {
        approval: gate.id,
        call_id: gate.call_id.clone(),
        name: gate.tool.clone(),
        kind: kind_word(&gate.kind).into(),
        summary: gate.summary.clone(),
        detail: gate.detail.clone(),
    };
    NewEvent { at: gate.asked_at, session: Some(gate.session.clone()), run_id: Some(gate.run_id), kind }
}

/// The event of an answer.
pub(crate) fn decided(gate: &Gate, by: &str, at: UnixMillis) -> NewEvent {
    let kind = EventKind::ApprovalResolved { approval: gate.id, state: gate.state.word().into(), actor: by.into() };
    NewEvent { at, session: Some(gate.session.clone()), run_id: Some(gate.run_id), kind }
}

/// The event of a withdrawal: the run has ended before an answer, or before it has used the approval.
pub(crate) fn withdrawn(gate: GateId, session: &SessionKey, run: RunId, at: UnixMillis) -> NewEvent {
    let kind = EventKind::ApprovalResolved {
        approval: gate,
        state: GateState::Withdrawn.word().into(),
        actor: WITHDRAWN_BY.into(),
    };
    NewEvent { at, session: Some(session.clone()), run_id: Some(run), kind }
}

/// The name of the kind of an approval request.
pub(crate) fn kind_word(kind: &GateKind) -> &'static str {
    match kind {
        GateKind::Approval => "approval",
        GateKind::Credential { .. } => "credential",
    }
}
