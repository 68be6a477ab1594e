//! Oscillating writes: what is written, taken back, and written again.

use std::collections::VecDeque;

use super::pack::{Bytes, Packed};

/// Places whose writes are remembered; then the one that was written to longest ago is forgotten.
const PLACES: usize = 12;

/// States that are remembered of a place. 6: an oscillation through more is a plan.
const STATES: usize = 6;

/// What a call changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Which place: a path, a key, an id. 0: the call changes nothing that could come back.
    pub(super) place: u32,
    /// The state that it makes, or the change that it is.
    pub(super) state: u32,
    /// The change that it would take back. 0: it does not say what was there before.
    pub(super) back: u32,
}

/// The writes to one place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Writes {
    place: u32,
    returns: u8,
    /// Oldest first; 0 where there is none.
    states: [u32; STATES],
}

impl Packed for Writes {
    const SIZE: usize = 5 + 4 * STATES;

    fn put(&self, out: &mut Vec<u8>) {
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

/// Takes a write that has succeeded and tells how often the place has returned to an earlier state by now.
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

/// Something new was written: going back and forth around real work is how one tries things out.
pub(super) fn forgive(places: &mut VecDeque<Writes>) {
    for writes in places {
        writes.returns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_to_an_earlier_state_are_counted() {
        // Each row: states as digits of one place, and the returns after the last.
        for (states, returns) in [
            ("1", 0),
            ("1111", 0),
            ("12", 0),
            ("121", 1),
            ("1211", 1),
            ("121212", 4),
            ("123123", 3),
            ("123456789", 0),
            ("12345671", 0), // 1 is forgotten
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
        forgive(&mut places);
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
