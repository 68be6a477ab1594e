//! Checks the configured server without a model call, for `belay check`.

use std::time::Duration;

use belay_text::near::nearest;
use reqwest::Client;

use crate::catalog::Format;
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

/// Checks the server, for at most 5 s. The settings are those of [`resolve`](crate::resolve). Costs no tokens.
///
/// # Errors
/// Settings that can never work, as in [`build`](crate::build()).
pub async fn probe(config: &LlmConfig, keys: &EnvKeys, http: &Client) -> Result<ProbeReport, ModelsError> {
    let target = Target::new(config, keys)?;
    let base = match (&target.base, target.entry.format) {
        (Some(base), Format::OpenAi) => base.clone(),
        (Some(base), Format::Anthropic) if base.path().contains("/v1") => base.clone(),
        (Some(base), Format::Anthropic) => below(base, "/v1"),
        _ => return Ok(ProbeReport::NotProbed),
    };
    let client = client_for(&base, config, http)?;
    // The head and the body of the list each get half of the time.
    let list = list_models(&client, &base, target.entry.format, target.key, PROBE_LIMIT / 2).await;
    let model = config.model.as_deref().unwrap_or(target.entry.default_model);
    Ok(match list {
        // A server with one model uses that model for every name.
        Ok(list) if list.iter().any(|listed| listed.id == model) || list.len() == 1 => ProbeReport::Ready,
        Ok(list) => ProbeReport::ModelUnknown {
            nearest: nearest(model, list.iter().map(|listed| &*listed.id)).map(str::to_owned),
            offered: list.len(),
        },
        Err(ListError::Refused(status @ (401 | 403))) => ProbeReport::KeyRefused { status },
        Err(ListError::Unreachable(reason)) => ProbeReport::Unreachable { reason },
        Err(other) => ProbeReport::Unlisted { reason: other.to_string() },
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
    async fn a_server_that_is_away_is_unreachable_and_the_rehearsal_is_not_looked_at() {
        let away = config(json!({"provider": "openai", "base_url": "http://127.0.0.1:9", "model": "m"}));
        let report = probe(&away, &EnvKeys::default(), &client()).await.unwrap();
        assert!(matches!(report, ProbeReport::Unreachable { .. }), "{report:?}");
        let rehearsal = config(json!({"provider": "rehearsal"}));
        assert_eq!(probe(&rehearsal, &EnvKeys::default(), &client()).await.unwrap(), ProbeReport::NotProbed);
    }
}
