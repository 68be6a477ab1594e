//! The message of a strike to the model.

use belay_text::untrusted;

use super::advice::advice;
use super::evidence::Evidence;
use super::marks::Marks;

/// Longest message, in bytes.
pub(crate) const MAX_BYTES: usize = 600;

const OPENING: &str = "Notice: this run seems to be in a loop.";
const CLOSING: &str = "If you cannot, give your final answer now with what you have and state what is missing. If this happens \
                       again, the run ends.";

impl Evidence {
    /// The message for the model, at most 600 bytes. Untrusted content in it has its markers.
    pub fn for_model(&self) -> String {
        let show = |line: &str| match &self.marks {
            Marks::None => Some(format!("“{line}”")),
            Marks::Of { source, id } => Some(untrusted::marked(source, id, line)),
            Marks::Unknown => None,
        };
        let with = |sentence: String| format!("{OPENING} {sentence} {} {CLOSING}", advice(self.kind));
        let whole = with(self.sentence_with(&show));
        if whole.len() <= MAX_BYTES {
            return whole;
        }
        let short = with(self.sentence_with(&|_| None));
        if short.len() <= MAX_BYTES { short } else { format!("{OPENING} {} {CLOSING}", advice(self.kind)) }
    }

    /// Whether the message for the model quotes untrusted content.
    pub fn quotes_untrusted(&self) -> bool {
        matches!(&self.marks, Marks::Of { id, .. } if self.for_model().contains(id.as_str()))
    }
}
