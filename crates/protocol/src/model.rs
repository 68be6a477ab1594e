//! Models: what is asked of a provider, what comes back, and the port.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ids::CallId;
use crate::message::{Message, ToolCall, WireCache};
use crate::options::{Sampling, SamplingSupport, Thinking};
use crate::refusal::{ProviderFault, ProviderRefusal};
use crate::tool::ToolSet;

/// A system prompt, serialised once.
#[derive(Debug, Default)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Its serialised form.
    pub wire: WireCache,
}

impl Prompt {
    /// A prompt of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), wire: WireCache::default() }
    }
}

/// One logical call to a model. Borrowed: building one copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The system prompt.
    pub prompt: &'a Prompt,
    /// The tools offered. `None`: the request carries no tools at all, which is what `force_text` means.
    pub tools: Option<&'a ToolSet>,
    /// The context, oldest first: each tool call has one result, behind its batch. The inner loop's `normalise` makes it so.
    pub messages: &'a [Arc<Message>],
    /// The model's name, where the session chose another than the configured one.
    pub model: Option<&'a str>,
    /// How hard the model is to think; `None`: as it does by itself.
    pub thinking: Option<Thinking>,
    /// How it chooses its words, where a client has asked for that.
    pub sampling: Option<&'a Sampling>,
    /// Most tokens to generate, at least 1.
    pub max_tokens: u32,
    /// Requests that may be sent for this logical call, all layers together, at least 1.
    pub max_attempts: u32,
}

/// A whole answer: the stream has reached its terminal event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The text, possibly empty.
    pub text: String,
    /// The calls, in the model's order.
    pub tool_calls: Vec<ToolCall>,
    /// Why the model stopped.
    pub finish: FinishReason,
    /// What the provider says it charged; `None` when it said nothing.
    pub usage: Option<Usage>,
    /// Requests that were sent, failed ones included.
    pub attempts: u32,
    /// Of the failed ones, those that the provider had begun to answer, so that it may charge for them.
    pub abandoned: u32,
    /// Which of several models answered, by its [`Candidate::name`]; `None` where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// What the model that answered costs, where there are several; `None`: what [`ModelInfo::price`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Why another model answered than the one that was to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<FellBack>,
}

/// That another model answered than the one that was to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FellBack {
    /// The one that was to, by its [`Candidate::name`].
    pub from: String,
    /// What keeps it from answering: a word of [`ModelErrorKind::word`].
    pub why: String,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was done.
    #[default]
    Stop,
    /// It wants tools run.
    ToolCalls,
    /// It was cut off by the limit of tokens.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
}

/// Tokens of one or more calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Of these, tokens that the provider read from its cache.
    #[serde(default)]
    pub cached_input: u64,
    /// Tokens generated, reasoning included.
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

/// A passing fragment of an answer. May be dropped by whoever watches; the reply is what counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// What a tool has to say while it is at work.
    Tool {
        /// The call.
        call_id: CallId,
        /// The newest piece of its output.
        text: String,
    },
}

/// Whether anybody received a fragment. A call whose fragment has been heard is never sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nobody watches.
    Nobody,
    /// It has been published.
    Somebody,
}

/// Takes the fragments of a stream as they come. Never waits, so that a slow watcher cannot slow a run.
pub trait DeltaSink: Send {
    /// A request goes out to a provider: from now on it is paid for, also where the call is dropped. Not said by each
    /// provider, but by what sends requests again and pauses between them.
    fn sent(&mut self) {}
    /// A piece of text.
    fn text(&mut self, piece: &str) -> Heard;
    /// A piece of reasoning.
    fn reasoning(&mut self, piece: &str) -> Heard;
    /// Pieces of tool calls have come, of so many bytes. They are shown to nobody, and paid for like text.
    fn call_bytes(&mut self, _bytes: usize) {}
    /// The provider has reported what the request uses, so far or in all. A later report replaces an earlier one.
    fn reported(&mut self, _usage: &Usage) {}
    /// The call is about to be sent again, since nobody has heard anything: what was given so far is void.
    fn restart(&mut self) {}
}

/// A sink that nobody listens to.
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

/// What a provider is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelInfo {
    /// The provider's name: `openai`, `anthropic`, `rehearsal`, …
    pub provider: String,
    /// The configured model.
    pub model: String,
    /// Size of the model's context in tokens; an assumption where it is not known.
    pub context_tokens: u64,
    /// What it costs. `None`: not known, and counted as nothing.
    pub price: Option<Price>,
    /// Whether this is the built-in stand-in rather than a model.
    pub rehearsal: bool,
    /// Whether it can see: pictures are sent to it.
    pub vision: bool,
    /// What of a client's [`Sampling`] its interface takes.
    #[serde(skip)]
    pub sampling: SamplingSupport,
}

/// Prices in millionths of a US dollar for a million tokens (so 3 USD per million tokens is 3 000 000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens read.
    pub input: u64,
    /// Tokens read from the provider's cache; `input` when absent.
    #[serde(default)]
    pub cached_input: Option<u64>,
    /// Tokens generated.
    pub output: u64,
}

impl Price {
    /// What nothing costs.
    pub const FREE: Self = Self { input: 0, cached_input: None, output: 0 };

    /// The higher of two prices, each kind of tokens by itself.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let cached = |price: &Self| price.cached_input.unwrap_or(price.input);
        Self {
            input: self.input.max(other.input),
            cached_input: Some(cached(self).max(cached(other))),
            output: self.output.max(other.output),
        }
    }

    /// The cost of some tokens in millionths of a US dollar, rounded up.
    pub fn cost_micro_usd(&self, usage: &Usage) -> u64 {
        let cached = usage.cached_input.min(usage.input);
        let sum = u128::from(usage.input - cached) * u128::from(self.input)
            + u128::from(cached) * u128::from(self.cached_input.unwrap_or(self.input))
            + u128::from(usage.output) * u128::from(self.output);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// One of the models, or of the keys to one, that a provider may ask, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name for people: `gpt-4.1-mini by openai`, `gpt-4.1-mini by openai (key 2)`.
    pub name: String,
    /// Why it is not asked now; `None`: it is.
    pub cooling: Option<Cooling>,
}

/// Why a candidate is not asked for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooling {
    /// For how long still. Zero: its next request is a trial.
    pub left: Duration,
    /// What it failed with.
    pub why: ModelErrorKind,
}

/// A model that can be asked. Wrappers (retry, metering) implement it too.
#[async_trait]
pub trait ModelProvider: Send + Sync {
    /// What this is; constant for the life of the provider.
    fn info(&self) -> &ModelInfo;

    /// The names of the models that a session may choose, the configured one first.
    fn models(&self) -> Vec<String> {
        vec![self.info().model.clone()]
    }

    /// Asks, streaming, and returns the whole answer. Fragments go to `sink` while they come.
    ///
    /// # Errors
    /// See [`ModelError::retry`]. A stream that ends without its terminal event is an error of kind
    /// [`ModelErrorKind::Network`], never an answer.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection to the provider. What the provider charges for the part it had
    /// generated is estimated by what the sink was given.
    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError>;

    /// The most that an answer can cost, whichever model gives it: what is reserved before a call goes by it. `None`: no
    /// price is known.
    fn dearest(&self) -> Option<Price> {
        self.info().price
    }

    /// What may be asked, in the order of preference, and how each stands now. Empty where there is only one.
    fn candidates(&self) -> Vec<Candidate> {
        Vec::new()
    }
}

/// A call that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub struct ModelError {
    /// What went wrong.
    pub kind: ModelErrorKind,
    /// The provider's words, bounded and without secrets; for the log.
    pub detail: String,
    /// Requests that were sent.
    pub attempts: u32,
    /// Of these, those that the provider had begun to answer, so that it may charge for them.
    pub abandoned: u32,
    /// Whether a fragment of the answer has been published.
    pub heard: bool,
    /// What the provider said itself; `None` where it said nothing, such as a broken connection.
    pub refusal: Option<Box<ProviderRefusal>>,
}

/// What went wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Too many requests (429). The delay is the provider's own, when it gave one.
    RateLimited {
        /// How long the provider asked to wait.
        retry_after: Option<Duration>,
    },
    /// The provider is overloaded or broken (5xx, 529).
    Overloaded {
        /// How long the provider asked to wait.
        retry_after: Option<Duration>,
    },
    /// The key is missing, wrong, or may not do this (401, 403), or is out of credit (402).
    Auth,
    /// The context is longer than the model takes.
    ContextTooLong,
    /// The request is refused for any other reason (400, 404, 422).
    BadRequest,
    /// No connection, a broken or silent stream, or an answer that is not the protocol.
    Network,
}

impl ModelErrorKind {
    /// The word for logs, the status and metrics.
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

/// Whether to send a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It would fail again, or must not be repeated.
    No,
    /// At once or after the usual back-off.
    Now,
    /// Not before this delay.
    After(Duration),
}

impl ModelError {
    /// An error of the first and only request, before anything was answered.
    pub fn new(kind: ModelErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), attempts: 1, abandoned: 0, heard: false, refusal: None }
    }

    /// Whether the same request may be sent again. Never once a fragment has been heard.
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
        // The provider's own words tell a used-up quota from a wrong key, where there are any.
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
                "the model provider reports an error of its own (after 1 request): x",
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
