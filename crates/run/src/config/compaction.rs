//! `[compaction]`: when a conversation is shortened, and by whom.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[compaction]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompactionConfig {
    /// Whether a context is shortened before it outgrows the model. Off, that happens only when the provider says that it
    /// is too long, and on `/compact`.
    pub enabled: bool,
    /// Tokens that are kept free for the answer and for what the estimate misses; at most half of the context.
    pub reserve_tokens: u64,
    /// Tokens of the newest part that stays as it is; at most a quarter of the context.
    pub keep_recent_tokens: u64,
    /// The model that writes the account of what leaves. `None`: the configured one.
    pub model: Option<String>,
    /// Most seconds for notes and for the account, each. Then: an account by rule. 1 to 3600.
    pub timeout_s: u64,
    /// Whether the model may first note what must not be lost.
    pub memory_flush: bool,
    /// Whether an account must have what cannot be guessed: ids, addresses, paths.
    pub identifiers: Identifiers,
    /// Most times for one turn, and for each run that it starts. 0: only `/compact` shortens. At most 20.
    pub max_per_turn: u32,
}

/// What becomes of ids, hashes, hosts, ports, addresses and paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identifiers {
    /// An account has them character by character.
    #[default]
    Strict,
    /// Nobody looks for them.
    Off,
}

impl Default for CompactionConfig {
    /// The figures of the kind of daemon that this one is an equal of; 20 000 tokens are some 30 pages.
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
    /// Every problem at once, each beginning with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=3600).contains(&self.timeout_s) {
            problems.push("compaction.timeout_s: must be between 1 and 3600".into());
        }
        if self.max_per_turn > 20 {
            problems.push("compaction.max_per_turn: must be at most 20".into());
        }
        if self.model.as_ref().is_some_and(|model| model.trim().is_empty()) {
            problems.push("compaction.model: must not be empty; leave it out for the configured model".into());
        }
        problems
    }

    /// The longest time for notes, and for the account.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// From how many tokens on a context of this size is shortened.
    pub fn limit(&self, context_tokens: u64) -> u64 {
        context_tokens - self.reserve_tokens.min(context_tokens / 2)
    }

    /// How many tokens of the newest part stay in a context of this size.
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

    #[test]
    fn every_problem_is_named() {
        let config =
            CompactionConfig { timeout_s: 0, max_per_turn: 21, model: Some(" ".into()), ..CompactionConfig::default() };
        assert_eq!(config.validate().len(), 3);
        assert!(CompactionConfig::default().validate().is_empty());
    }
}
