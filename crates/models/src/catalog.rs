//! The known providers: name, wire format, address and default model.

use belay_text::near::nearest;

use crate::adapter::AdapterKind;
use crate::error::ModelsError;

/// The name that requests automatic selection.
pub(crate) const AUTO: &str = "auto";
/// Any server with OpenAI's Chat Completions API.
pub(crate) const OPENAI: &str = "openai";
/// Anthropic's Messages API.
pub(crate) const ANTHROPIC: &str = "anthropic";
/// The built-in, deterministic stand-in.
pub(crate) const REHEARSAL: &str = "rehearsal";

/// The wire format of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenAI's chat completions, with our own client.
    OpenAi,
    /// Anthropic's messages, with our own client.
    Anthropic,
    /// A format of the library `genai`.
    Library(AdapterKind),
    /// No wire format: the provider is built in.
    Rehearsal,
}

/// Whether a call needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRule {
    /// The provider's own server refuses a call without a key.
    Needed,
    /// A key is optional, as is usual for a local server.
    Optional,
}

/// One provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The name in `llm.provider`.
    pub(crate) name: &'static str,
    /// The wire format.
    pub(crate) format: Format,
    /// The address of its own server.
    pub(crate) base_url: &'static str,
    /// The model that is used if none is configured. Empty: the server is asked for its list of models.
    pub(crate) default_model: &'static str,
    /// Whether its own server requires a key.
    pub(crate) key: KeyRule,
}

impl Entry {
    /// Whether this build has no client for it.
    fn is_absent(&self) -> bool {
        !cfg!(feature = "more-providers") && matches!(self.format, Format::Library(_))
    }
}

const fn hosted(name: &'static str, format: Format, base_url: &'static str, default_model: &'static str) -> Entry {
    Entry { name, format, base_url, default_model, key: KeyRule::Needed }
}

const fn local(name: &'static str, format: Format, base_url: &'static str) -> Entry {
    Entry { name, format, base_url, default_model: "", key: KeyRule::Optional }
}

/// All providers. Those with the Chat Completions API use our own client even if the library supports them, because our
/// client bounds the answers and the library does not.
///
/// The default models answer without reasoning first. Reasoning counts against `llm.max_tokens`, and with 4096 tokens
/// it may leave nothing for the answer. Sources: the providers' documentation of their "OpenAI compatibility" base
/// URLs.
const ENTRIES: &[Entry] = &[
    hosted(OPENAI, Format::OpenAi, "https://api.openai.com/v1", "gpt-4.1-mini"),
    hosted(ANTHROPIC, Format::Anthropic, "https://api.anthropic.com", "claude-sonnet-4-6"),
    hosted(
        "gemini",
        Format::Library(AdapterKind::Gemini),
        "https://generativelanguage.googleapis.com/v1beta/",
        "gemini-2.5-flash",
    ),
    hosted("openai-responses", Format::Library(AdapterKind::OpenAIResp), "https://api.openai.com/v1/", "gpt-4.1-mini"),
    local("ollama-native", Format::Library(AdapterKind::Ollama), "http://127.0.0.1:11434/"),
    local("ollama", Format::OpenAi, "http://127.0.0.1:11434/v1"),
    local("llama.cpp", Format::OpenAi, "http://127.0.0.1:8080/v1"),
    local("lmstudio", Format::OpenAi, "http://127.0.0.1:1234/v1"),
    hosted("groq", Format::OpenAi, "https://api.groq.com/openai/v1", ""),
    hosted("xai", Format::OpenAi, "https://api.x.ai/v1", ""),
    hosted("deepseek", Format::OpenAi, "https://api.deepseek.com/v1", "deepseek-chat"),
    hosted("mistral", Format::OpenAi, "https://api.mistral.ai/v1", "mistral-small-latest"),
    hosted("openrouter", Format::OpenAi, "https://openrouter.ai/api/v1", ""),
    hosted("together", Format::OpenAi, "https://api.together.xyz/v1", ""),
    hosted("fireworks", Format::OpenAi, "https://api.fireworks.ai/inference/v1", ""),
    hosted("moonshot", Format::OpenAi, "https://api.moonshot.ai/v1", ""),
    hosted("zai", Format::OpenAi, "https://api.z.ai/api/paas/v4", ""),
    hosted("cohere", Format::OpenAi, "https://api.cohere.ai/compatibility/v1", ""),
    Entry {
        name: REHEARSAL,
        format: Format::Rehearsal,
        base_url: "",
        default_model: REHEARSAL,
        key: KeyRule::Optional,
    },
];

/// Finds the provider of this name.
///
/// # Errors
/// [`ModelsError::UnknownProvider`], with the most similar known name. [`ModelsError::AbsentProvider`] if this build has
/// no client for it.
pub(crate) fn find(name: &str) -> Result<&'static Entry, ModelsError> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| ModelsError::UnknownProvider {
        name: name.to_owned(),
        nearest: nearest(name, present().map(|entry| entry.name).chain([AUTO])).map(str::to_owned),
        known: present().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })?;
    if entry.is_absent() { Err(ModelsError::AbsentProvider { name: name.to_owned() }) } else { Ok(entry) }
}

/// The providers that this build has a client for.
fn present() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().filter(|entry| !entry.is_absent())
}

/// A known provider, for a person who chooses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderInfo {
    /// The name in `llm.provider`.
    pub name: &'static str,
    /// Whether its own server refuses calls without a key.
    pub needs_key: bool,
    /// The model that is used if none is configured; `None`: the server is asked for its list.
    pub default_model: Option<&'static str>,
}

impl From<&Entry> for ProviderInfo {
    fn from(entry: &Entry) -> Self {
        let default_model = Some(entry.default_model).filter(|name| !name.is_empty());
        Self { name: entry.name, needs_key: entry.key == KeyRule::Needed, default_model }
    }
}

/// All providers that this build has a client for, the most common ones first.
pub fn providers() -> impl Iterator<Item = ProviderInfo> {
    present().map(ProviderInfo::from)
}

/// The provider of this name.
///
/// # Errors
/// [`ModelsError::UnknownProvider`], with the most similar known name, or [`ModelsError::AbsentProvider`].
pub fn provider(name: &str) -> Result<ProviderInfo, ModelsError> {
    find(name).map(ProviderInfo::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_provider_is_told_the_nearest_one() {
        for (given, meant) in [
            ("antropic", Some("anthropic")),
            ("OpenAI", Some("openai")),
            ("ollma", Some("ollama")),
            ("auot", Some("auto")),
            ("xyzzy", None),
        ] {
            let Err(ModelsError::UnknownProvider { nearest, .. }) = find(given) else { panic!("{given} is known") };
            assert_eq!(nearest.as_deref(), meant, "{given}");
        }
    }

    #[test]
    fn every_address_parses_and_every_name_is_unique() {
        for entry in ENTRIES {
            assert_eq!(ENTRIES.iter().filter(|other| other.name == entry.name).count(), 1);
            assert!(entry.format == Format::Rehearsal || crate::base_url::parse_base_url(entry.base_url).is_ok());
        }
    }
}
