//! Selects the model.

use std::sync::Arc;

use belay_models::{EnvKeys, LlmConfig, ModelsError, PriceList};
use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_program::net::{is_plain_loopback, plain_client};
use belay_protocol::ModelProvider;
use belay_settings::Settings;
use belay_settings::secrets::Secrets;

/// The selected model.
pub struct Chosen {
    /// The provider for calling it.
    pub provider: Arc<dyn ModelProvider>,
    /// A notice about the selection, for the person.
    pub notice: Option<String>,
    /// The settings with every `auto` resolved.
    pub config: LlmConfig,
    /// The shared HTTP client of the provider.
    pub http: reqwest::Client,
    /// The keys that were found.
    pub keys: EnvKeys,
    /// The prices of the models, which can be replaced while the models are in use.
    pub prices: PriceList,
}

impl Chosen {
    /// Resolves `auto` and builds the provider. Sends nothing to a provider. Only `auto` without a key checks whether a
    /// server listens on loopback.
    ///
    /// # Errors
    /// The settings are unusable: no key, no model, no such provider (78).
    pub async fn find(settings: &Settings, secrets: &Secrets) -> Result<Self, Failure> {
        let keys = secrets.keys.clone();
        let http = if stays_here(&settings.llm, &keys) {
            plain_client().build().map_err(|error| Failure::new(Exit::Internal, words(&error)))?
        } else {
            belay_models::http_client(&settings.llm).map_err(|error| refuse(&error))?
        };
        let resolved =
            belay_models::resolve(settings.llm.clone(), &keys, &http).await.map_err(|error| refuse(&error))?;
        let prices = PriceList::of(&resolved.config, &keys);
        let provider = belay_models::build(&resolved.config, &keys, http.clone(), &prices);
        let provider = provider.map_err(|error| refuse(&error))?;
        Ok(Self { provider, notice: resolved.notice, config: resolved.config, http, keys, prices })
    }
}

/// Whether these settings can lead to no provider outside this machine. Then the shared client is not used, because
/// servers on loopback have a client of their own.
fn stays_here(llm: &LlmConfig, keys: &EnvKeys) -> bool {
    let mut addresses = llm.fallbacks.iter().map(|fallback| fallback.base_url.as_deref());
    if !addresses.all(|address| address.is_some_and(is_plain_loopback)) {
        return false;
    }
    let no_key = keys.openai.is_none() && keys.anthropic.is_none() && keys.configured.is_none();
    match (llm.provider.as_str(), llm.base_url.as_deref()) {
        ("rehearsal", _) => true,
        ("auto", None) => no_key && llm.model.is_none(),
        (_, Some(address)) => is_plain_loopback(address),
        (_, None) => false,
    }
}

fn refuse(error: &ModelsError) -> Failure {
    let failure = Failure::new(Exit::Refused, words(error));
    match error {
        ModelsError::Client(_) | ModelsError::Library(_) => Failure { exit: Exit::Internal, ..failure },
        _ => failure.next("to try Belay without a model: --set llm.provider=rehearsal"),
    }
}
