//! Which model answers.

use std::sync::Arc;

use belay_models::{EnvKeys, LlmConfig, ModelsError};
use belay_protocol::ModelProvider;

use super::words;
use crate::exit::{Exit, Failure};
use crate::secrets::Secrets;
use crate::settings::Settings;

/// The model that was chosen.
pub(crate) struct Chosen {
    /// Asks it.
    pub(crate) provider: Arc<dyn ModelProvider>,
    /// What the person should know about the choice.
    pub(crate) notice: Option<String>,
    /// The settings with every `auto` decided.
    pub(crate) config: LlmConfig,
    /// The shared HTTP client of the provider.
    pub(crate) http: reqwest::Client,
    /// The keys that were found.
    pub(crate) keys: EnvKeys,
}

impl Chosen {
    /// Decides `auto` and builds the provider. Asks no provider for anything; only `auto` without a key looks whether a
    /// server listens on loopback.
    ///
    /// # Errors
    /// The settings cannot be served: no key, no model, no such provider (78).
    pub(crate) async fn find(settings: &Settings, secrets: &Secrets) -> Result<Self, Failure> {
        let http = belay_models::http_client(&settings.llm).map_err(|error| refuse(&error))?;
        let keys = secrets.keys.clone();
        let resolved =
            belay_models::resolve(settings.llm.clone(), &keys, &http).await.map_err(|error| refuse(&error))?;
        let provider = belay_models::build(&resolved.config, &keys, http.clone()).map_err(|error| refuse(&error))?;
        Ok(Self { provider, notice: resolved.notice, config: resolved.config, http, keys })
    }
}

fn refuse(error: &ModelsError) -> Failure {
    let failure = Failure::new(Exit::Refused, words(error));
    match error {
        ModelsError::Client(_) | ModelsError::Library(_) => Failure { exit: Exit::Internal, ..failure },
        _ => failure.next("to try Belay without a model: --set llm.provider=rehearsal"),
    }
}
