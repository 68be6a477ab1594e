//! Finds writes that return to an earlier state: a state is written, undone, and written again.
//!
//! Returns are counted for each location since the last write of something new anywhere. For an edit that says what was
//! there before, the location is that place in the file, so each edit of a file is one of its own. An experiment is thus
//! undone for nothing, over however many files: each edit that takes one back is new itself. Making the experiment again
//! counts two, however many edits it has, and the third time is a loop.

use std::collections::VecDeque;

use super::gain::Changed;
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
    /// The returns since the last write of something new.
    returns: u8,
    /// Oldest first; 0 if there is none.
    states: [u32; STATES],
}

impl Packed for States {
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

impl States {
    /// The location of an edit that says what was there before is that place in the file.
    fn location(effect: Effect) -> u32 {
        if effect.back == 0 { effect.place } else { effect.place ^ effect.state.wrapping_add(effect.back) }
    }

    /// Takes a write of this state. Returns how often the state was written before, and whether the location has
    /// returned to an earlier one.
    fn take_state(&mut self, effect: Effect) -> (u8, bool) {
        let times = self.states.iter().filter(|state| **state == effect.state).count() as u8;
        if self.states[STATES - 1] == effect.state {
            return (times, false);
        }
        let sought = if effect.back == 0 { effect.state } else { effect.back };
        let returns = self.states.contains(&sought);
        self.states.rotate_left(1);
        self.states[STATES - 1] = effect.state;
        (times, returns)
    }

    /// The returns that count after one to a state that was written this often before. A single return is an
    /// experiment. Each of many states that were written one after the other may come again once: that undoes them.
    fn counted(&self, effect: Effect, times: u8) -> u32 {
        let most = if effect.back == 0 { (2 * times).max(self.returns / 2) } else { u8::MAX };
        if self.returns == 1 { 0 } else { self.returns.min(most).into() }
    }
}

/// Records a successful write, which brought `news` or not.
pub(super) fn record(places: &mut VecDeque<States>, effect: Effect, news: bool) -> Changed {
    if effect.place == 0 {
        return Changed::Nothing;
    }
    let place = States::location(effect);
    let mut states = match places.iter().position(|known| known.place == place) {
        Some(at) => places.remove(at).unwrap_or_default(),
        None => States { place, ..States::default() },
    };
    let (times, returns) = states.take_state(effect);
    let anew = news && !(returns && times > 0);
    if anew {
        // Undoing a change around real work is a normal way to try things out. An edit that undoes one leaves the others
        // of the same experiment undone.
        let stays = returns.into();
        places.iter_mut().for_each(|other| other.returns = other.returns.min(stays));
        states.returns = 0;
    }
    states.returns = states.returns.saturating_add(returns.into());
    let changed = match () {
        () if anew => Changed::Anew,
        () if returns => Changed::Back(states.counted(effect, times)),
        () => Changed::Nothing,
    };
    places.push_back(states);
    if places.len() > PLACES {
        places.pop_front();
    }
    changed
}

/// Begins to count anew.
pub(super) fn renew(places: &mut VecDeque<States>) {
    places.iter_mut().for_each(|states| states.returns = 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count of each write of a row: `-` nothing, `!` something new.
    fn counts(writes: impl IntoIterator<Item = (Effect, bool)>) -> String {
        let mut places = VecDeque::new();
        let changes = writes.into_iter().map(|(effect, news)| match record(&mut places, effect, news) {
            Changed::Nothing => "-".to_owned(),
            Changed::Anew => "!".to_owned(),
            Changed::Back(count) => count.to_string(),
        });
        changes.collect()
    }

    #[test]
    fn returns_to_an_earlier_state_are_counted() {
        // Each row: states of one location as digits, and what each write counts.
        for (states, expected) in [
            ("1", "-"),
            ("1111", "----"),
            ("12", "--"),
            ("121", "--0"),
            ("1211", "--0-"),
            ("12121212", "--023456"),
            ("1231231", "---0224"),
            ("123454321", "-----022-"), // 1 has been dropped
            ("123456789", "---------"),
            ("12345671", "--------"),
        ] {
            let seen = counts(states.chars().map(|s| (Effect { place: 9, state: u32::from(s), back: 0 }, false)));
            assert_eq!(seen, expected, "{states}");
        }
    }

    #[test]
    fn an_edit_that_takes_back_an_earlier_one_is_new_and_a_return() {
        let edit = |place, from: u32, to: u32| Effect { place, state: 10 * from + to, back: 10 * to + from };
        let (there, back) = ([1, 2, 3].map(|place| edit(place, 1, 2)), [1, 2, 3].map(|place| edit(place, 2, 1)));
        let round = |news| there.into_iter().chain(back).map(move |effect| (effect, news));
        assert_eq!(counts(round(true).chain(round(false)).chain(round(false))), "!!!!!!222333444555");
        let new = (edit(7, 1, 2), true);
        let row = [(there[0], true), (back[0], true), (there[0], true), new, (there[0], false), (back[0], false)];
        assert_eq!(counts(row), "!!2!-0", "after something new");
    }

    #[test]
    fn places_are_told_apart_and_bounded() {
        let mut places = VecDeque::new();
        for round in 0..4 {
            for place in 1..=40 {
                let changed = record(&mut places, Effect { place, state: 1 + round % 2, back: 0 }, false);
                assert_eq!(changed, Changed::Nothing, "forgotten before it comes again");
            }
        }
        assert_eq!(places.len(), PLACES);
        assert_eq!(record(&mut places, Effect::default(), true), Changed::Nothing);
    }
}
