//! `[streaming]`: how an answer is shown while it comes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[streaming]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamingConfig {
    /// A piece that is sent while the answer comes has at least so many characters. At least 1, at most `max_chars`.
    pub min_chars: usize,
    /// And at most so many; a channel may take fewer. 200 to 100000.
    pub max_chars: usize,
    /// Where a piece ends as soon as it is long enough.
    #[serde(rename = "break")]
    pub break_at: Break,
    /// Milliseconds that a piece which is too short waits for more to go along with it. 0 to 60000.
    pub idle_ms: u64,
    /// When pieces are sent.
    pub at: SendAt,
    /// Shortest milliseconds between two changes of a preview; a platform may ask for more. 250 to 60000.
    pub preview_ms: u64,
}

impl Default for StreamingConfig {
    fn default() -> Self {
        Self {
            min_chars: 800,
            max_chars: 1200,
            break_at: Break::Paragraph,
            idle_ms: 1000,
            at: SendAt::TextEnd,
            preview_ms: 1000,
        }
    }
}

/// Where a piece ends. Where there is no such place, the next smaller one is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Break {
    /// Between paragraphs.
    Paragraph,
    /// Between lines.
    Newline,
    /// Between sentences.
    Sentence,
}

/// When pieces are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendAt {
    /// As soon as each is there, and the rest where the model ends its text.
    TextEnd,
    /// All of them where the model ends its text.
    MessageEnd,
}

/// Shortest that `max_chars` may be: room for the lines that close a code block and open it again.
pub(crate) const MAX_CHARS_LEAST: usize = 200;

impl StreamingConfig {
    /// Every problem at once, each beginning with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(MAX_CHARS_LEAST..=100_000).contains(&self.max_chars) {
            problems.push(format!("streaming.max_chars: must be between {MAX_CHARS_LEAST} and 100000"));
        }
        if !(1..=self.max_chars).contains(&self.min_chars) {
            problems.push("streaming.min_chars: must be at least 1 and at most streaming.max_chars".into());
        }
        if self.idle_ms > 60_000 {
            problems.push("streaming.idle_ms: must be at most 60000".into());
        }
        if !(250..=60_000).contains(&self.preview_ms) {
            problems.push("streaming.preview_ms: must be between 250 and 60000".into());
        }
        problems
    }

    /// How long a piece that is too short waits.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// Shortest time between two changes of a preview.
    pub fn preview_pace(&self) -> Duration {
        Duration::from_millis(self.preview_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(StreamingConfig::default().validate().is_empty());
        let bad = StreamingConfig {
            min_chars: 101,
            max_chars: 100,
            idle_ms: 60_001,
            preview_ms: 0,
            ..StreamingConfig::default()
        };
        let keys: Vec<_> = bad.validate().iter().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect();
        assert_eq!(keys, ["streaming.max_chars", "streaming.min_chars", "streaming.idle_ms", "streaming.preview_ms"]);
    }
}
