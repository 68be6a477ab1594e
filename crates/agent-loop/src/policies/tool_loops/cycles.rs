//! Finds exact cycles: the same one to five calls, repeated.

use std::collections::VecDeque;

use super::history::{Entry, HISTORY};
use super::words::Kind;

/// A selection of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// All calls.
    Whole,
    /// All calls except harmless ones, which may come between any others.
    Telling,
}

/// The newest calls, newest first.
pub(super) struct Newest {
    entries: [Entry; HISTORY],
    len: usize,
}

impl Newest {
    /// Takes the newest calls of this view, at most `count`.
    pub(super) fn of(history: &VecDeque<Entry>, view: View, count: usize) -> Self {
        let mut newest = Self { entries: [Entry::default(); HISTORY], len: 0 };
        let seen = history
            .iter()
            .rev()
            .filter(|entry| !entry.void && (view == View::Whole || !entry.kind.is_harmless()))
            .take(count.min(HISTORY));
        for entry in seen {
            newest.entries[newest.len] = *entry;
            newest.len += 1;
        }
        newest
    }

    fn entries(&self) -> &[Entry] {
        &self.entries[..self.len]
    }
}

/// Finds the shortest cycle of at most `longest` calls that was repeated `repeats` times up to the newest call. All
/// known results at one position of the cycle must be the same. Returns the calls of one cycle, newest first. Cycles
/// that wait for something are left to the rule for polling.
pub(super) fn cycle(newest: &Newest, repeats: usize, longest: usize) -> Option<&[Entry]> {
    let entries = newest.entries();
    (1..=longest)
        .filter(|period| entries.len() >= period * repeats)
        .find(|period| {
            let all = &entries[..period * repeats];
            all.iter().zip(&all[*period..]).all(|(newer, older)| newer.key == older.key)
                && (0..*period).all(|place| same_results(all.iter().skip(place).step_by(*period)))
                && !waits(all, *period)
        })
        .map(|period| &entries[..period])
}

fn same_results<'a>(calls: impl Iterator<Item = &'a Entry>) -> bool {
    let mut known = calls.map(|entry| entry.result).filter(|result| *result != 0);
    known.next().is_none_or(|first| known.all(|result| result == first))
}

/// Whether a cycle polls and changes nothing. Several different calls poll only if one of them lets time pass, if a
/// result says that something is in progress, or if time passes between the calls of each. A read among other calls is
/// not a poll.
fn waits(all: &[Entry], period: usize) -> bool {
    let cycle = &all[..period];
    let (asks, fully_tolerant) =
        (cycle.iter().any(|entry| entry.polls), cycle.iter().any(|entry| entry.fully_tolerant));
    let one = cycle.iter().all(|entry| entry.key == cycle[0].key);
    let waits = all.iter().any(|entry| entry.kind == Kind::Wait || entry.waits);
    let each = cycle.iter().all(|entry| entry.polls || entry.kind.is_harmless()) && (fully_tolerant || one);
    asks && (waits || each) && !cycle.iter().any(|entry| !entry.polls && matches!(entry.kind, Kind::Write | Kind::Run))
}
