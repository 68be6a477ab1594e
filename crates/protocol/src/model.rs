//! Models: requests to a provider, replies, and the port.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client_tools::CallRules;
use crate::ids::CallId;
use crate::message::{Message, ToolCall, WireCache};
use crate::options::{Sampling, SamplingSupport, Thinking};
use crate::refusal::{ProviderFault, ProviderRefusal};
use crate::tool_set::ToolSet;

/// A system prompt. It is serialised once.
#[derive(Debug, Default)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Its serialised form.
    pub wire: WireCache,
}

impl Prompt {
    /// A prompt with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), wire: WireCache::default() }
    }
}

/// One logical call to a model. All fields are borrowed: building a request copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The system prompt.
    pub prompt: &'a Prompt,
    /// The offered tools. `None`: the request has no tools at all, which is the meaning of `force_text`.
    pub tools: Option<&'a ToolSet>,
    /// The context, oldest first. Each tool call has one result, directly behind its batch: `normalise` of the inner
    /// loop ensures it.
    pub messages: &'a [Arc<Message>],
    /// The model's name, if the session has chosen another one than the configured one.
    pub model: Option<&'a str>,
    /// The thinking level; `None`: the default of the model.
    pub thinking: Option<Thinking>,
    /// Sampling parameters, if a client has set any.
    pub sampling: Option<&'a Sampling>,
    /// The form of a text that is an answer. A provider sends it if its model can still call tools then.
    pub format: Option<&'a TextFormat>,
    /// The rules of a client for the calls of the reply; `None`: the model is free.
    pub calls: Option<CallRules<'a>>,
    /// Whether the pictures of the messages are sent. Otherwise, and to a model without vision, a line says that they are
    /// not shown.
    pub send_pictures: bool,
    /// Whether system messages are sent behind other messages. Otherwise they are sent in the role of the user, with a
    /// line that says that they are not from the user. It concerns wire formats that have such a place.
    pub later_system: bool,
    /// The maximum number of output tokens, at least 1.
    pub max_tokens: u32,
    /// The maximum number of requests for this logical call over all layers, at least 1.
    pub max_attempts: u32,
}

/// The form of a text: JSON that is valid by a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct TextFormat {
    /// A name for the provider: letters, digits and `_`.
    pub name: String,
    /// A JSON Schema of an object.
    pub schema: Value,
}

/// A complete reply: the stream has reached its terminal event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The text, possibly empty.
    pub text: String,
    /// The calls, in the model's order.
    pub tool_calls: Vec<ToolCall>,
    /// The reason for which the model stopped.
    pub finish: FinishReason,
    /// The usage that the provider has reported; `None` if it has reported none.
    pub usage: Option<Usage>,
    /// The requests that were sent, including failed ones.
    pub attempts: u32,
    /// The failed requests that the provider had begun to answer, and may charge for.
    pub abandoned: u32,
    /// The [`Candidate::name`] of the model that answered; `None` if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The price of the model that answered, if there are several; `None`: [`ModelInfo::price`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The reason for which a fallback model answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<FellBack>,
}

/// A fallback: another model answered than the requested one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FellBack {
    /// The [`Candidate::name`] of the requested model.
    pub from: String,
    /// The failure of the requested model: a name of [`ModelErrorKind::word`].
    pub why: String,
}

/// The reason for which a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The reply is complete.
    #[default]
    Stop,
    /// The model calls tools.
    ToolCalls,
    /// The token limit has cut the reply off.
    Length,
    /// The provider has withheld the rest.
    ContentFilter,
    /// The server ended the reply without a reason. The reply has text and no calls, and its end may be missing.
    Unsaid,
}

/// The tokens of one or more calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// The input tokens that the provider has read from its cache.
    #[serde(default)]
    pub cached_input: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
}

impl Usage {
    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached_input: self.cached_input.saturating_add(other.cached_input),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// A fragment of an answer. A reader may lose fragments; the reply is authoritative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Delta {
    /// A piece of the answer's text.
    Text {
        /// Step of the run, from 1.
        step: u32,
        /// The piece.
        text: String,
    },
    /// A piece of the model's reasoning.
    Reasoning {
        /// Step of the run, from 1.
        step: u32,
        /// The piece.
        text: String,
    },
    /// A progress message of a running tool.
    Tool {
        /// The call.
        call_id: CallId,
        /// The newest piece of its output.
        text: String,
    },
}

/// Whether a reader has received a fragment. A call is never sent again after a reader has received one of its
/// fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// There is no reader.
    Nobody,
    /// It has been published.
    Somebody,
}

/// Receives the fragments of a stream. Never waits, so that a slow reader cannot slow a run.
pub trait DeltaSink: Send {
    /// A request is sent to a provider, which charges for it from now on, even if the call is dropped. Called by the
    /// layer that repeats requests and pauses between them, not by each provider.
    fn sent(&mut self) {}
    /// A piece of text.
    fn text(&mut self, piece: &str) -> Heard;
    /// A piece of reasoning.
    fn reasoning(&mut self, piece: &str) -> Heard;
    /// Parts of tool calls have arrived, with this length in bytes. They are not shown, and are charged like text.
    fn call_bytes(&mut self, _bytes: usize) {}
    /// The provider has reported the usage of the request so far. A later report replaces an earlier one.
    fn reported(&mut self, _usage: &Usage) {}
    /// The call is about to be repeated, since no reader has received a fragment. All fragments so far are void.
    fn restart(&mut self) {}
}

/// A sink without a reader.
#[derive(Debug, Default)]
pub struct NoSink;

impl DeltaSink for NoSink {
    fn text(&mut self, _piece: &str) -> Heard {
        Heard::Nobody
    }
    fn reasoning(&mut self, _piece: &str) -> Heard {
        Heard::Nobody
    }
}

/// The properties of a provider and its model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelInfo {
    /// The provider's name: `openai`, `anthropic`, `rehearsal`, …
    pub provider: String,
    /// The configured model.
    pub model: String,
    /// The size of the model's context in tokens; an assumption if it is not known.
    pub context_tokens: u64,
    /// Its price. `None`: not known, and counted as zero.
    pub price: Option<Price>,
    /// Whether this is the built-in rehearsal instead of a model.
    pub rehearsal: bool,
    /// Whether it has vision: pictures are sent to it.
    pub vision: bool,
    /// The parameters of a client's [`Sampling`] that its interface supports.
    #[serde(skip)]
    pub sampling: SamplingSupport,
}

/// Prices in millionths of a US dollar for a million tokens (so 3 USD per million tokens is 3 000 000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens.
    pub input: u64,
    /// Input tokens from the provider's cache; absent: the price of `input`.
    #[serde(default)]
    pub cached_input: Option<u64>,
    /// Output tokens.
    pub output: u64,
}

impl Price {
    /// The price zero.
    pub const FREE: Self = Self { input: 0, cached_input: None, output: 0 };

    /// The higher one of two prices, for each kind of tokens.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let cached = |price: &Self| price.cached_input.unwrap_or(price.input);
        Self {
            input: self.input.max(other.input),
            cached_input: Some(cached(self).max(cached(other))),
            output: self.output.max(other.output),
        }
    }

    /// The cost of this usage in millionths of a US dollar, rounded up.
    pub fn cost_micro_usd(&self, usage: &Usage) -> u64 {
        let cached = usage.cached_input.min(usage.input);
        let sum = u128::from(usage.input - cached) * u128::from(self.input)
            + u128::from(cached) * u128::from(self.cached_input.unwrap_or(self.input))
            + u128::from(usage.output) * u128::from(self.output);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// One of the models or API keys that a provider may use, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name for people: `gpt-4.1-mini by openai`, `gpt-4.1-mini by openai (key 2)`.
    pub name: String,
    /// The reason for which it is not used now; `None`: it is used.
    pub cooling: Option<Cooling>,
}

/// The state of a candidate whose circuit breaker is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooling {
    /// The remaining time. Zero: its next request is a trial.
    pub left: Duration,
    /// Its last failure.
    pub why: ModelErrorKind,
}

/// A model that can be called. Wrappers (retry, metering) implement it too.
#[async_trait]
pub trait ModelProvider: Send + Sync {
    /// The properties of the provider; constant for its life.
    fn info(&self) -> &ModelInfo;

    /// The names of the models that a session may choose, the configured one first.
    fn models(&self) -> Vec<String> {
        vec![self.info().model.clone()]
    }

    /// Whether [`ModelRequest::format`] may be sent: the server accepts this form, and its model can still call tools.
    fn takes_format(&self, _format: &TextFormat) -> bool {
        false
    }

    /// Calls the model, streaming, and returns the complete reply. Fragments go to `sink` as they arrive.
    ///
    /// # Errors
    /// See [`ModelError::retry`]. A stream that ends without its terminal event is an error of kind
    /// [`ModelErrorKind::Network`], never a reply.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection to the provider is closed. The charge for the generated part is
    /// estimated from the calls to the sink.
    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError>;

    /// The highest price of all models that may answer. The reservation before a call uses it. `None`: no price is
    /// known.
    fn dearest(&self) -> Option<Price> {
        self.info().price
    }

    /// The candidates in order of preference, with their present state. Empty if there is only one.
    fn candidates(&self) -> Vec<Candidate> {
        Vec::new()
    }
}

/// A failed call.
#[derive(Debug, Clone, thiserror::Error)]
pub struct ModelError {
    /// The kind of failure.
    pub kind: ModelErrorKind,
    /// The provider's message, of limited length and without secrets; for the log.
    pub detail: String,
    /// The requests that were sent.
    pub attempts: u32,
    /// The requests that the provider had begun to answer, and may charge for.
    pub abandoned: u32,
    /// Whether a fragment of the answer was published.
    pub heard: bool,
    /// The provider's own error; `None` if it sent none, as with a broken connection.
    pub refusal: Option<Box<ProviderRefusal>>,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Too many requests (429).
    RateLimited {
        /// The delay that the provider asks for, if any.
        retry_after: Option<Duration>,
    },
    /// The provider is overloaded or fails (5xx, 529).
    Overloaded {
        /// The delay that the provider asks for, if any.
        retry_after: Option<Duration>,
    },
    /// The API key is missing, wrong or not authorised (401, 403), or has no credit (402).
    Auth,
    /// The context exceeds the model's limit.
    ContextTooLong,
    /// The request is refused for another reason (400, 404, 422).
    BadRequest,
    /// There is no connection, the stream is broken or silent, or the answer violates the protocol.
    Network,
}

impl ModelErrorKind {
    /// The name in logs, the status and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::Auth => "auth",
            Self::ContextTooLong => "context_too_long",
            Self::BadRequest => "bad_request",
            Self::Network => "network",
        }
    }
}

/// Whether to repeat a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No: it would fail again, or must not be repeated.
    No,
    /// Yes, at once or after the usual back-off.
    Now,
    /// Yes, not before this delay.
    After(Duration),
}

impl ModelError {
    /// An error of the first and only request, before any part of an answer.
    pub fn new(kind: ModelErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), attempts: 1, abandoned: 0, heard: false, refusal: None }
    }

    /// The line for an operator: what is wrong, and what to do.
    pub fn line(&self) -> String {
        match &self.refusal {
            Some(refusal) => refusal.line(),
            None if self.kind == ModelErrorKind::Network => {
                let advice = "Check llm.base_url, and that the server runs; `belay check` asks it.";
                format!("The model could not be used: {}. {advice}", self.detail.trim_end_matches('.'))
            }
            None => self.to_string(),
        }
    }

    /// Whether the same request may be repeated. Never after a reader has received a fragment.
    pub fn retry(&self) -> Retry {
        if self.heard {
            return Retry::No;
        }
        match self.kind {
            ModelErrorKind::RateLimited { retry_after: Some(delay) }
            | ModelErrorKind::Overloaded { retry_after: Some(delay) } => Retry::After(delay),
            ModelErrorKind::RateLimited { .. } | ModelErrorKind::Overloaded { .. } | ModelErrorKind::Network => {
                Retry::Now
            }
            ModelErrorKind::Auth | ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest => Retry::No,
        }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The provider's own error distinguishes a used-up quota from a wrong key.
        let what = match (self.kind, &self.refusal) {
            (ModelErrorKind::Network, _) => "the model provider cannot be reached or broke off",
            (_, Some(refusal)) => refusal.fault.log_words(),
            (ModelErrorKind::RateLimited { .. }, None) => ProviderFault::RateLimit.log_words(),
            (ModelErrorKind::Overloaded { .. }, None) => ProviderFault::Overloaded.log_words(),
            (ModelErrorKind::Auth, None) => ProviderFault::Key.log_words(),
            (ModelErrorKind::ContextTooLong, None) => ProviderFault::ContextTooLong.log_words(),
            (ModelErrorKind::BadRequest, None) => ProviderFault::Request.log_words(),
        };
        write!(
            f,
            "{what} (after {} request{}): {}",
            self.attempts,
            if self.attempts == 1 { "" } else { "s" },
            self.detail
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_line_says_what_the_provider_said() {
        let refusal = |fault| {
            let (code, message, key_from) = Default::default();
            Some(Box::new(ProviderRefusal { fault, status: None, code, message, key_from }))
        };
        let (auth, broken) = (ModelErrorKind::Auth, ModelErrorKind::Overloaded { retry_after: None });
        for (kind, refusal, words) in [
            (
                auth,
                refusal(ProviderFault::Quota),
                "the model provider's quota or credit is used up (after 1 request): x",
            ),
            (auth, None, "the model provider rejects the API key (after 1 request): x"),
            (
                broken,
                refusal(ProviderFault::Server),
                "the model provider reports an internal error (after 1 request): x",
            ),
            (broken, None, "the model provider is overloaded (after 1 request): x"),
        ] {
            assert_eq!(ModelError { refusal, ..ModelError::new(kind, "x") }.to_string(), words);
        }
    }

    #[test]
    fn costs_are_rounded_up_and_cached_tokens_cost_their_own_price() {
        let price = Price { input: 3_000_000, cached_input: Some(300_000), output: 15_000_000 };
        let usage = Usage { input: 1000, cached_input: 900, output: 10 };
        assert_eq!(price.cost_micro_usd(&usage), 300 + 270 + 150);
        assert_eq!(price.cost_micro_usd(&Usage { input: 0, cached_input: 5, output: 0 }), 0);
        assert_eq!(
            Price { input: 1, cached_input: None, output: 1 }.cost_micro_usd(&Usage {
                input: 1,
                cached_input: 0,
                output: 0
            }),
            1
        );
    }

    #[test]
    fn nothing_heard_is_sent_again() {
        let mut error = ModelError::new(ModelErrorKind::Network, "reset");
        assert_eq!(error.retry(), Retry::Now);
        error.heard = true;
        assert_eq!(error.retry(), Retry::No);
        assert_eq!(ModelError::new(ModelErrorKind::Auth, "401").retry(), Retry::No);
    }
}
