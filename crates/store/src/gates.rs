//! What the store says and refuses about questions to people.

use belay_protocol::{
    EventKind, Gate, GateFilter, GateId, GateKind, GateState, Lease, NewEvent, PausedRun, RunId, SessionKey,
    StoreError, UnixMillis,
};

use crate::limits::PAGE_MAX;

/// Rows of a list of questions when the filter says 0.
const GATES_DEFAULT: u32 = 50;

/// Who is named when a question is withdrawn: nobody has answered it.
const WITHDRAWN_BY: &str = "the end of its run";

/// How many questions a filter asks for.
pub(crate) fn gates_limit(filter: &GateFilter) -> u32 {
    if filter.limit == 0 { GATES_DEFAULT } else { filter.limit.min(PAGE_MAX) }
}

/// Refuses a pause whose question is not that of the run, or is answered already: an answer would then let something
/// else go on than what was asked about.
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

/// Refuses a state that is no answer.
pub(crate) fn check_answer(state: GateState) -> Result<(), StoreError> {
    match state {
        GateState::Approved | GateState::Denied | GateState::Expired => Ok(()),
        GateState::Waiting | GateState::Used | GateState::Withdrawn => {
            let word = state.word();
            Err(StoreError::Unavailable(format!("{word:?} is no answer: approved, denied and expired are")))
        }
    }
}

/// An approval that does not allow what is about to begin.
pub(crate) fn not_approved(id: GateId) -> StoreError {
    StoreError::NotFound(format!("approval {id}: it is not this run's, was not given, or is used up"))
}

/// The fact that a question is asked.
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

/// The fact that a question is answered.
pub(crate) fn decided(gate: &Gate, by: &str, at: UnixMillis) -> NewEvent {
    let kind = EventKind::ApprovalResolved { approval: gate.id, state: gate.state.word().into(), actor: by.into() };
    NewEvent { at, session: Some(gate.session.clone()), run_id: Some(gate.run_id), kind }
}

/// The fact that a question is asked no longer, or that an approval came to nothing.
pub(crate) fn withdrawn(gate: GateId, session: &SessionKey, run: RunId, at: UnixMillis) -> NewEvent {
    let kind = EventKind::ApprovalResolved {
        approval: gate,
        state: GateState::Withdrawn.word().into(),
        actor: WITHDRAWN_BY.into(),
    };
    NewEvent { at, session: Some(session.clone()), run_id: Some(run), kind }
}

/// What a question is for, in a word.
pub(crate) fn kind_word(kind: &GateKind) -> &'static str {
    match kind {
        GateKind::Approval => "approval",
        GateKind::Credential { .. } => "credential",
    }
}
