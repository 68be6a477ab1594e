//! Checks the configured server without a model call, for `belay check`.

use std::time::Duration;

use belay_text::near::nearest;
use reqwest::Client;

use crate::catalog::{self, Format};
use crate::config::{EnvKeys, LlmConfig};
use crate::discover::{ListError, list_models};
use crate::error::ModelsError;
use crate::http::{below, client_for};
use crate::target::Target;

/// Longest total time of a check.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeReport {
    /// The server is available and has the model.
    Ready,
    /// The server is available and does not have the model. Calls will fail.
    ModelUnknown {
        /// The most similar name, if one is similar.
        nearest: Option<String>,
        /// The number of its models.
        offered: usize,
    },
    /// The server is available but does not list its models. Calls may work.
    Unlisted {
        /// Why there is no list.
        reason: String,
    },
    /// The server refuses the key.
    KeyRefused {
        /// Its status, 401 or 403.
        status: u16,
    },
    /// The server cannot be reached.
    Unreachable {
        /// The cause.
        reason: String,
    },
    /// There is no server to check: the built-in rehearsal, or a format whose list we do not read.
    NotProbed,
}

/// What a server says about its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The names of its models, in its order. May be empty.
    Models(Vec<String>),
    /// The server is available but does not list its models. Calls may work.
    Unlisted {
        /// Why there is no list.
        reason: String,
    },
    /// The server refuses the key.
    KeyRefused {
        /// Its status, 401 or 403.
        status: u16,
    },
    /// The server cannot be reached.
    Unreachable {
        /// The cause.
        reason: String,
    },
    /// There is no server to ask: the built-in rehearsal, or a format whose list we do not read.
    NotAsked,
}

/// Asks the configured server for its models, for at most 5 s. Costs no tokens. `provider` must not be `auto`.
///
/// # Errors
/// Settings that can never work, as in [`build`](crate::build()).
pub async fn offered_models(config: &LlmConfig, keys: &EnvKeys, http: &Client) -> Result<Offer, ModelsError> {
    let target = Target::new(config, keys)?;
    let base = match (&target.base, target.entry.format) {
        (Some(base), Format::OpenAi) => base.clone(),
        (Some(base), Format::Anthropic) if base.path().contains("/v1") => base.clone(),
        (Some(base), Format::Anthropic) => below(base, "/v1"),
        _ => return Ok(Offer::NotAsked),
    };
    let client = client_for(&base, config, http)?;
    // The head and the body of the list each get half of the time.
    let list = list_models(&client, &base, target.entry.format, target.key, PROBE_LIMIT / 2).await;
    Ok(match list {
        Ok(list) => Offer::Models(list.into_iter().map(|listed| listed.id).collect()),
        Err(ListError::Refused(status @ (401 | 403))) => Offer::KeyRefused { status },
        Err(ListError::Unreachable(reason)) => Offer::Unreachable { reason },
        Err(other) => Offer::Unlisted { reason: other.to_string() },
    })
}

/// Whether a call with these settings has a key.
pub fn has_key(config: &LlmConfig, keys: &EnvKeys) -> bool {
    Target::new(config, keys).is_ok_and(|target| target.key.is_some())
}

/// Whether the server lists its models to a request without a key, so that the list does not show whether a key is
/// valid. Takes at most 5 s.
pub async fn lists_without_key(config: &LlmConfig, http: &Client) -> bool {
    let Ok(entry) = catalog::find(&config.provider) else { return false };
    // An address of its own makes the key optional.
    let base_url = Some(config.base_url.clone().unwrap_or_else(|| entry.base_url.to_owned()));
    let config = LlmConfig { base_url, ..config.clone() };
    matches!(offered_models(&config, &EnvKeys::default(), http).await, Ok(Offer::Models(_)))
}

/// Checks the server, for at most 5 s. The settings are those of [`resolve`](crate::resolve). Costs no tokens.
///
/// # Errors
/// Settings that can never work, as in [`build`](crate::build()).
pub async fn probe(config: &LlmConfig, keys: &EnvKeys, http: &Client) -> Result<ProbeReport, ModelsError> {
    let model = config.model.as_deref().unwrap_or(catalog::find(&config.provider)?.default_model);
    Ok(match offered_models(config, keys, http).await? {
        // A server with one model uses that model for every name.
        Offer::Models(list) if list.len() == 1 || list.iter().any(|listed| listed == model) => ProbeReport::Ready,
        Offer::Models(list) => ProbeReport::ModelUnknown {
            nearest: nearest(model, list.iter().map(String::as_str)).map(str::to_owned),
            offered: list.len(),
        },
        Offer::Unlisted { reason } => ProbeReport::Unlisted { reason },
        Offer::KeyRefused { status } => ProbeReport::KeyRefused { status },
        Offer::Unreachable { reason } => ProbeReport::Unreachable { reason },
        Offer::NotAsked => ProbeReport::NotProbed,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::testing::{Script, Server, client, config};

    #[tokio::test]
    async fn a_look_tells_what_is_wrong() {
        let two = r#"{"data":[{"id":"llama-3"},{"id":"qwen"}]}"#;
        let unknown =
            |nearest: Option<&str>| ProbeReport::ModelUnknown { nearest: nearest.map(str::to_owned), offered: 2 };
        for (script, model, report) in [
            (Script::json(200, two), "qwen", ProbeReport::Ready),
            (Script::json(200, two), "lama-3", unknown(Some("llama-3"))),
            (Script::json(200, two), "xyzzy", unknown(None)),
            (Script::json(200, r#"{"data":[{"id":"/models/a.gguf"}]}"#), "any", ProbeReport::Ready),
            (Script::json(401, "{}"), "qwen", ProbeReport::KeyRefused { status: 401 }),
            (Script::json(404, "{}"), "qwen", ProbeReport::Unlisted { reason: "HTTP 404".into() }),
            (Script::http(200, "text/html", "<p>"), "qwen", {
                ProbeReport::Unlisted { reason: "its answer is no list of models".into() }
            }),
        ] {
            for provider in ["openai", "anthropic"] {
                let server = Server::start(vec![script.clone()]).await;
                let config = config(json!({"provider": provider, "base_url": server.url(), "model": model}));
                assert_eq!(probe(&config, &EnvKeys::default(), &client()).await.unwrap(), report, "{provider}");
                assert!(server.requests()[0].starts_with("GET /v1/models "), "{:?}", server.requests());
            }
        }
    }

    #[tokio::test]
    async fn a_list_that_everybody_gets_says_nothing_about_a_key() {
        let list = || Script::json(200, r#"{"data":[{"id":"a"},{"id":"b"}]}"#);
        for (second, public) in [(list(), true), (Script::json(401, "{}"), false)] {
            let server = Server::start(vec![list(), second]).await;
            let config = config(json!({"provider": "openai", "base_url": server.url()}));
            let keys = EnvKeys { configured: Some("sk-key".into()), ..EnvKeys::default() };
            assert!(has_key(&config, &keys) && !has_key(&config, &EnvKeys::default()));
            let offer = offered_models(&config, &keys, &client()).await.unwrap();
            assert_eq!(offer, Offer::Models(vec!["a".to_owned(), "b".to_owned()]));
            assert_eq!(lists_without_key(&config, &client()).await, public);
            let requests = server.requests();
            assert!(requests[0].contains("sk-key") && !requests[1].contains("sk-key"), "{requests:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_away_is_unreachable_and_the_rehearsal_is_not_looked_at() {
        let away = config(json!({"provider": "openai", "base_url": "http://127.0.0.1:9", "model": "m"}));
        let report = probe(&away, &EnvKeys::default(), &client()).await.unwrap();
        assert!(matches!(report, ProbeReport::Unreachable { .. }), "{report:?}");
        let rehearsal = config(json!({"provider": "rehearsal"}));
        assert_eq!(probe(&rehearsal, &EnvKeys::default(), &client()).await.unwrap(), ProbeReport::NotProbed);
    }
}
