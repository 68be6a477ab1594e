//! What was put out: the model's text and the results of tools.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Counts bytes of text that the model said and tools returned, until totals tell better.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct OutputBytes {
    bytes: u64,
    /// Bytes of the answer that streams, which its whole text repeats.
    streamed: u64,
    /// Totals rule.
    told: bool,
}

impl OutputBytes {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Text(piece) => {
                self.add(piece.len() as u64);
                self.streamed = self.streamed.saturating_add(piece.len() as u64);
            }
            Observation::Assistant { text, .. } => {
                self.add((text.len() as u64).saturating_sub(self.streamed));
                self.streamed = 0;
            }
            Observation::ToolResult { text, .. } => self.add(text.len() as u64),
            Observation::Step => self.streamed = 0,
            Observation::Totals(totals) => {
                self.told = true;
                self.bytes = self.bytes.max(totals.output_bytes);
            }
            _ => {}
        }
    }

    fn add(&mut self, bytes: u64) {
        if !self.told {
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    /// Bytes so far.
    pub fn count(self) -> u64 {
        self.bytes
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::{CallOutcome, Totals};

    #[test]
    fn what_was_streamed_is_not_counted_again_with_the_whole_answer() {
        let totals = Totals { output_bytes: 100, ..Totals::default() };
        let mut output = OutputBytes::default();
        for (seen, bytes) in [
            (Observation::Text("abc"), 3),
            (Observation::Text("de"), 5),
            (Observation::Assistant { text: "abcde", nudged: false }, 5),
            (Observation::Assistant { text: "stands alone", nudged: true }, 17),
            (Observation::User("not ours"), 17),
            (Observation::ToolResult { name: "t", outcome: CallOutcome::Failed, text: "é" }, 19),
            (Observation::Text("broken off"), 29),
            (Observation::Step, 29),
            (Observation::Assistant { text: "again", nudged: false }, 34),
            (Observation::Totals(&totals), 100),
            (Observation::Text("more"), 100),
        ] {
            output.observe(&seen);
            assert_eq!(output.count(), bytes, "{seen:?}");
        }
    }
}
