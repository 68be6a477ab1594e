//! Client for Anthropic's Messages API, which Anthropic and llama.cpp serve.
//!
//! Source: Anthropic API reference, "Messages", "Streaming messages", "Prompt caching"; version 2023-06-01.

mod request;
mod response;
#[cfg(test)]
mod tests;
mod thoughts;
#[cfg(test)]
mod validity;

use async_trait::async_trait;
use belay_protocol::{DeltaSink, ModelError, ModelInfo, ModelProvider, ModelReply, ModelRequest, TextFormat, Thinking};
use reqwest::Client;
use secrecy::SecretString;
use url::Url;

use self::request::RequestShape;
use self::response::AnthropicDecoder;
use self::thoughts::Thoughts;
use crate::catalog::Format;
use crate::config::LlmConfig;
use crate::error::ModelsError;
use crate::failure::refuse_unsupported;
use crate::formats::{beside_tools, is_closed};
use crate::http::{Endpoint, below};
use crate::stream::exchange;
use crate::thinking::ability;

/// A server with the Messages API.
pub(crate) struct Anthropic {
    info: ModelInfo,
    endpoint: Endpoint,
    shape: RequestShape,
    thoughts: Thoughts,
    /// Whether the form of an answer may be sent.
    forms: bool,
}

impl Anthropic {
    /// Makes a provider for this base address, given with or without its `/v1`.
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
        let ability = ability(Format::Anthropic, &info.model, &config.extra_body);
        let shape = RequestShape::new(config, info.vision, ability);
        let forms = beside_tools(Format::Anthropic, endpoint.url(), &config.extra_body);
        Ok(Self { info, endpoint, shape, thoughts: Thoughts::default(), forms })
    }
}

#[async_trait]
impl ModelProvider for Anthropic {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn takes_format(&self, format: &TextFormat) -> bool {
        self.forms && is_closed(&format.schema)
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let wanted = request.thinking.is_some_and(|level| level != Thinking::Off);
        refuse_unsupported(&self.info, &request)?;
        let replay = if wanted { self.thoughts.replay(request.messages) } else { None };
        let body = self.shape.body(&request, &self.info.model, replay.as_ref());
        let decoder = AnthropicDecoder::keeping(replay.as_ref().map(|_| &self.thoughts));
        let context_tokens = request.model.is_none().then_some(self.info.context_tokens);
        exchange(&self.endpoint, body, decoder, context_tokens, sink).await
    }
}
