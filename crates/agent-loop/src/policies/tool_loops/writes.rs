//! Finds oscillating writes: a state is written, undone, and written again.

use std::collections::VecDeque;

use super::pack::{Bytes, Packed, Text};

/// Most locations whose writes are stored. Beyond that, the location that was written longest ago is dropped.
const PLACES: usize = 12;

/// States that are stored for each location. 6: an oscillation through more states is a plan.
const STATES: usize = 6;

/// The change that a call makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// The location: a path, a key, an id. 0: the call makes no change that could be undone.
    pub(super) place: u32,
    /// The state after the change, or the change itself.
    pub(super) state: u32,
    /// The opposite change. 0: the call does not say what was there before.
    pub(super) back: u32,
}

/// The writes to one location.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Writes {
    place: u32,
    returns: u8,
    /// Oldest first; 0 if there is none.
    states: [u32; STATES],
}

impl Packed for Writes {
    const SIZE: usize = 5 + 4 * STATES;

    fn put(&self, out: &mut Text) {
        self.place.put(out);
        out.push(self.returns);
        for state in &self.states {
            state.put(out);
        }
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        let (place, [returns]) = (bytes.u32(), bytes.next());
        Self { place, returns, states: std::array::from_fn(|_| bytes.u32()) }
    }
}

/// Records a successful write. Returns how often the location has returned to an earlier state.
pub(super) fn record(places: &mut VecDeque<Writes>, effect: Effect) -> u8 {
    if effect.place == 0 {
        return 0;
    }
    let mut writes = match places.iter().position(|known| known.place == effect.place) {
        Some(at) => places.remove(at).unwrap_or_default(),
        None => Writes { place: effect.place, ..Writes::default() },
    };
    let last = writes.states[STATES - 1];
    if last != effect.state {
        let sought = if effect.back == 0 { effect.state } else { effect.back };
        if writes.states.contains(&sought) {
            writes.returns = writes.returns.saturating_add(1);
        }
        writes.states.rotate_left(1);
        writes.states[STATES - 1] = effect.state;
    }
    let returns = writes.returns;
    places.push_back(writes);
    if places.len() > PLACES {
        places.pop_front();
    }
    returns
}

/// Resets the counts after news: undoing a change around real work is a normal way to try things out.
pub(super) fn reset_returns(places: &mut VecDeque<Writes>) {
    for writes in places {
        writes.returns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_to_an_earlier_state_are_counted() {
        // Each row: states of one location as digits, and the returns after the last.
        for (states, returns) in [
            ("1", 0),
            ("1111", 0),
            ("12", 0),
            ("121", 1),
            ("1211", 1),
            ("121212", 4),
            ("123123", 3),
            ("123456789", 0),
            ("12345671", 0), // 1 has been dropped
        ] {
            let mut places = VecDeque::new();
            let mut count = 0;
            for state in states.chars() {
                count = record(&mut places, Effect { place: 9, state: u32::from(state), back: 0 });
            }
            assert_eq!(count, returns, "{states}");
        }
    }

    #[test]
    fn an_edit_that_takes_back_an_earlier_one_is_a_return() {
        let (there, back) = (Effect { place: 9, state: 12, back: 21 }, Effect { place: 9, state: 21, back: 12 });
        let mut places = VecDeque::new();
        let counts: Vec<u8> = [there, back, there, back, there].map(|effect| record(&mut places, effect)).into();
        assert_eq!(counts, [0, 1, 2, 3, 4]);
        reset_returns(&mut places);
        assert_eq!(record(&mut places, back), 1);
    }

    #[test]
    fn places_are_told_apart_and_bounded() {
        let mut places = VecDeque::new();
        for round in 0..4 {
            for place in 1..=40 {
                let returns = record(&mut places, Effect { place, state: 1 + round % 2, back: 0 });
                assert_eq!(returns, 0, "forgotten before it comes again");
            }
        }
        assert_eq!(places.len(), PLACES);
        assert_eq!(record(&mut places, Effect::default()), 0);
    }
}
