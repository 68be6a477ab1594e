//! Bookkeeping of a run's compactions: their number, whether the last one was worthwhile, and the token calibration.

use belay_agent_loop::LoopState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::estimate::Calibration;

/// Bookkeeping of a run's compactions.
#[derive(Debug, Default)]
pub struct Shortener {
    /// Factor between the local estimate and the provider's token count.
    pub calibration: Calibration,
    /// Values for the whole run.
    count: Count,
    /// Whether large results were shortened. Not stored: a resumed run has the whole results again.
    truncated: bool,
}

/// The compactions of a run. Part of its state, so that it survives pauses and restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Count {
    times: u32,
    /// The last compaction gained too little, so this run gets no other.
    in_vain: bool,
    /// Notes were saved.
    noted: bool,
}

/// Key of the count in `LoopState::delegate`, beside the keys of other parts.
const KEY: &str = "compaction";

impl Shortener {
    /// The bookkeeping of a run with this state.
    pub fn of(state: &LoopState, calibration: Calibration) -> Self {
        let count = state.delegate.get(KEY).and_then(|kept| serde_json::from_value(kept.clone()).ok());
        Self { calibration, count: count.unwrap_or_default(), truncated: false }
    }

    /// Whether another compaction is allowed, with at most `most` for a run.
    pub(crate) fn may_begin(&self, most: u32) -> bool {
        !self.count.in_vain && self.count.times < most
    }

    /// Counts a compaction that begins. Returns whether it may save notes first, which is allowed once in a run.
    pub fn begin(&mut self, state: &mut LoopState) -> bool {
        self.count.times += 1;
        let notes = !std::mem::replace(&mut self.count.noted, true);
        self.keep(state);
        notes
    }

    /// Judges a compaction that has ended. Returns whether it was worthwhile: whether it removed at least a fifth of
    /// the tokens. The next step would use up a smaller gain at once.
    pub fn end(&mut self, before: u64, after: u64, state: &mut LoopState) -> bool {
        self.count.in_vain = u128::from(after) * 10 > u128::from(before) * 8;
        self.keep(state);
        !self.count.in_vain
    }

    /// Whether large results may be shortened. Returns `true` once, and `false` from then on.
    pub fn truncate(&mut self) -> bool {
        !std::mem::replace(&mut self.truncated, true)
    }

    /// Puts the count into the state, which the next checkpoint stores.
    fn keep(&self, state: &mut LoopState) {
        let Ok(count) = serde_json::to_value(self.count) else { return }; // plain data always serialises
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
