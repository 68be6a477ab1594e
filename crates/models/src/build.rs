//! Builds a provider from settings and keys.

use std::sync::Arc;

use belay_protocol::options::SeedSupport;
use belay_protocol::{ModelInfo, ModelProvider, SamplingSupport};
use reqwest::Client;
use tracing::warn;
use url::Url;

use crate::anthropic::Anthropic;
use crate::backend::Backend;
use crate::candidates::{CandidateConfig, candidates};
use crate::catalog::{self, Format};
use crate::config::{EnvKeys, LlmConfig};
use crate::error::ModelsError;
use crate::fallback::Fallback;
use crate::genai;
use crate::http::client_for;
use crate::openai::OpenAi;
use crate::price_list::PriceList;
use crate::prices::context_and_price;
use crate::rehearsal::Rehearsal;
use crate::target::Target;
use crate::thinking::{Ability, Gate, ability};
use crate::vision::accepts_pictures;

/// Builds the provider that the settings name: the configured model with each of its keys, and the fallback models,
/// behind one port with retries. `http` is the client of [`http_client`](crate::http_client). Nothing is sent.
///
/// `prices` is read at each answer, so it can be replaced while the provider exists.
///
/// Further keys and fallback models without a key are left out and logged.
///
/// # Errors
/// Each error names the setting to change. `provider = "auto"` is [`ModelsError::UnknownProvider`] here: resolve it
/// first.
pub fn build(
    config: &LlmConfig,
    keys: &EnvKeys,
    http: Client,
    prices: &PriceList,
) -> Result<Arc<dyn ModelProvider>, ModelsError> {
    if catalog::find(&config.provider)?.format == Format::Rehearsal {
        return Ok(Arc::new(Rehearsal::new()));
    }
    let mut backends: Vec<Backend> = Vec::new();
    let mut servers: Vec<Url> = Vec::new();
    for (at, candidate) in candidates(config, keys).into_iter().enumerate() {
        let built = match &candidate.lacks {
            None => backend(&candidate, &mut servers, &http),
            Some(lacks) => {
                Err(ModelsError::MissingKey { provider: candidate.config.provider.clone(), hint: lacks.clone() })
            }
        };
        match built {
            Ok(backend) => backends.push(backend),
            // The configured model must exist, because its fallbacks are not what the person asked for.
            Err(missing @ ModelsError::MissingKey { .. }) if at > 0 => {
                warn!(model = %candidate.name, why = %missing, "a fallback model is left out");
            }
            Err(other) => return Err(other),
        }
    }
    Ok(Arc::new(Fallback::new(backends, prices.clone())))
}

/// Builds one candidate. `servers` are the servers so far.
fn backend(candidate: &CandidateConfig, servers: &mut Vec<Url>, http: &Client) -> Result<Backend, ModelsError> {
    let CandidateConfig { name, config, keys, .. } = candidate;
    let target = Target::new(config, keys)?;
    let model = config.model.as_deref().unwrap_or(target.entry.default_model);
    if model.is_empty() {
        return Err(ModelsError::MissingModel { provider: config.provider.clone() });
    }
    let Some(base) = &target.base else {
        return Ok(Backend::new(name, model, 0, Arc::new(Rehearsal::new()), Gate::new(Ability::Never)));
    };
    let (context_tokens, price) = context_and_price(config, base, model);
    let info = ModelInfo {
        provider: config.provider.clone(),
        model: model.to_owned(),
        context_tokens,
        price,
        rehearsal: false,
        vision: accepts_pictures(config.vision, target.entry.format, model),
        sampling: sampling(target.entry.format),
    };
    let http = client_for(base, config, http)?;
    let provider: Arc<dyn ModelProvider> = match target.entry.format {
        Format::OpenAi => Arc::new(OpenAi::new(info, config, base, http, target.key)?),
        Format::Anthropic => Arc::new(Anthropic::new(info, config, base, http, target.key)?),
        Format::Library(kind) => genai::provider(info, config, kind, base, http, target.key)?,
        Format::Rehearsal => Arc::new(Rehearsal::new()),
    };
    let server = servers.iter().position(|server| server == base).unwrap_or_else(|| {
        servers.push(base.clone());
        servers.len() - 1
    });
    let thinking = Gate::new(ability(target.entry.format, model, &config.extra_body));
    Ok(Backend::new(name, model, server, provider, thinking).with_key_from(key_from(config)))
}

/// The sampling options of a client that the format supports.
///
/// Source: Anthropic, Messages API: there is no seed; "Extended thinking": temperature and `top_p` must not be changed.
/// The library accepts seeds from 0 on.
fn sampling(format: Format) -> SamplingSupport {
    match format {
        Format::OpenAi | Format::Rehearsal => SamplingSupport::ALL,
        Format::Anthropic => SamplingSupport { seed: SeedSupport::No, while_thinking: false },
        Format::Library(_) => SamplingSupport { seed: SeedSupport::FromZero, while_thinking: true },
    }
}

/// The source of the key of these settings, for the person who has to check it.
fn key_from(config: &LlmConfig) -> String {
    let usual = match config.provider.as_str() {
        catalog::OPENAI => "OPENAI_API_KEY",
        catalog::ANTHROPIC => "ANTHROPIC_API_KEY",
        _ => "llm.api_key_env",
    };
    match (&config.api_key_file, &config.api_key_env) {
        (Some(file), _) => format!("the file {}", file.display()),
        (None, Some(name)) => name.clone(),
        (None, None) => usual.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::testing::{client, config};

    fn keys() -> EnvKeys {
        EnvKeys { openai: Some("sk-o".into()), anthropic: Some("sk-a".into()), ..EnvKeys::default() }
    }

    fn info_of(settings: serde_json::Value, keys: &EnvKeys) -> Result<ModelInfo, String> {
        let config = config(settings);
        build(&config, keys, client(), &PriceList::default())
            .map(|provider| provider.info().clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_is_demanded_where_the_provider_demands_it() {
        let none = EnvKeys::default();
        let empty = EnvKeys { openai: Some(" ".into()), ..EnvKeys::default() };
        let configured = EnvKeys { configured: Some("k".into()), ..EnvKeys::default() };
        for (settings, keys, error) in [
            (json!({"provider": "openai"}), &none, "OPENAI_API_KEY"),
            (json!({"provider": "openai"}), &empty, "OPENAI_API_KEY"),
            (json!({"provider": "anthropic"}), &none, "ANTHROPIC_API_KEY"),
            (json!({"provider": "gemini"}), &keys(), "llm.api_key_env"),
            (json!({"provider": "groq", "api_key_env": "G"}), &keys(), "variable G"),
            (json!({"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}), &none, ""),
            (json!({"provider": "openai"}), &keys(), ""),
            (json!({"provider": "gemini"}), &configured, ""),
            (json!({"provider": "groq"}), &configured, "llm.model"),
            (json!({"provider": "rehearsal"}), &none, ""),
            (json!({"provider": "auto"}), &keys(), "`auto` is unknown"),
        ] {
            let told = info_of(settings.clone(), keys).err().unwrap_or_default();
            assert!(told.contains(error) && told.is_empty() == error.is_empty(), "{settings}: {told}");
        }
    }

    #[test]
    fn a_provider_says_what_it_is() {
        let info = info_of(json!({"provider": "anthropic"}), &keys()).unwrap();
        assert_eq!((info.provider.as_str(), info.model.as_str()), ("anthropic", "claude-sonnet-4-6"));
        assert_eq!((info.context_tokens, info.rehearsal, info.vision), (1_000_000, false, true));
        let info = info_of(json!({"provider": "anthropic", "vision": false}), &keys()).unwrap();
        assert!(!info.vision);
        let info =
            info_of(json!({"provider": "ollama", "model": "m", "context_tokens": 4096}), &EnvKeys::default()).unwrap();
        assert_eq!((info.context_tokens, info.price.map(|p| p.output)), (4096, Some(0)));
        assert!(info_of(json!({"provider": "rehearsal"}), &EnvKeys::default()).unwrap().rehearsal);
    }

    #[test]
    fn each_key_and_each_model_that_stands_in_is_a_candidate_if_its_key_is_there() {
        let settings = config(json!({
            "provider": "openai", "api_key_envs": ["A", "B", "C"],
            "fallbacks": [
                {"provider": "anthropic"},
                {"provider": "groq", "model": "x", "api_key_env": "G"},
                {"provider": "openai", "base_url": "http://127.0.0.1:1", "model": "gpt-4.1-mini"},
            ],
        }));
        let keys = EnvKeys {
            further: vec![Some("a".into()), None, Some("c".into())],
            fallbacks: vec![Some("f".into()), Some(" ".into()), None],
            ..keys()
        };
        let provider = build(&settings, &keys, client(), &PriceList::of(&settings, &keys)).unwrap();
        let names: Vec<_> = provider.candidates().into_iter().map(|candidate| candidate.name).collect();
        let expected = [
            "gpt-4.1-mini by openai",
            "gpt-4.1-mini by openai (key 2)",
            "gpt-4.1-mini by openai (key 4)",
            "claude-sonnet-4-6 by anthropic",
            "gpt-4.1-mini by openai at http://127.0.0.1:1",
        ];
        assert_eq!(names, expected);
        assert_eq!(provider.models(), ["gpt-4.1-mini", "claude-sonnet-4-6"]);
        assert_eq!(provider.dearest().map(|price| price.input), Some(3_000_000));

        let lacking: Vec<_> = candidates(&settings, &keys).into_iter().filter_map(|it| it.lacks).collect();
        assert_eq!(lacking, ["the environment variable B is not set", "the environment variable G is not set"]);
        let without_the_first = EnvKeys { openai: None, ..keys };
        assert!(
            build(&settings, &without_the_first, client(), &PriceList::default()).is_err(),
            "the configured model is not replaced"
        );
    }

    #[test]
    fn a_key_that_cannot_be_sent_is_refused() {
        let keys = EnvKeys { openai: Some("a\nb".into()), ..EnvKeys::default() };
        assert!(info_of(json!({"provider": "openai"}), &keys).unwrap_err().contains("line break"));
    }
}
