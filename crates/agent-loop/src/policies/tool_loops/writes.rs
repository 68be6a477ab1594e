//! Finds writes that return to an earlier state: a state is written, undone, and written again.

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

/// The states of one location.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct States {
    place: u32,
    /// Oldest first; 0 if there is none.
    states: [u32; STATES],
}

impl Packed for States {
    const SIZE: usize = 4 + 4 * STATES;

    fn put(&self, out: &mut Text) {
        self.place.put(out);
        for state in &self.states {
            state.put(out);
        }
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        Self { place: bytes.u32(), states: std::array::from_fn(|_| bytes.u32()) }
    }
}

/// Records a successful write. Returns whether the location has returned to an earlier state.
pub(super) fn record(places: &mut VecDeque<States>, effect: Effect) -> bool {
    if effect.place == 0 {
        return false;
    }
    let mut known = match places.iter().position(|known| known.place == effect.place) {
        Some(at) => places.remove(at).unwrap_or_default(),
        None => States { place: effect.place, ..States::default() },
    };
    let mut returns = false;
    if known.states[STATES - 1] != effect.state {
        let sought = if effect.back == 0 { effect.state } else { effect.back };
        returns = known.states.contains(&sought);
        known.states.rotate_left(1);
        known.states[STATES - 1] = effect.state;
    }
    places.push_back(known);
    if places.len() > PLACES {
        places.pop_front();
    }
    returns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_to_an_earlier_state_are_counted() {
        // Each row: states of one location as digits, and how many of them are returns.
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
            let returned = |state: &char| record(&mut places, Effect { place: 9, state: u32::from(*state), back: 0 });
            assert_eq!(states.chars().filter(returned).count(), returns, "{states}");
        }
    }

    #[test]
    fn an_edit_that_takes_back_an_earlier_one_is_a_return() {
        let (there, back) = (Effect { place: 9, state: 12, back: 21 }, Effect { place: 9, state: 21, back: 12 });
        let mut places = VecDeque::new();
        let returns = [there, back, there, back].map(|effect| record(&mut places, effect));
        assert_eq!(returns, [false, true, true, true]);
    }

    #[test]
    fn places_are_told_apart_and_bounded() {
        let mut places = VecDeque::new();
        for round in 0..4 {
            for place in 1..=40 {
                let returns = record(&mut places, Effect { place, state: 1 + round % 2, back: 0 });
                assert!(!returns, "forgotten before it comes again");
            }
        }
        assert_eq!(places.len(), PLACES);
        assert!(!record(&mut places, Effect::default()));
    }
}
