//! Finds a model if none is configured, and completes the settings of a configured one.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tracing::debug;
use url::Url;

use crate::base_url::parse_base_url;
use crate::bounds::MODEL_LIST_MAX_BYTES;
use crate::catalog::{self, Format};
use crate::config::{EnvKeys, LlmConfig};
use crate::error::ModelsError;
use crate::http::{BodyEnd, below, client_for, local_client, read_body};
use crate::target::Target;

/// Longest time to ask the servers of this machine, all at once. 300 ms: a running server answers within a few
/// milliseconds.
const LOCAL_LIMIT: Duration = Duration::from_millis(300);

/// Longest time to ask a configured server for its list of models.
const LIST_LIMIT: Duration = Duration::from_secs(3);

/// Servers that people run on their own machine, in the order of preference: name and address.
const LOCAL_SERVERS: [(&str, &str); 3] = [
    ("Ollama", "http://127.0.0.1:11434/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
    ("LM Studio", "http://127.0.0.1:1234/v1"),
];

/// Settings without open questions.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The settings. `provider` is no longer `auto`, and `model` is set.
    pub config: LlmConfig,
    /// One line for the person about decisions that were made automatically.
    pub notice: Option<String>,
}

/// Resolves `provider = "auto"`. The first match of this list counts:
///
/// 1. `base_url` is set: an OpenAI-compatible server.
/// 2. A key exists. A configured key or OpenAI's: OpenAI. Anthropic's key: Anthropic.
/// 3. A server on this machine is running and has the model.
/// 4. The rehearsal, with a notice. It is never chosen if a provider, an address, a model, a key or a fallback is
///    configured.
///
/// Then sets the model if none is configured: the provider's usual one, otherwise the first one that the server offers.
///
/// `http` is the client of [`http_client`](crate::http_client). A server that does not answer is not an error here,
/// because it may start later.
///
/// # Errors
/// An unknown provider, a bad address, a missing key.
pub async fn resolve(config: LlmConfig, keys: &EnvKeys, http: &Client) -> Result<Resolved, ModelsError> {
    resolve_among(&LOCAL_SERVERS, config, keys, http).await
}

async fn resolve_among(
    servers: &[(&str, &str)],
    mut config: LlmConfig,
    keys: &EnvKeys,
    http: &Client,
) -> Result<Resolved, ModelsError> {
    let present = |key: &Option<SecretString>| key.as_ref().is_some_and(|key| !key.expose_secret().trim().is_empty());
    if config.provider == catalog::AUTO {
        if config.base_url.is_some() || present(&keys.configured) || present(&keys.openai) {
            config.provider = catalog::OPENAI.into();
        } else if present(&keys.anthropic) {
            config.provider = catalog::ANTHROPIC.into();
        } else if let Some(found) = find_local(servers, &config).await? {
            return Ok(found);
        } else if config.model.is_some() || !config.fallbacks.is_empty() {
            // A model is configured, so the rehearsal is not an option. The next function asks for the key.
            config.provider = catalog::OPENAI.into();
        } else {
            return Ok(rehearse(config));
        }
    }
    name_model(config, keys, http).await
}

/// Finds the first server of this machine that has the model, or any model if none is configured.
async fn find_local(servers: &[(&str, &str)], config: &LlmConfig) -> Result<Option<Resolved>, ModelsError> {
    let client = local_client(config)?;
    let asked = servers.iter().map(|(name, address)| {
        let client = &client;
        async move {
            let base = parse_base_url(address).ok()?;
            let list = list_models(client, &base, Format::OpenAi, None, LOCAL_LIMIT);
            let list = tokio::time::timeout(LOCAL_LIMIT, list).await.ok()?.ok()?;
            let model = match &config.model {
                Some(wanted) => list.iter().find(|model| model.id == *wanted),
                None => first_chat_model(&list),
            };
            Some((name, address, model?.clone()))
        }
    });
    let Some((name, address, model)) = join_all(asked).await.into_iter().flatten().next() else { return Ok(None) };
    let mut config = config.clone();
    config.provider = catalog::OPENAI.into();
    config.base_url = Some((*address).to_owned());
    model.choose(&mut config);
    let notice = format!("using the model {} of {name} at {address}; set [llm] to choose another", model.id);
    Ok(Some(Resolved { config, notice: Some(notice) }))
}

fn rehearse(mut config: LlmConfig) -> Resolved {
    config.provider = catalog::REHEARSAL.into();
    config.model = Some(catalog::REHEARSAL.into());
    let missing = config.api_key_env.as_deref().filter(|name| !name.is_empty());
    let missing = missing.map(|name| format!(" ({name} is not set)")).unwrap_or_default();
    let notice = format!(
        "no model found{missing}: answers come from the built-in rehearsal, which is no model. To get one, set \
         OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama, or set llm.base_url to a server's address"
    );
    Resolved { config, notice: Some(notice) }
}

async fn name_model(mut config: LlmConfig, keys: &EnvKeys, http: &Client) -> Result<Resolved, ModelsError> {
    let target = Target::new(&config, keys)?;
    let own_server = config.base_url.is_none();
    if config.model.is_some() || (own_server && !target.entry.default_model.is_empty()) {
        config.model.get_or_insert_with(|| target.entry.default_model.to_owned());
        return Ok(Resolved { config, notice: None });
    }
    let (Some(base), Format::OpenAi) = (&target.base, target.entry.format) else {
        // The lists of other formats have shapes that we do not read. `build` reports that a model must be set.
        config.model = Some(target.entry.default_model.to_owned()).filter(|name| !name.is_empty());
        return Ok(Resolved { config, notice: None });
    };
    let client = client_for(base, &config, http)?;
    let list = list_models(&client, base, target.entry.format, target.key, LIST_LIMIT).await;
    let notice = match list.as_deref().map(first_chat_model) {
        Ok(Some(first)) => {
            first.choose(&mut config);
            return Ok(Resolved {
                config,
                notice: Some(format!("llm.model is not set: using {}, the first one of {base}", first.id)),
            });
        }
        Ok(None) => format!("llm.model is not set, and {base} offers none"),
        Err(reason) => format!("llm.model is not set, and {base} does not say what it has ({reason})"),
    };
    // Servers with a single model ignore the name.
    config.model = Some("default".into());
    let notice = format!("{notice}: asking for \"default\"");
    Ok(Resolved { config, notice: Some(notice) })
}

/// One model of a server's list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Listed {
    /// Its name.
    pub(crate) id: String,
    /// Size of its context, as vLLM reports it.
    #[serde(default)]
    max_model_len: Option<u64>,
    /// Details that llama.cpp reports.
    #[serde(default)]
    meta: Option<Meta>,
}

#[derive(Clone, Debug, Deserialize)]
struct Meta {
    #[serde(default)]
    n_ctx: Option<u64>,
}

impl Listed {
    /// Puts the model into the settings, with its context size if that is not set and the server reports it.
    fn choose(&self, config: &mut LlmConfig) {
        let told = self.max_model_len.or(self.meta.as_ref().and_then(|meta| meta.n_ctx));
        config.context_tokens = config.context_tokens.or(told);
        config.model = Some(self.id.clone());
    }
}

/// The first model that is not obviously an embedding model.
fn first_chat_model(list: &[Listed]) -> Option<&Listed> {
    list.iter().find(|model| !model.id.contains("embed"))
}

/// Reads a server's list of models: `GET /models` in OpenAI's shape, which Anthropic shares.
///
/// # Errors
/// Why there is no such list, in a few words without the address or the key.
pub(crate) async fn list_models(
    client: &Client,
    base: &Url,
    format: Format,
    key: Option<&SecretString>,
    limit: Duration,
) -> Result<Vec<Listed>, ListError> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Listed>,
    }
    let mut request = client.get(below(base, "/models"));
    request = match (format, key.map(|key| key.expose_secret().trim())) {
        // Anthropic refuses its API key as a bearer token, which it expects for another kind of token. So each format
        // gets only its own header.
        (Format::Anthropic, Some(key)) => request.header("x-api-key", key).header("anthropic-version", "2023-06-01"),
        (_, Some(key)) => request.bearer_auth(key),
        (_, None) => request,
    };
    let response = match tokio::time::timeout(limit, request.send()).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(ListError::Unreachable(crate::failure::from_client(error).detail)),
        Err(_) => return Err(ListError::Unreachable(format!("no answer within {} ms", limit.as_millis()))),
    };
    let status = response.status();
    if !status.is_success() {
        return Err(ListError::Refused(status.as_u16()));
    }
    let (body, end) = read_body(response, MODEL_LIST_MAX_BYTES, limit).await;
    match (end, serde_json::from_slice::<List>(&body)) {
        (BodyEnd::Whole, Ok(list)) => Ok(list.data),
        (BodyEnd::Broken(detail), _) => Err(ListError::Unreachable(detail)),
        _ => {
            debug!(server = %base, "the list of models is in no shape that we know");
            Err(ListError::NotAList)
        }
    }
}

/// Why the models of a server are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListError {
    #[error("{0}")]
    Unreachable(String),
    #[error("HTTP {0}")]
    Refused(u16),
    #[error("its answer is no list of models")]
    NotAList,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::testing::{Script, Server, client, config};

    const LIST: &str =
        r#"{"object":"list","data":[{"id":"nomic-embed-text"},{"id":"llama","meta":{"n_ctx":4096}},{"id":"qwen"}]}"#;

    async fn resolved(servers: &[(&str, &str)], settings: serde_json::Value, keys: &EnvKeys) -> Resolved {
        resolve_among(servers, config(settings), keys, &client()).await.unwrap()
    }

    #[tokio::test]
    async fn auto_prefers_what_is_named_then_keys_then_this_machine() {
        let server = Server::start(vec![Script::json(200, LIST); 4]).await;
        let local = [("Ollama", server.url())];
        let both = EnvKeys { openai: Some("a".into()), anthropic: Some("b".into()), ..EnvKeys::default() };
        let second = EnvKeys { anthropic: Some("b".into()), ..EnvKeys::default() };
        let third = EnvKeys { configured: Some("c".into()), ..second.clone() };
        let none = EnvKeys::default();
        for (settings, keys, provider, model) in [
            (json!({"base_url": server.url()}), &second, "openai", "llama"),
            (json!({"base_url": server.url(), "model": "m"}), &none, "openai", "m"),
            (json!({}), &both, "openai", "gpt-4.1-mini"),
            (json!({}), &third, "openai", "gpt-4.1-mini"),
            (json!({}), &second, "anthropic", "claude-sonnet-4-6"),
            (json!({}), &none, "openai", "llama"),
            (json!({"model": "qwen"}), &none, "openai", "qwen"),
            (json!({"model": "claude-x"}), &second, "anthropic", "claude-x"),
            (json!({"provider": "rehearsal"}), &both, "rehearsal", "rehearsal"),
        ] {
            let found = resolved(&local, settings.clone(), keys).await.config;
            assert_eq!((found.provider.as_str(), found.model.as_deref()), (provider, Some(model)), "{settings}");
        }
    }

    #[tokio::test]
    async fn a_local_server_is_believed_only_when_it_answers_in_the_right_shape_and_in_time() {
        let web = Server::start(vec![Script::http(200, "text/html", "<html>")]).await;
        let refusing = Server::start(vec![Script::json(404, "{}")]).await;
        let empty = Server::start(vec![Script::json(200, r#"{"object":"list","data":[]}"#)]).await;
        let hanging = Server::start(vec![Script::hang()]).await;
        let good = Server::start(vec![Script::json(200, LIST)]).await;
        let bad = [("a", web.url()), ("b", refusing.url()), ("c", empty.url()), ("d", hanging.url())];
        // The hanging server never answers.
        let keys = EnvKeys::default();
        let found = resolved(&bad, json!({"api_key_env": "MY_KEY"}), &keys);
        let found = tokio::time::timeout(Duration::from_secs(60), found).await.expect("the search ends");
        assert_eq!(found.config.provider, "rehearsal");
        let notice = found.notice.unwrap();
        assert!(notice.contains("OPENAI_API_KEY") && notice.contains("MY_KEY is not set"), "{notice}");

        let hanging = Server::start(vec![Script::hang()]).await;
        let found = resolved(&[("d", hanging.url()), ("e", good.url())], json!({}), &EnvKeys::default()).await;
        assert_eq!((found.config.base_url.as_deref(), found.config.context_tokens), (Some(good.url()), Some(4096)));
        assert!(found.notice.unwrap().contains("using the model llama of e"));
    }

    #[tokio::test]
    async fn a_configured_server_that_is_away_is_never_replaced_by_the_rehearsal() {
        let found = resolved(&[], json!({"base_url": "http://127.0.0.1:9/v1"}), &EnvKeys::default()).await;
        assert_eq!((found.config.provider.as_str(), found.config.model.as_deref()), ("openai", Some("default")));
        assert!(found.notice.unwrap().contains("llm.model is not set"));
        for settings in [json!({"provider": "openai"}), json!({"model": "m"})] {
            let error = resolve_among(&[], config(settings), &EnvKeys::default(), &client()).await;
            assert!(error.unwrap_err().to_string().contains("OPENAI_API_KEY"));
        }
    }
}
