//! A request as a scripted model saw it.

use std::sync::Arc;

use belay_protocol::{Message, Thinking};

/// A request as the model saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenRequest {
    /// The system prompt.
    pub prompt: String,
    /// The names of the tools offered; `None` when the request carried no tools at all.
    pub tools: Option<Vec<String>>,
    /// The messages, shared with the context they came from.
    pub messages: Vec<Arc<Message>>,
    /// The model asked for, where it is not the configured one.
    pub model: Option<String>,
    /// How hard the model is to think.
    pub thinking: Option<Thinking>,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// Requests allowed for the call.
    pub max_attempts: u32,
}
