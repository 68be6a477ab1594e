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

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use belay_protocol::{
    DeltaSink, ModelError, ModelErrorKind, ModelInfo, ModelProvider, ModelReply, ModelRequest, TextFormat, Thinking,
};
use reqwest::Client;
use secrecy::SecretString;
use tracing::warn;
use url::Url;

use self::request::{Marks, RequestShape};
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
    /// Whether the server has refused the marks of cacheable prefixes: it answered the same request without them.
    refuses_marks: AtomicBool,
}

/// Words of a refusal of the marks beside their name. Sources: `docs/reference/model-servers.md`. An error about their
/// number or place is none.
const REFUSED: [&str; 6] =
    ["extra inputs are not permitted", "not supported", "unsupported", "unknown", "unrecognized", "unexpected"];

/// Whether an error refuses the marks of cacheable prefixes.
fn is_about_marks(error: &ModelError) -> bool {
    let said = error.detail.to_lowercase();
    let refused = REFUSED.iter().any(|words| said.contains(words));
    error.kind == ModelErrorKind::BadRequest && said.contains("cache_control") && refused
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
        Ok(Self { info, endpoint, shape, thoughts: Thoughts::default(), forms, refuses_marks: AtomicBool::new(false) })
    }

    async fn ask(
        &self,
        request: &ModelRequest<'_>,
        marks: Marks,
        sink: &mut dyn DeltaSink,
    ) -> Result<ModelReply, ModelError> {
        let wanted = request.thinking.is_some_and(|level| level != Thinking::Off);
        let replay = if wanted { self.thoughts.replay(request.messages) } else { None };
        let body = self.shape.body(request, &self.info.model, replay.as_ref(), marks);
        let decoder = AnthropicDecoder::keeping(replay.as_ref().map(|_| &self.thoughts));
        let context_tokens = request.model.is_none().then_some(self.info.context_tokens);
        exchange(&self.endpoint, body, decoder, context_tokens, sink).await
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
        refuse_unsupported(&self.info, &request)?;
        if self.refuses_marks.load(Ordering::Relaxed) {
            return self.ask(&request, Marks::LeftOut, sink).await;
        }
        let error = match self.ask(&request, Marks::Sent, sink).await {
            Err(error) if is_about_marks(&error) => error,
            answer => return answer,
        };
        match self.ask(&request, Marks::LeftOut, sink).await {
            Ok(reply) => {
                // Only an answer proves that the marks were the cause.
                let model = &self.info.model;
                warn!(%model, "the server refuses the marks for its cache, which are not sent any more");
                self.refuses_marks.store(true, Ordering::Relaxed);
                Ok(ModelReply { attempts: reply.attempts + error.attempts, ..reply })
            }
            Err(last) => Err(ModelError { attempts: last.attempts + error.attempts, ..last }),
        }
    }
}
