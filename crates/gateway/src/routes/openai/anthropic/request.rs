//! Parses a request for a message, and makes the chat request of it that it means.
//!
//! Source: Anthropic's API reference, "Messages". Unused fields are ignored.

use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::{Thinking, format, object, param};
use super::input::Messages;
use super::tools;
use crate::foreign::shown;
use crate::routes::openai::OpenAiError;
use crate::routes::openai::request::ChatRequest;
use crate::routes::openai::translated::Places;

/// A request for a message; unused fields are left out.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MessagesRequest {
    model: Option<String>,
    /// Messages of the roles `user`, `assistant` and `system`, each with a text or a list of blocks.
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Map<String, Value>>"))]
    messages: Option<Value>,
    /// A text, or a list of text blocks.
    #[cfg_attr(test, schemars(with = "Option<SystemForm>"))]
    system: Option<Value>,
    pub(super) stream: Option<bool>,
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    max_tokens: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<f64>"))]
    temperature: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<f64>"))]
    top_p: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<Vec<String>>"))]
    stop_sequences: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<Vec<serde_json::Map<String, Value>>>"))]
    tools: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    tool_choice: Option<Value>,
    /// Whether the model thinks, and whether the answer shows it.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    thinking: Option<Value>,
    /// `format` is the form of the answer, `effort` the level of thinking.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    output_config: Option<Value>,
    /// `user_id` is a label of a person, `session` the key of the session.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    metadata: Option<Value>,
}

/// The forms of `system`.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "SystemPrompt", untagged)]
#[allow(dead_code)]
enum SystemForm {
    Text(String),
    Blocks(Vec<serde_json::Map<String, Value>>),
}

/// A request in the terms of a chat request.
pub(super) struct Meant {
    pub(super) chat: ChatRequest,
    /// The names of this API for what an error of the chat request names.
    pub(super) places: Places,
    /// Whether the answer shows the model's reasoning.
    pub(super) shows_thinking: bool,
}

impl MessagesRequest {
    /// The chat request that it means.
    ///
    /// # Errors
    /// 400: a field or a block of a known type has the wrong form. The error names it as this API does.
    pub(super) fn into_chat(self) -> Result<Meant, OpenAiError> {
        let mut messages = Messages::default();
        messages.add_system(self.system)?;
        messages.add_all(self.messages)?;
        let mut output = object(self.output_config, "output_config")?;
        let metadata = object(self.metadata, "metadata")?;
        let thinking = Thinking::of(self.thinking, output.remove("effort"))?;
        let (tools, hosted) = tools::tools(self.tools.unwrap_or_default());
        let choice = tools::choice(self.tool_choice, &hosted)?;
        let mut chat = json!({
            "model": self.model,
            "stream": self.stream,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": self.stop_sequences,
            "tool_choice": choice.chosen,
            "parallel_tool_calls": choice.parallel,
            "response_format": format(output.remove("format"))?,
            "reasoning_effort": thinking.effort,
        });
        chat["metadata"] = Value::Object(metadata);
        chat["tools"] = tools;
        chat["messages"] = Value::Array(messages.list);
        let places = Places::new("messages", messages.places, param);
        let chat = serde_json::from_value(chat).map_err(|error| {
            let error = shown(&error.to_string());
            OpenAiError::invalid("messages", "invalid_type", format!("the request has the wrong shape: {error}"))
        })?;
        Ok(Meant { chat, places, shows_thinking: thinking.is_shown })
    }
}

/// 400: this parameter has the wrong form.
pub(super) fn wrong(param: impl AsRef<str>, message: &'static str) -> OpenAiError {
    OpenAiError::invalid(param, "invalid_type", message)
}
