//! Anthropic's messages, as spoken by Anthropic and by llama.cpp.
//!
//! Source: Anthropic API reference, "Messages", "Streaming messages", "Prompt caching"; version 2023-06-01.

mod request;
mod response;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod validity;

use async_trait::async_trait;
use belay_protocol::{DeltaSink, ModelError, ModelInfo, ModelProvider, ModelReply, ModelRequest};
use reqwest::Client;
use secrecy::SecretString;
use url::Url;

use self::request::RequestShape;
use self::response::AnthropicDecoder;
use crate::config::LlmConfig;
use crate::error::ModelsError;
use crate::http::{Endpoint, below};
use crate::stream::exchange;

/// A server that speaks messages.
pub(crate) struct Anthropic {
    info: ModelInfo,
    endpoint: Endpoint,
    shape: RequestShape,
}

impl Anthropic {
    /// A provider at this base address, given with or without its `/v1`.
    ///
    /// # Errors
    /// [`ModelsError::BadKey`].
    pub(crate) fn new(
        info: ModelInfo,
        config: &LlmConfig,
        base: &Url,
        http: Client,
        key: Option<&SecretString>,
    ) -> Result<Self, ModelsError> {
        let base = if base.path().contains("/v1") { base.clone() } else { below(base, "/v1") };
        let endpoint = Endpoint::new(http, below(&base, "/messages"), config, key, ("x-api-key", ""))?
            .header("anthropic-version", "2023-06-01");
        let shape = RequestShape::new(config, info.vision);
        Ok(Self { info, endpoint, shape })
    }
}

#[async_trait]
impl ModelProvider for Anthropic {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let body = self.shape.body(&request, &self.info.model);
        exchange(&self.endpoint, body, AnthropicDecoder::default(), sink).await
    }
}
