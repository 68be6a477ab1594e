//! `[compaction]`: when a conversation is shortened, and how.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Values of `[compaction]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompactionConfig {
    /// Whether a context is shortened before it exceeds the model's limit. If disabled, it is shortened only after the
    /// provider rejects it as too long, and on `/compact`.
    pub enabled: bool,
    /// Tokens that stay free for the answer and for the error of the estimate; at most half of the context.
    #[serde(skip)]
    pub reserve_tokens: u64,
    /// Tokens of the newest part that stays unchanged; at most a quarter of the context.
    pub keep_recent_tokens: u64,
    /// The model that writes summaries. `None`: the configured one. The settings have it as `llm.small_model`.
    #[serde(skip)]
    pub model: Option<String>,
    /// Time limit for notes and for the summary, each, in seconds. After it, a rule writes the summary. 1 to 3600.
    #[serde(skip)]
    pub timeout_s: u64,
    /// Whether the model may first save notes.
    pub memory_flush: bool,
    /// Whether a summary must contain identifiers: ids, addresses, paths.
    #[serde(skip)]
    pub identifiers: Identifiers,
    /// Maximum number of compactions for one turn, and for each run that it starts. 0: only `/compact` shortens. At
    /// most 20.
    #[serde(skip)]
    pub max_per_turn: u32,
}

/// Handling of ids, hashes, hosts, ports, addresses and paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identifiers {
    /// A summary must contain them unchanged.
    #[default]
    Strict,
    /// They are not checked.
    Off,
}

impl Default for CompactionConfig {
    /// The defaults of comparable daemons; 20 000 tokens are about 30 pages.
    fn default() -> Self {
        Self {
            enabled: true,
            reserve_tokens: 20_000,
            keep_recent_tokens: 20_000,
            model: None,
            timeout_s: 180,
            memory_flush: true,
            identifiers: Identifiers::Strict,
            max_per_turn: 3,
        }
    }
}

impl CompactionConfig {
    /// Time limit for notes and for the summary, each.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// Size in tokens above which a context of this maximum size is shortened.
    pub fn limit(&self, context_tokens: u64) -> u64 {
        context_tokens - self.reserve_tokens.min(context_tokens / 2)
    }

    /// Tokens of the newest part that stay, in a context of this maximum size.
    pub fn keep(&self, context_tokens: u64) -> u64 {
        self.keep_recent_tokens.min(context_tokens / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_scales_down_with_the_context() {
        let config = CompactionConfig::default();
        for (context, limit, keep) in [(200_000, 180_000, 20_000), (32_768, 16_384, 8_192), (256, 128, 64), (0, 0, 0)] {
            assert_eq!((config.limit(context), config.keep(context)), (limit, keep), "{context}");
        }
    }
}
