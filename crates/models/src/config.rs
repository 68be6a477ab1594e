//! The section `[llm]` of the settings.

use std::path::PathBuf;
use std::time::Duration;

use belay_protocol::Price;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::catalog;
use crate::vision::Vision;

/// Which model to ask and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LlmConfig {
    /// `auto`, or the name of a provider: `openai` (and any server that speaks its chat completions), `anthropic`,
    /// `gemini`, `ollama`, …, or `rehearsal`, the built-in stand-in. What `auto` does: [`resolve`](crate::resolve).
    pub provider: String,
    /// Address of the server, up to and without the path of the call, for instance `http://127.0.0.1:8080/v1`.
    /// Absent: the provider's own.
    pub base_url: Option<String>,
    /// Name of the model. Absent: the provider's usual small one, or the first one a local server offers.
    pub model: Option<String>,
    /// Name of the environment variable with the key; read by the daemon. Absent or empty: the provider's usual one.
    pub api_key_env: Option<String>,
    /// File with the key; read by the daemon.
    pub api_key_file: Option<PathBuf>,
    /// Most tokens to generate in one call, at least 1.
    pub max_tokens: u32,
    /// Requests for one logical call, all layers together, 1 to 10.
    pub max_attempts: u32,
    /// Longest time to connect, TLS included, in seconds, 1 to 300.
    pub connect_timeout_s: u64,
    /// Longest silence of the server, before its answer and within it, in seconds, 1 to 3600. There is no limit on the
    /// whole time. 90 s: local models read a long prompt for a minute before their first token.
    pub idle_timeout_s: u64,
    /// Size of the model's context in tokens. Absent: from our table, else an assumption.
    pub context_tokens: Option<u64>,
    /// What the model costs. Absent: from our table; a server on this machine costs nothing.
    pub price: Option<Price>,
    /// Whether the model can see: pictures are sent to it. Only with the formats of OpenAI and Anthropic.
    pub vision: Vision,
    /// Sampling temperature, 0 to 2. Absent: not sent, since some models refuse any.
    pub temperature: Option<f64>,
    /// Fields added to the body of each request, for servers with switches of their own. `tool_choice` and
    /// `parallel_tool_calls` are sent only together with tools.
    pub extra_body: Map<String, Value>,
}

impl Default for LlmConfig {
    fn default() -> Self {
        Self {
            provider: "auto".into(),
            base_url: None,
            model: None,
            api_key_env: None,
            api_key_file: None,
            max_tokens: 4096,
            max_attempts: 3,
            connect_timeout_s: 10,
            idle_timeout_s: 90,
            context_tokens: None,
            price: None,
            vision: Vision::Auto,
            temperature: None,
            extra_body: Map::new(),
        }
    }
}

/// Fields of a request that are ours alone: each has its own setting, or is the conversation itself.
const RESERVED: [&str; 6] = ["model", "messages", "tools", "system", "stream", "max_tokens"];

impl LlmConfig {
    /// Every problem of the section, each starting with its key; empty when there is none.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |ok: bool, problem: &str| {
            if !ok {
                problems.push(problem.to_owned());
            }
        };
        check(self.max_tokens >= 1, "llm.max_tokens: must be at least 1");
        check((1..=10).contains(&self.max_attempts), "llm.max_attempts: must be 1 to 10");
        check((1..=300).contains(&self.connect_timeout_s), "llm.connect_timeout_s: must be 1 to 300");
        check((1..=3600).contains(&self.idle_timeout_s), "llm.idle_timeout_s: must be 1 to 3600");
        check(self.context_tokens.is_none_or(|n| n >= 256), "llm.context_tokens: must be at least 256");
        check(self.temperature.is_none_or(|t| (0.0..=2.0).contains(&t)), "llm.temperature: must be 0 to 2");
        check(self.model.as_ref().is_none_or(|m| !m.trim().is_empty()), "llm.model: must not be empty");
        let keys = [self.api_key_env.as_ref().is_some_and(|name| !name.is_empty()), self.api_key_file.is_some()];
        check(keys != [true, true], "llm.api_key_file: give either this or llm.api_key_env, not both");
        for name in RESERVED {
            check(
                !self.extra_body.contains_key(name),
                &format!("llm.extra_body.{name}: is set by Belay itself and cannot be given here"),
            );
        }
        if self.provider != catalog::AUTO
            && let Err(error) = catalog::find(&self.provider)
        {
            problems.push(error.to_string());
        }
        if let Some(url) = &self.base_url
            && let Err(error) = crate::http::parse_base_url(url)
        {
            problems.push(error.to_string());
        }
        problems
    }

    /// The longest silence.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s)
    }

    /// The longest time to connect.
    pub(crate) fn connect(&self) -> Duration {
        Duration::from_secs(self.connect_timeout_s)
    }
}

/// The keys that the daemon found. Each is absent when its variable or file is absent or empty.
#[derive(Clone, Debug, Default)]
pub struct EnvKeys {
    /// From `OPENAI_API_KEY`. Like OpenAI's own clients, we send it to `llm.base_url` too, when that is given.
    pub openai: Option<SecretString>,
    /// From `ANTHROPIC_API_KEY`; as above.
    pub anthropic: Option<SecretString>,
    /// From `llm.api_key_env` or `llm.api_key_file`; goes before the other two.
    pub configured: Option<SecretString>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(LlmConfig::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn every_problem_is_told_at_once_and_starts_with_its_key() {
        let config: LlmConfig = serde_json::from_value(json!({
            "provider": "antropic", "base_url": "ftp://x", "model": " ", "api_key_env": "A", "api_key_file": "/b",
            "max_tokens": 0, "max_attempts": 11, "connect_timeout_s": 0, "idle_timeout_s": 0, "context_tokens": 1,
            "temperature": 3.0, "extra_body": {"messages": [], "stream": false}
        }))
        .expect("parses");
        let problems = config.validate();
        let keys: Vec<_> = problems.iter().map(|p| p.split(':').next().unwrap_or_default()).collect();
        assert_eq!(
            keys,
            [
                "llm.max_tokens",
                "llm.max_attempts",
                "llm.connect_timeout_s",
                "llm.idle_timeout_s",
                "llm.context_tokens",
                "llm.temperature",
                "llm.model",
                "llm.api_key_file",
                "llm.extra_body.messages",
                "llm.extra_body.stream",
                "llm.provider",
                "llm.base_url",
            ]
        );
        assert!(problems[10].contains("did you mean `anthropic`?"), "{problems:?}");
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(serde_json::from_value::<LlmConfig>(json!({"temprature": 1})).is_err());
        assert!(serde_json::from_value::<LlmConfig>(json!({"price": {"input": 1, "output": 2, "x": 3}})).is_err());
    }
}
