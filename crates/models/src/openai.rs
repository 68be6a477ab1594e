//! Client for OpenAI's Chat Completions API, which OpenAI and nearly every other server support.
//!
//! Source: OpenAI API reference, "Chat completions" and "Chat completions streaming".

mod request;
pub(crate) mod response;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod validity;

use async_trait::async_trait;
use belay_protocol::{DeltaSink, ModelError, ModelInfo, ModelProvider, ModelReply, ModelRequest, TextFormat};
use reqwest::Client;
use secrecy::SecretString;
use url::Url;

use self::request::RequestShape;
use self::response::OpenAiDecoder;
use crate::catalog::Format;
use crate::config::LlmConfig;
use crate::error::ModelsError;
use crate::formats::beside_tools;
use crate::http::{Endpoint, below};
use crate::stream::exchange;
use crate::thinking::ability;

/// A server with the Chat Completions API.
pub(crate) struct OpenAi {
    info: ModelInfo,
    endpoint: Endpoint,
    shape: RequestShape,
    /// Whether the form of an answer may be sent.
    forms: bool,
}

impl OpenAi {
    /// Makes a provider for this base address.
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
        let url = below(base, "/chat/completions");
        let endpoint = Endpoint::new(http, url, config, key, ("authorization", "Bearer "))?;
        let ability = ability(Format::OpenAi, &info.model, &config.extra_body);
        let shape = RequestShape::new(config, endpoint.url(), info.vision, ability);
        let forms = beside_tools(Format::OpenAi, endpoint.url(), &config.extra_body);
        Ok(Self { info, endpoint, shape, forms })
    }
}

#[async_trait]
impl ModelProvider for OpenAi {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn takes_format(&self, _format: &TextFormat) -> bool {
        self.forms
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let body = self.shape.body(&request, &self.info.model);
        let context_tokens = request.model.is_none().then_some(self.info.context_tokens);
        exchange(&self.endpoint, body, OpenAiDecoder::default(), context_tokens, sink).await
    }
}
