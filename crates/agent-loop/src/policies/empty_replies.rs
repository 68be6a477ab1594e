//! Answers without a word or a call.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Counts answers in a row that said nothing and called nothing.
///
/// An empty answer is judged only when the loop goes on, since calls may follow it. What a brake has answered is passed
/// over.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct EmptyReplies {
    count: u64,
    /// The newest answer was empty, and no call has come so far.
    open: bool,
}

impl EmptyReplies {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Step => self.judge(),
            Observation::Assistant { nudged: true, .. } => self.judge(),
            Observation::Assistant { text, nudged: false } if text.trim().is_empty() => {
                self.judge();
                self.open = true;
            }
            Observation::Assistant { .. } | Observation::ToolCall { .. } => self.clear(),
            _ => {}
        }
    }

    fn judge(&mut self) {
        if std::mem::take(&mut self.open) {
            self.count = self.count.saturating_add(1);
        }
    }

    /// Empty answers in a row.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;

    use super::*;

    #[test]
    fn an_empty_answer_counts_when_the_loop_goes_on_without_a_call() {
        // s: a step begins; e: an empty answer; n: one that a brake has answered; t: a text; c: a call.
        for (events, count) in [
            ("seseses", 3),
            ("sesese", 2),
            ("eee", 2),
            ("secseses", 2),
            ("sestses", 1),
            ("sesesec", 0),
            ("snsnsns", 0),
            ("sesnses", 2),
            ("ssss", 0),
        ] {
            let arguments = Arguments::parse("{}");
            let mut empty = EmptyReplies::default();
            for event in events.chars() {
                empty.observe(&match event {
                    's' => Observation::Step,
                    'e' => Observation::Assistant { text: " \n", nudged: false },
                    'n' => Observation::Assistant { text: "", nudged: true },
                    't' => Observation::Assistant { text: "Hello.", nudged: false },
                    _ => Observation::ToolCall { name: "t", arguments: &arguments },
                });
            }
            assert_eq!(empty.count(), count, "{events}");
        }
    }
}
