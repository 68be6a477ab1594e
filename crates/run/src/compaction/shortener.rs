//! What a run knows of its shortenings: how often there was one, whether the last was worth it, and how the provider counts.

use belay_agent_loop::LoopState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::estimate::Calibration;

/// What a run knows of its shortenings.
#[derive(Debug, Default)]
pub struct Shortener {
    /// What is known of the provider's way of counting.
    pub calibration: Calibration,
    /// What holds for the whole run.
    count: Count,
    /// Large results have lost their middle. Only here: taken up again, the run has them whole.
    truncated: bool,
}

/// The shortenings of a run. Part of its state, so that it holds over questions and restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Count {
    times: u32,
    /// The last one won too little: there is no other in this run.
    in_vain: bool,
    /// Notes were made.
    noted: bool,
}

/// Where in the state it is kept, beside what others keep there.
const KEY: &str = "compaction";

impl Shortener {
    /// That of a run with this state.
    pub fn of(state: &LoopState, calibration: Calibration) -> Self {
        let count = state.delegate.get(KEY).and_then(|kept| serde_json::from_value(kept.clone()).ok());
        Self { calibration, count: count.unwrap_or_default(), truncated: false }
    }

    /// Whether there may be another one, where there are at most `most` of them.
    pub(crate) fn may_begin(&self, most: u32) -> bool {
        !self.count.in_vain && self.count.times < most
    }

    /// Counts one that begins. Returns whether notes may be made before it: once in a run.
    pub fn begin(&mut self, state: &mut LoopState) -> bool {
        self.count.times += 1;
        let notes = !std::mem::replace(&mut self.count.noted, true);
        self.keep(state);
        notes
    }

    /// Judges one that has ended. Less than a fifth is filled again by the next step. Returns whether it was worth it.
    pub fn end(&mut self, before: u64, after: u64, state: &mut LoopState) -> bool {
        self.count.in_vain = u128::from(after) * 10 > u128::from(before) * 8;
        self.keep(state);
        !self.count.in_vain
    }

    /// Whether large results still have their middle; from now on they do not.
    pub fn truncate(&mut self) -> bool {
        !std::mem::replace(&mut self.truncated, true)
    }

    /// Puts it where the next checkpoint takes it along.
    fn keep(&self, state: &mut LoopState) {
        let Ok(count) = serde_json::to_value(self.count) else { return }; // plain data: it always serialises
        match state.delegate.as_object_mut() {
            Some(others) => {
                others.insert(KEY.to_owned(), count);
            }
            None => state.delegate = Value::Object(Map::from_iter([(KEY.to_owned(), count)])),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_turn_has_shortened_holds_when_it_is_taken_up_again() {
        let mut state = LoopState { delegate: json!({"hooks": {}}), ..LoopState::default() };
        let mut shortener = Shortener::of(&state, Calibration::default());
        assert_eq!(shortener.count, Count::default());
        assert!(shortener.begin(&mut state), "notes may be made");
        assert!(shortener.end(1000, 500, &mut state) && !shortener.begin(&mut state), "once");
        assert!(!shortener.end(1000, 801, &mut state));
        assert_eq!(shortener.count, Count { times: 2, in_vain: true, noted: true });
        assert_eq!(Shortener::of(&state, Calibration::default()).count, shortener.count);
        assert_eq!(state.delegate["hooks"], json!({}), "beside what others keep");
    }

    #[test]
    fn another_one_begins_only_after_one_that_was_worth_it_and_no_more_often_than_is_set() {
        let mut state = LoopState::default();
        for (after, most, may) in [(500, 2, true), (800, 2, true), (801, 2, false), (1000, 2, false), (500, 1, false)] {
            let mut shortener = Shortener::default();
            assert!(shortener.may_begin(most));
            shortener.begin(&mut state);
            shortener.end(1000, after, &mut state);
            assert_eq!(shortener.may_begin(most), may, "{after} {most}");
        }
        assert!(!Shortener::default().may_begin(0));
    }
}
