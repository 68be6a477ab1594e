//! Limits and small facts of the store.

use belay_protocol::{EventKind, EventQuery, NewEvent, RunFilter, SearchQuery, SessionKey, ThreadEdit, UnixMillis};
use uuid::Uuid;

/// Turns that can be undone in a row.
pub(crate) const UNDO_DEPTH: u32 = 20;

/// Most rows that one read returns, whatever was asked for: a page is held in memory as a whole.
pub(crate) const PAGE_MAX: u32 = 1000;

/// Rows of a list of runs when the filter says 0.
const RUNS_DEFAULT: u32 = 50;

/// Rows of a read of events when the query says 0.
const EVENTS_DEFAULT: u32 = 256;

/// Hits of a search when the query says 0.
const HITS_DEFAULT: u32 = 20;

/// Largest amount that one reservation counts for, in millionths of a US dollar: a thousand million dollars. Keeps the
/// sums of any number of calls far from overflow.
pub(crate) const AMOUNT_MAX_MICRO_USD: u64 = 1_000_000_000_000_000;

/// Newest runs among which whoever has spoken is looked for, however far back the date is: there is no index by place, and each
/// beat of a heart whose place is silent looks through all of them.
pub(crate) const PRESENCE_RUNS: u32 = 100_000;

/// How many runs a filter asks for.
pub(crate) fn runs_limit(filter: &RunFilter) -> u32 {
    if filter.limit == 0 { RUNS_DEFAULT } else { filter.limit.min(PAGE_MAX) }
}

/// How many events a query asks for.
pub(crate) fn events_limit(query: &EventQuery) -> u32 {
    if query.limit == 0 { EVENTS_DEFAULT } else { query.limit.min(PAGE_MAX) }
}

/// How many hits a search asks for.
pub(crate) fn search_limit(query: &SearchQuery) -> u32 {
    if query.limit == 0 { HITS_DEFAULT } else { query.limit.min(PAGE_MAX) }
}

/// What every id that was made before the date is smaller than: ids are UUIDs of version 7, which begin with the date
/// (RFC 9562, 5.7).
pub(crate) fn id_before(date: UnixMillis) -> Uuid {
    let ms = u128::try_from(date.0).unwrap_or(0) & 0xffff_ffff_ffff;
    Uuid::from_u128(ms << 80)
}

/// The fact that a session was deleted.
pub(crate) fn deleted(session: &SessionKey, at: UnixMillis) -> NewEvent {
    let kind = EventKind::ThreadEdited { edit: "deleted".into() };
    NewEvent { at, session: Some(session.clone()), run_id: None, kind }
}

/// The fact that a thread was edited.
pub(crate) fn edited(session: &SessionKey, edit: ThreadEdit, at: UnixMillis) -> NewEvent {
    let edit = match edit {
        ThreadEdit::Undo => "undo",
        ThreadEdit::Redo => "redo",
        ThreadEdit::Clear => "clear",
        ThreadEdit::New => "new",
    };
    NewEvent { at, session: Some(session.clone()), run_id: None, kind: EventKind::ThreadEdited { edit: edit.into() } }
}
