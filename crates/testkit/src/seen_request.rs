//! A request that a scripted model has received.

use std::sync::Arc;

use belay_protocol::{Message, TextFormat, Thinking};

/// A request that the model has received.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenRequest {
    /// The system prompt.
    pub prompt: String,
    /// The names of the offered tools; `None` if the request had no tools at all.
    pub tools: Option<Vec<String>>,
    /// The messages, shared with the context of the run.
    pub messages: Vec<Arc<Message>>,
    /// The requested model, if it is not the configured one.
    pub model: Option<String>,
    /// The thinking level.
    pub thinking: Option<Thinking>,
    /// The form of the answer, by its name and schema.
    pub format: Option<TextFormat>,
    /// The maximum number of output tokens.
    pub max_tokens: u32,
    /// The maximum number of requests of the call.
    pub max_attempts: u32,
}
