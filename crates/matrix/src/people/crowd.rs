//! Which rooms have more than one person beside Belay.

use super::MatrixPeople;

/// Rooms whose number of people is remembered. Beyond that, all of them are asked for again.
const COUNTED_MAX: usize = 4096;

#[cfg_attr(not(any(test, feature = "client")), expect(dead_code, reason = "a build without the channel"))]
impl MatrixPeople {
    /// Whether a room that is not listed has more than one person beside Belay; `None`: it is not known.
    pub(crate) fn is_crowded(&self, room: &str) -> Option<bool> {
        self.state().crowded.get(room).copied()
    }

    /// The number of changes so far, for a count that begins now.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Notes that people may have come or gone. A count that has begun before is not noted any more.
    pub(crate) fn note_change(&self, room: &str) {
        let mut state = self.state();
        state.changes += 1;
        state.crowded.remove(room);
    }

    /// Notes a count. `changes`: their number at its beginning.
    pub(crate) fn note_crowded(&self, room: &str, is_crowded: bool, changes: u64) {
        let mut state = self.state();
        if state.changes != changes {
            return;
        }
        if state.crowded.len() >= COUNTED_MAX {
            state.crowded.clear();
        }
        state.crowded.insert(room.to_owned(), is_crowded);
    }
}
