//! How an answer is shown while it streams: constants, but for `at`, and fields for tests.

use std::time::Duration;

/// The lengths and times of pieces and previews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamingConfig {
    /// Minimum length of a piece that is sent while the answer streams, in characters. 1 to `max_chars`.
    pub min_chars: usize,
    /// Maximum length of a piece, in characters; a channel may allow less. 200 to 100000.
    pub max_chars: usize,
    /// Where a piece ends once it is long enough.
    pub break_at: Break,
    /// Time that a short piece waits for more text, in milliseconds. 0 to 60000.
    pub idle_ms: u64,
    /// When pieces are sent. The settings have it as `channels.telegram.stream`.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Between paragraphs.
    Paragraph,
    /// Between lines.
    Newline,
    /// Between sentences.
    Sentence,
}

/// When pieces are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendAt {
    /// Each piece as soon as it is ready, and the rest at the end of the model's text.
    TextEnd,
    /// All pieces at the end of the model's text.
    MessageEnd,
}

/// Minimum of `max_chars`, with space for the lines that close and reopen a code block.
pub(crate) const MAX_CHARS_LEAST: usize = 200;

impl StreamingConfig {
    /// Time that a short piece waits for more text.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// Minimum time between two updates of a preview.
    pub fn preview_pace(&self) -> Duration {
        Duration::from_millis(self.preview_ms)
    }
}
