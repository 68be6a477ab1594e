//! Mails that the server does not give. After a few failures a mail is passed over, so that the later ones are read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Failures after which a mail is passed over.
const FAILURES_MAX: u8 = 3;

/// Most mails whose failures are counted. The lowest UID is forgotten first: the position is behind it soonest.
const COUNTED_MAX: usize = 1000;

/// The failures of all connections since the start.
#[derive(Default)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Default)]
struct State {
    /// The UIDs belong to this `UIDVALIDITY`.
    validity: u32,
    counts: BTreeMap<u32, u8>,
    /// The last UID of a page that failed as a whole. Mails up to it are fetched one by one.
    single_to: u32,
}

impl Failures {
    /// Notes that the mails up to this one cannot be fetched together.
    pub(crate) fn note_page(&self, validity: u32, last: u32) {
        let mut state = self.state(validity);
        state.single_to = state.single_to.max(last);
    }

    /// Whether this mail is fetched alone.
    pub(crate) fn is_single(&self, validity: u32, uid: u32) -> bool {
        uid <= self.state(validity).single_to
    }

    /// Notes a failure; `true`: the mail is passed over from now on.
    pub(crate) fn note(&self, validity: u32, uid: u32) -> bool {
        let mut state = self.state(validity);
        let count = state.counts.entry(uid).or_default();
        *count = count.saturating_add(1);
        let is_last = *count >= FAILURES_MAX;
        if state.counts.len() > COUNTED_MAX {
            state.counts.pop_first();
        }
        is_last
    }

    /// Whether this mail is passed over.
    pub(crate) fn passes_over(&self, validity: u32, uid: u32) -> bool {
        self.state(validity).counts.get(&uid).is_some_and(|count| *count >= FAILURES_MAX)
    }

    /// The failures under this validity; those under another one are forgotten.
    fn state(&self, validity: u32) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.validity != validity {
            *state = State { validity, ..State::default() };
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_is_passed_over_after_a_few_failures() {
        let failures = Failures::default();
        failures.note_page(1, 9);
        assert!(failures.is_single(1, 9) && !failures.is_single(1, 10));
        assert_eq!([(); 3].map(|()| failures.note(1, 7)), [false, false, true]);
        assert!(failures.passes_over(1, 7) && !failures.passes_over(1, 8));
        for uid in 0..5000 {
            failures.note(1, uid);
        }
        assert_eq!(failures.state(1).counts.len(), COUNTED_MAX);
        assert!(!failures.is_single(2, 9), "other UIDs");
    }
}
