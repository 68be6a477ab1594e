//! A build without the feature `more-providers` has no client for the formats of the library `genai`.

use std::sync::Arc;

use belay_protocol::{ModelInfo, ModelProvider};
use reqwest::Client;
use secrecy::SecretString;
use url::Url;

use crate::adapter::AdapterKind;
use crate::config::LlmConfig;
use crate::error::ModelsError;

/// Makes no provider.
///
/// # Errors
/// Always [`ModelsError::AbsentProvider`].
pub(crate) fn provider(
    info: ModelInfo,
    _config: &LlmConfig,
    _kind: AdapterKind,
    _base: &Url,
    _http: Client,
    _key: Option<&SecretString>,
) -> Result<Arc<dyn ModelProvider>, ModelsError> {
    Err(ModelsError::AbsentProvider { name: info.provider })
}
