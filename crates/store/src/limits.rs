//! Limits of the store, and events of threads.

use belay_protocol::{EventKind, EventQuery, NewEvent, RunFilter, SearchQuery, SessionKey, ThreadEdit, UnixMillis};
use uuid::Uuid;

/// The number of turns that can be undone in a row.
pub(crate) const UNDO_DEPTH: u32 = 20;

/// The maximum number of rows of one read, whatever the limit of the caller: a page is held in memory as a whole.
pub(crate) const PAGE_MAX: u32 = 1000;

/// The rows of a list of runs if the filter has the limit 0.
const RUNS_DEFAULT: u32 = 50;

/// The rows of a read of events if the query has the limit 0.
const EVENTS_DEFAULT: u32 = 256;

/// The hits of a search if the query has the limit 0.
const HITS_DEFAULT: u32 = 20;

/// The maximum amount of one reservation, in millionths of a US dollar: a thousand million dollars. It keeps the sums
/// of any number of calls far from overflow.
pub(crate) const AMOUNT_MAX_MICRO_USD: u64 = 1_000_000_000_000_000;

/// The maximum number of tokens that one call adds to a sum: a thousand million. It keeps the sums from overflow.
pub(crate) const TOKENS_MAX: u64 = 1_000_000_000;

/// The number of newest runs that a query of costs reads for the usage of models that cost nothing. 100,000: some
/// hundred milliseconds of a reader.
pub(crate) const FREE_RUNS: u32 = 100_000;

/// The number of newest runs that a query of presence reads, however old `since` is. There is no index by conversation,
/// so each heartbeat of a silent conversation reads all of them.
pub(crate) const PRESENCE_RUNS: u32 = 100_000;

/// The number of rows that a filter allows.
pub(crate) fn runs_limit(filter: &RunFilter) -> u32 {
    if filter.limit == 0 { RUNS_DEFAULT } else { filter.limit.min(PAGE_MAX) }
}

/// The number of rows that a query allows.
pub(crate) fn events_limit(query: &EventQuery) -> u32 {
    if query.limit == 0 { EVENTS_DEFAULT } else { query.limit.min(PAGE_MAX) }
}

/// The number of hits that a search allows.
pub(crate) fn search_limit(query: &SearchQuery) -> u32 {
    if query.limit == 0 { HITS_DEFAULT } else { query.limit.min(PAGE_MAX) }
}

/// A bound that is greater than every id from before the date: ids are UUIDs of version 7, which begin with the date
/// (RFC 9562, 5.7).
pub(crate) fn id_before(date: UnixMillis) -> Uuid {
    let ms = u128::try_from(date.0).unwrap_or(0) & 0xffff_ffff_ffff;
    Uuid::from_u128(ms << 80)
}

/// The event of a deleted session.
pub(crate) fn deleted(session: &SessionKey, at: UnixMillis) -> NewEvent {
    let kind = EventKind::ThreadEdited { edit: "deleted".into() };
    NewEvent { at, session: Some(session.clone()), run_id: None, kind }
}

/// The event of an edited thread.
pub(crate) fn edited(session: &SessionKey, edit: ThreadEdit, at: UnixMillis) -> NewEvent {
    let edit = match edit {
        ThreadEdit::Undo => "undo",
        ThreadEdit::Redo => "redo",
        ThreadEdit::Clear => "clear",
        ThreadEdit::New => "new",
        ThreadEdit::Resume(_) => "resume",
        ThreadEdit::Fork => "fork",
    };
    NewEvent { at, session: Some(session.clone()), run_id: None, kind: EventKind::ThreadEdited { edit: edit.into() } }
}
