//! `[memory]`: notes in prompts, their owners, and the search by meaning.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The maximum of [`MemoryConfig::prompt_chars`]: about 5000 tokens in each request.
const PROMPT_CHARS_MAX: u32 = 20_000;

/// Values of `[memory]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Characters of notes in the prompt of a conversation, the newest notes first. 0: none; at most 20000.
    pub prompt_chars: u32,
    /// Channels in which each session has notes of its own. For a program that serves several people by one token.
    pub per_session: Vec<String>,
    /// The search for notes by meaning. Boxed, because the agent carries these values and does not use it.
    pub embeddings: Box<EmbeddingsConfig>,
}

/// Values of `[memory.embeddings]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingsConfig {
    /// Address of the server without the path of the call. Absent: notes are found by words alone.
    pub base_url: Option<String>,
    /// Name of the model.
    pub model: String,
    /// Name of the environment variable with the key. The daemon reads it.
    pub api_key_env: Option<String>,
    /// File with the key. The daemon reads it.
    pub api_key_file: Option<PathBuf>,
    /// Dimensions of a vector, 1 to 8192. Absent: as many as the model has.
    pub dimensions: Option<u32>,
    /// The smallest cosine between a note and a query about the same, in percent, 0 to 100.
    pub min_similarity_percent: u32,
    /// Longest time for one request in seconds, a second attempt included, 1 to 600.
    #[serde(skip)]
    pub timeout_s: u64,
}

impl Default for EmbeddingsConfig {
    /// 25 percent: OpenAI's small model gives unrelated texts about 10, and related ones 30 or more.
    fn default() -> Self {
        Self {
            base_url: None,
            model: "text-embedding-3-small".into(),
            api_key_env: None,
            api_key_file: None,
            dimensions: None,
            min_similarity_percent: 25,
            timeout_s: 10,
        }
    }
}

impl Default for MemoryConfig {
    /// 2000 characters are about 500 tokens.
    fn default() -> Self {
        Self { prompt_chars: 2000, per_session: Vec::new(), embeddings: Box::default() }
    }
}

impl MemoryConfig {
    /// All problems at once, each starting with its key. `channels`: the names of the channels that exist.
    pub fn validate(&self, channels: &[&str]) -> Vec<String> {
        let mut problems = Vec::new();
        if self.prompt_chars > PROMPT_CHARS_MAX {
            problems.push(format!("memory.prompt_chars: must be at most {PROMPT_CHARS_MAX}"));
        }
        if self.embeddings.min_similarity_percent > 100 {
            problems.push("memory.embeddings.min_similarity_percent: must be at most 100".to_owned());
        }
        for name in self.per_session.iter().filter(|name| !channels.contains(&name.as_str())) {
            problems
                .push(format!("memory.per_session: there is no channel {name:?}; there are {}", channels.join(", ")));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_their_setting() {
        assert!(MemoryConfig::default().validate(&["http"]).is_empty());
        let wrong = MemoryConfig {
            prompt_chars: 20_001,
            per_session: vec!["http".into(), "fax".into()],
            ..MemoryConfig::default()
        };
        let problems = wrong.validate(&["http", "telegram"]);
        assert!(matches!(&problems[..], [chars, channel]
            if chars.starts_with("memory.prompt_chars: ") && channel.contains("\"fax\"") && channel.contains("http, telegram")));
    }
}
