//! Chanting: the same words, again and again, in streamed text.

use belay_protocol::Finding;

use super::observation::Observation;

/// The wire name of this kind of loop.
pub const CHANTING_IDENTICAL_SENTENCES: &str = "CHANTING_IDENTICAL_SENTENCES";

/// What is remembered of the text of a run: at most 16 KiB.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Chanting {
    found: Option<Finding>,
}

impl Chanting {
    /// Takes what was seen: pieces of text, and whole answers that were not streamed; a tool call ends a text.
    pub fn observe(&mut self, _seen: &Observation<'_>) {}

    /// Takes a piece of streamed text and tells whether the text chants by now.
    pub fn text(&mut self, _piece: &str) -> bool {
        false
    }

    /// The chanting that was found and stands.
    pub fn found(&self) -> Option<&Finding> {
        self.found.as_ref()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
