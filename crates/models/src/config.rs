//! The section `[llm]` of the settings.

use std::path::PathBuf;
use std::time::Duration;

use belay_protocol::Price;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::catalog;
use crate::vision::Vision;

/// Prices in US dollars for a million tokens, as the vendors publish them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceUsd {
    /// Input tokens.
    pub input: f64,
    /// Input tokens from the provider's cache; absent: the price of `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
    /// Output tokens.
    pub output: f64,
}

/// The prices that a model may have, in US dollars for a million tokens. Those of 2026 are between 0.01 and 600. Others are
/// written in another unit: dollars for a token, or millionths of a dollar.
const USD_RANGE: std::ops::RangeInclusive<f64> = 0.001..=10_000.0;

impl PriceUsd {
    /// The price in millionths of a US dollar, rounded.
    pub fn exact(&self) -> Price {
        let micro = |usd: f64| (usd * 1e6).round() as u64; // valid prices are within the range of both
        Price { input: micro(self.input), cached_input: self.cached_input.map(micro), output: micro(self.output) }
    }

    fn problems(&self) -> impl Iterator<Item = String> {
        let fields = [("input", Some(self.input)), ("cached_input", self.cached_input), ("output", Some(self.output))];
        fields.into_iter().filter_map(|(name, usd)| {
            let usd = usd.filter(|usd| *usd != 0.0 && !USD_RANGE.contains(usd))?;
            Some(format!(
                "llm.price_usd.{name}: must be 0, or from 0.001 to 10000, is {usd}; the unit is US dollars for a million \
                 tokens, such as 3.0"
            ))
        })
    }
}

/// The model and the options of its requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LlmConfig {
    /// `auto`, or the name of a provider: `openai` (and any server with its Chat Completions API), `anthropic`,
    /// `gemini`, `ollama`, …, or `rehearsal`, the built-in stand-in. [`resolve`](crate::resolve) describes `auto`.
    pub provider: String,
    /// Address of the server without the path of the call, for instance `http://127.0.0.1:8080/v1`. Absent: the
    /// provider's own server.
    pub base_url: Option<String>,
    /// Name of the model. Absent: the provider's usual small model, or the first one that a local server offers.
    pub model: Option<String>,
    /// Name of the model for titles, summaries and the heartbeat. Absent: this one.
    pub small_model: Option<String>,
    /// Name of the environment variable with the key. The daemon reads it. Absent or empty: the provider's usual
    /// variable.
    pub api_key_env: Option<String>,
    /// File with the key. The daemon reads it.
    pub api_key_file: Option<PathBuf>,
    /// Names of environment variables with further keys for the same model, in the order in which they replace the
    /// first key. At most 8. One in a file is a fallback with the same model.
    pub api_key_envs: Vec<String>,
    /// Fallback models for when this one cannot answer, in this order. At most 8.
    pub fallbacks: Vec<FallbackConfig>,
    /// Most tokens to generate in one call, at least 1.
    pub max_tokens: u32,
    /// Requests for one logical call, over all layers, 1 to 10.
    pub max_attempts: u32,
    /// Longest time to connect, including TLS, in seconds, 1 to 300.
    #[serde(skip)]
    pub connect_timeout_s: u64,
    /// Longest silence of the server, before its answer and within it, in seconds, 1 to 3600. The total time is not
    /// limited. 90 s: local models process a long prompt for up to a minute before their first token.
    pub idle_timeout_s: u64,
    /// Size of the model's context in tokens. Absent: from our table, otherwise a default.
    pub context_tokens: Option<u64>,
    /// The price of the model. Absent: from our table; a server on this machine costs nothing.
    pub price_usd: Option<PriceUsd>,
    /// Whether the model accepts pictures. Only with the formats of OpenAI and Anthropic.
    pub vision: Vision,
    /// Sampling temperature, 0 to 2. Absent: not sent, because some models refuse the field.
    pub temperature: Option<f64>,
    /// Fields that are added to the body of each request, for servers with options of their own. `tool_choice` and
    /// `parallel_tool_calls` are only sent together with tools.
    pub extra_body: Map<String, Value>,
}

impl Default for LlmConfig {
    fn default() -> Self {
        Self {
            provider: "auto".into(),
            base_url: None,
            model: None,
            small_model: None,
            api_key_env: None,
            api_key_file: None,
            api_key_envs: Vec::new(),
            fallbacks: Vec::new(),
            max_tokens: 4096,
            max_attempts: 3,
            connect_timeout_s: 10,
            idle_timeout_s: 90,
            context_tokens: None,
            price_usd: None,
            vision: Vision::Auto,
            temperature: None,
            extra_body: Map::new(),
        }
    }
}

/// Most further keys for one model. 8: an operator with more keys distributes them outside of Belay.
const KEYS_MAX: usize = 8;

/// Most fallback models. 8: a person waits for each one that fails.
const FALLBACKS_MAX: usize = 8;

/// A model that answers when the configured one cannot. Unset fields that concern every model (tokens, attempts, time
/// limits) are those of the configured model; other unset fields have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackConfig {
    /// The provider's name, as in [`LlmConfig::provider`], but neither `auto` nor `rehearsal`.
    pub provider: String,
    /// Name of the model. Absent: the provider's usual small model, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Address of the server. Absent: the provider's own server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Name of the environment variable with the key. Absent: the provider's usual variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// File with the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Size of the model's context in tokens. Absent: from our table, otherwise a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The price of the model. Absent: from our table; a server on this machine costs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_usd: Option<PriceUsd>,
    /// Whether the model accepts pictures.
    #[serde(default)]
    pub vision: Vision,
    /// Sampling temperature, 0 to 2. Absent: not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Fields that are added to the body of each request.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra_body: Map<String, Value>,
}

impl FallbackConfig {
    /// The settings as if this were the configured model.
    pub(crate) fn alone(&self, base: &LlmConfig) -> LlmConfig {
        LlmConfig {
            provider: self.provider.clone(),
            base_url: self.base_url.clone(),
            model: self.model.clone(),
            api_key_env: self.api_key_env.clone(),
            api_key_file: self.api_key_file.clone(),
            context_tokens: self.context_tokens,
            price_usd: self.price_usd,
            vision: self.vision,
            temperature: self.temperature,
            extra_body: self.extra_body.clone(),
            max_tokens: base.max_tokens,
            max_attempts: base.max_attempts,
            connect_timeout_s: base.connect_timeout_s,
            idle_timeout_s: base.idle_timeout_s,
            ..LlmConfig::default()
        }
    }

    /// Every problem, each starting with the key in the list.
    fn problems(&self, at: usize, base: &LlmConfig) -> Vec<String> {
        let key = format!("llm.fallbacks.{at}");
        if matches!(self.provider.as_str(), catalog::AUTO | catalog::REHEARSAL) {
            return vec![format!("{key}.provider: name a provider; `{}` cannot be a fallback", self.provider)];
        }
        // Problems of shared settings are reported once, with the configured model.
        let shared = |problem: &String| {
            ["llm.max_tokens", "llm.max_attempts", "llm.idle_timeout_s"].iter().any(|key| problem.starts_with(key))
        };
        let alone = self.alone(base).validate().into_iter().filter(|problem| !shared(problem));
        let mut problems: Vec<_> = alone.map(|problem| problem.replace("llm.", &format!("{key}."))).collect();
        let usual = catalog::find(&self.provider).map_or("?", |entry| entry.default_model);
        if self.model.is_none() && usual.is_empty() {
            problems.push(format!("{key}.model: name the model to use with the provider `{}`", self.provider));
        }
        problems
    }
}

/// Request fields that `extra_body` must not contain: each has its own setting, or is part of the conversation.
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
        check((1..=3600).contains(&self.idle_timeout_s), "llm.idle_timeout_s: must be 1 to 3600");
        check(self.context_tokens.is_none_or(|n| n >= 256), "llm.context_tokens: must be at least 256");
        check(self.temperature.is_none_or(|t| (0.0..=2.0).contains(&t)), "llm.temperature: must be 0 to 2");
        check(self.model.as_ref().is_none_or(|m| !m.trim().is_empty()), "llm.model: must not be empty");
        let keys = [self.api_key_env.as_ref().is_some_and(|name| !name.is_empty()), self.api_key_file.is_some()];
        check(keys != [true, true], "llm.api_key_file: give either this or llm.api_key_env, not both");
        check(self.api_key_envs.len() <= KEYS_MAX, &format!("llm.api_key_envs: at most {KEYS_MAX} further keys"));
        let empty = self.api_key_envs.iter().any(|name| name.trim().is_empty());
        check(!empty, "llm.api_key_envs: a name must not be empty");
        check(self.fallbacks.len() <= FALLBACKS_MAX, &format!("llm.fallbacks: at most {FALLBACKS_MAX}"));
        for name in RESERVED {
            check(
                !self.extra_body.contains_key(name),
                &format!("llm.extra_body.{name}: is set by Belay itself and cannot be given here"),
            );
        }
        problems.extend(self.price_usd.iter().flat_map(PriceUsd::problems));
        if self.provider != catalog::AUTO
            && let Err(error) = catalog::find(&self.provider)
        {
            problems.push(error.to_string());
        }
        if let Some(url) = &self.base_url
            && let Err(error) = crate::base_url::parse_base_url(url)
        {
            problems.push(error.to_string());
        }
        problems.extend(self.fallbacks.iter().enumerate().flat_map(|(at, fallback)| fallback.problems(at, self)));
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

/// The keys that the daemon found. Each is absent if its variable or file is absent or empty.
#[derive(Clone, Debug, Default)]
pub struct EnvKeys {
    /// From `OPENAI_API_KEY`. It is also sent to `llm.base_url` if that is set, as OpenAI's own clients do.
    pub openai: Option<SecretString>,
    /// From `ANTHROPIC_API_KEY`, likewise.
    pub anthropic: Option<SecretString>,
    /// From `llm.api_key_env` or `llm.api_key_file`. It takes precedence over the other two.
    pub configured: Option<SecretString>,
    /// From `llm.api_key_envs`, one for each name.
    pub further: Vec<Option<SecretString>>,
    /// One for each of `llm.fallbacks`.
    pub fallbacks: Vec<Option<SecretString>>,
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
            "max_tokens": 0, "max_attempts": 11, "idle_timeout_s": 0, "context_tokens": 1,
            "temperature": 3.0, "extra_body": {"messages": [], "stream": false},
            "api_key_envs": ["A", "", "C", "D", "E", "F", "G", "H", "I"],
            "fallbacks": [
                {"provider": "auto"}, {"provider": "groq", "base_url": "ftp://x", "api_key_env": "A", "api_key_file": "/b"},
                {"provider": "anthropic"}
            ]
        }))
        .expect("parses");
        let problems = config.validate();
        let keys: Vec<_> = problems.iter().map(|p| p.split(':').next().unwrap_or_default()).collect();
        assert_eq!(
            keys,
            [
                "llm.max_tokens",
                "llm.max_attempts",
                "llm.idle_timeout_s",
                "llm.context_tokens",
                "llm.temperature",
                "llm.model",
                "llm.api_key_file",
                "llm.api_key_envs",
                "llm.api_key_envs",
                "llm.extra_body.messages",
                "llm.extra_body.stream",
                "llm.provider",
                "llm.base_url",
                "llm.fallbacks.0.provider",
                "llm.fallbacks.1.api_key_file",
                "llm.fallbacks.1.base_url",
                "llm.fallbacks.1.model",
            ]
        );
        assert!(problems[11].contains("did you mean `anthropic`?"), "{problems:?}");
    }

    #[test]
    fn prices_are_dollars_for_a_million_tokens_and_other_units_are_named() {
        let problems = |price: Value| {
            let config: LlmConfig = serde_json::from_value(json!({ "price_usd": price })).unwrap();
            config.validate()
        };
        for price in [
            json!({"input": 3, "output": 15}),
            json!({"input": 0, "output": 0}),
            json!({"input": 0.15, "cached_input": 0.001, "output": 600}),
        ] {
            assert_eq!(problems(price.clone()), Vec::<String>::new(), "{price}");
        }
        for (price, keys) in [
            (json!({"input": 3_000_000, "output": 15_000_000}), vec!["input", "output"]),
            (json!({"input": 0.000003, "output": 15}), vec!["input"]),
            (json!({"input": 3, "cached_input": -1, "output": 15}), vec!["cached_input"]),
        ] {
            let problems = problems(price.clone());
            assert_eq!(problems.len(), keys.len(), "{problems:?}");
            for (problem, key) in problems.iter().zip(keys) {
                let unit = "the unit is US dollars for a million tokens";
                assert!(problem.starts_with(&format!("llm.price_usd.{key}: ")) && problem.contains(unit), "{problem}");
            }
        }
        let price: PriceUsd =
            serde_json::from_value(json!({"input": 3, "cached_input": 0.075, "output": 15.5})).unwrap();
        assert_eq!(price.exact(), Price { input: 3_000_000, cached_input: Some(75_000), output: 15_500_000 });
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(serde_json::from_value::<LlmConfig>(json!({"temprature": 1})).is_err());
        assert!(serde_json::from_value::<LlmConfig>(json!({"price_usd": {"input": 1, "output": 2, "x": 3}})).is_err());
    }
}
