//! Finds the provider that the settings name, its address, and the key.

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::base_url::parse_base_url;
use crate::catalog::{self, Entry, Format, KeyRule};
use crate::config::{EnvKeys, LlmConfig};
use crate::error::ModelsError;

/// The provider that the settings name, its address, and its key.
pub(crate) struct Target<'a> {
    pub(crate) entry: &'static Entry,
    /// `None` for the built-in provider.
    pub(crate) base: Option<Url>,
    pub(crate) key: Option<&'a SecretString>,
}

impl<'a> Target<'a> {
    pub(crate) fn new(config: &LlmConfig, keys: &'a EnvKeys) -> Result<Self, ModelsError> {
        let entry = catalog::find(&config.provider)?;
        if entry.format == Format::Rehearsal {
            return Ok(Self { entry, base: None, key: None });
        }
        let base = parse_base_url(config.base_url.as_deref().unwrap_or(entry.base_url))?;
        // An empty variable is not a key.
        let usable = |key: &'a Option<SecretString>| key.as_ref().filter(|key| !key.expose_secret().trim().is_empty());
        let usual = match entry.name {
            catalog::OPENAI | "openai-responses" => usable(&keys.openai),
            catalog::ANTHROPIC => usable(&keys.anthropic),
            _ => None,
        };
        let key = usable(&keys.configured).or(usual);
        // A server other than the provider's own may not need a key.
        if key.is_none() && entry.key == KeyRule::Needed && config.base_url.is_none() {
            return Err(ModelsError::MissingKey { provider: entry.name.to_owned(), hint: key_hint(entry, config) });
        }
        Ok(Self { entry, base: Some(base), key })
    }
}

fn key_hint(entry: &Entry, config: &LlmConfig) -> String {
    let configured = config.api_key_env.as_deref().filter(|name| !name.is_empty());
    match (configured, entry.name) {
        (Some(name), _) => format!("set the environment variable {name}, which llm.api_key_env names"),
        (None, catalog::OPENAI | "openai-responses") => "set the environment variable OPENAI_API_KEY".into(),
        (None, catalog::ANTHROPIC) => "set the environment variable ANTHROPIC_API_KEY".into(),
        (None, _) => "name the environment variable that holds it in llm.api_key_env".into(),
    }
}
