//! The candidates that the settings name: the configured model with each of its keys, then the fallback models.

use secrecy::{ExposeSecret, SecretString};

use crate::catalog;
use crate::config::{EnvKeys, LlmConfig};

/// One combination of server, model and key from the settings.
#[derive(Clone, Debug)]
pub struct CandidateConfig {
    /// Name for people: `gpt-4.1-mini by openai`, `gpt-4.1-mini by openai (key 2)`.
    pub name: String,
    /// The settings, as if it were the only candidate.
    pub config: LlmConfig,
    /// Its key, as if it were the only candidate.
    pub keys: EnvKeys,
    /// Why it cannot be called, as the end of a sentence: its key is named in the settings but missing.
    pub lacks: Option<String>,
}

/// Lists the candidates in the order of preference, at least one, including those without their key. The settings are
/// those of [`resolve`](crate::resolve).
pub fn candidates(config: &LlmConfig, keys: &EnvKeys) -> Vec<CandidateConfig> {
    let mut list: Vec<CandidateConfig> = Vec::new();
    let mut add = |config: LlmConfig, keys: EnvKeys, suffix: &str, lacks: Option<String>| {
        let usual = catalog::find(&config.provider).map_or("", |entry| entry.default_model);
        let model = config.model.as_deref().unwrap_or(usual);
        let mut name = format!("{model} by {}{suffix}", config.provider);
        if list.iter().any(|other| other.name == name) {
            name.push_str(&format!(" at {}", config.base_url.as_deref().unwrap_or("its own address")));
        }
        list.push(CandidateConfig { name, config, keys, lacks });
    };
    let first = LlmConfig { api_key_envs: Vec::new(), fallbacks: Vec::new(), ..config.clone() };
    let first_keys = EnvKeys { further: Vec::new(), fallbacks: Vec::new(), ..keys.clone() };
    add(first.clone(), first_keys, "", None);
    for (at, env) in config.api_key_envs.iter().enumerate() {
        let key = keys.further.get(at).cloned().flatten();
        let lacks = is_missing(&key).then(|| format!("the environment variable {env} is not set"));
        let config = LlmConfig { api_key_env: Some(env.clone()), api_key_file: None, ..first.clone() };
        let keys = EnvKeys { configured: key, ..EnvKeys::default() };
        add(config, keys, &format!(" (key {})", at + 2), lacks);
    }
    for (at, fallback) in config.fallbacks.iter().enumerate() {
        let key = keys.fallbacks.get(at).cloned().flatten();
        let named = fallback.api_key_env.as_deref().filter(|name| !name.is_empty());
        let lacks =
            named.filter(|_| is_missing(&key)).map(|name| format!("the environment variable {name} is not set"));
        let keys = EnvKeys { configured: key, ..EnvKeys::default() };
        add(fallback.alone(config), keys, "", lacks);
    }
    list
}

fn is_missing(key: &Option<SecretString>) -> bool {
    key.as_ref().is_none_or(|key| key.expose_secret().trim().is_empty())
}
