//! `[streaming]`: how an answer is shown while it streams.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Values of `[streaming]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamingConfig {
    /// Minimum length of a piece that is sent while the answer streams, in characters. 1 to `max_chars`.
    pub min_chars: usize,
    /// Maximum length of a piece, in characters; a channel may allow less. 200 to 100000.
    pub max_chars: usize,
    /// Where a piece ends once it is long enough.
    #[serde(rename = "break")]
    pub break_at: Break,
    /// Time that a short piece waits for more text, in milliseconds. 0 to 60000.
    pub idle_ms: u64,
    /// When pieces are sent.
    pub at: SendAt,
    /// Minimum time between two updates of a preview, in milliseconds. A platform may require more. 250 to 60000.
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

/// Where a piece ends. If the text has no such break, the next smaller kind is used.
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
    /// Each piece as soon as it is ready, and the rest at the end of the model's text.
    TextEnd,
    /// All pieces at the end of the model's text.
    MessageEnd,
}

/// Minimum of `max_chars`, with space for the lines that close and reopen a code block.
pub(crate) const MAX_CHARS_LEAST: usize = 200;

impl StreamingConfig {
    /// All problems at once, each starting with its key.
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

    /// Time that a short piece waits for more text.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// Minimum time between two updates of a preview.
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
