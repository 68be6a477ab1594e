//! Chance that a seed decides: the same names give the same answers, in whatever order they are asked.

use std::hash::{DefaultHasher, Hash, Hasher};

/// What a seed decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below `sides` for this question, which is asked for the `nth` time.
    pub(super) fn roll(self, question: &str, nth: u64, sides: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0, question, nth).hash(&mut hasher);
        hasher.finish() % sides
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(self, question: &str, nth: u64, of: &[T]) -> T {
        of[usize::try_from(self.roll(question, nth, of.len() as u64)).expect("few")]
    }
}
