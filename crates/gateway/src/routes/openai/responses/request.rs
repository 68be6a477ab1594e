//! Parses a request for a response, and makes the chat request of it that it means.
//!
//! Source: the OpenAI API reference, "Responses". Unused fields are ignored.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::id::{Kind, Model};
use super::input::Messages;
use super::tools;
use crate::foreign::shown;
use crate::routes::openai::request::ChatRequest;
use crate::routes::openai::{OpenAiError, SESSION_HEADER};

/// A request for a response; unused fields are left out.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ResponsesRequest {
    pub(super) model: Option<String>,
    /// A text, or a list of items.
    #[cfg_attr(test, schemars(with = "Option<InputForm>"))]
    pub(super) input: Option<Value>,
    /// Instructions for this response.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) instructions: Option<Value>,
    pub(super) previous_response_id: Option<String>,
    /// The session: its key, or an object with the key as `id`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) conversation: Option<Value>,
    stream: Option<bool>,
    /// Whether the run goes on without its client, which reads the response later.
    background: Option<bool>,
    /// Whether the response can be read again; by default it can.
    store: Option<bool>,
    /// Everything else: the fields that are passed on, and those that are only shown again.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    pub(super) others: Map<String, Value>,
}

/// The forms of `input`.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "ResponseInput", untagged)]
#[allow(dead_code)]
enum InputForm {
    Text(String),
    Items(Vec<Map<String, Value>>),
}

impl ResponsesRequest {
    pub(super) fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(super) fn is_background(&self) -> bool {
        self.background.unwrap_or(false)
    }

    /// What matters of the request later.
    ///
    /// # Errors
    /// 400: a combination that cannot be answered.
    pub(super) fn kind(&self) -> Result<Kind, OpenAiError> {
        let (background, stored) = (self.is_background(), self.store.unwrap_or(true));
        if background && !stored {
            let message = "a response in the background is read later, so it needs store";
            return Err(OpenAiError::invalid("background", "invalid_value", message));
        }
        let kind = self.others.get("text").and_then(|text| text["format"]["type"].as_str());
        let json = kind.is_some_and(|kind| kind != "text");
        Ok(Kind { stored, background, json, model: Model::of(self.model.as_deref()) })
    }

    /// Refuses a request that names a session beside that of an earlier response.
    pub(super) fn refuse_two_sessions(&self, headers: &HeaderMap) -> Result<(), OpenAiError> {
        let is_named = self.conversation.as_ref().is_some_and(|named| !named.is_null());
        let has_header = headers.get(&SESSION_HEADER).is_some_and(|key| !key.is_empty());
        if self.previous_response_id.is_some() && (is_named || has_header) {
            let message = "give one of previous_response_id, conversation and the header X-Belay-Session";
            return Err(OpenAiError::invalid("previous_response_id", "mutually_exclusive_parameters", message));
        }
        Ok(())
    }

    /// Whether the input has answers of its own, so that it is no mere continuation: a message of the assistant, or a call
    /// behind a message of the user.
    pub(super) fn brings_answers(&self) -> bool {
        let items = self.input.as_ref().and_then(Value::as_array).into_iter().flatten();
        let mut of_user = false;
        for item in items {
            match (item["role"].as_str(), item["type"].as_str()) {
                (Some("assistant"), _) => return true,
                (None, Some("function_call")) if of_user => return true,
                (Some("user"), _) => of_user = true,
                _ => {}
            }
        }
        false
    }

    /// The chat request with these messages. `session`: the session that the request names in another way.
    pub(super) fn into_chat(self, messages: Messages, session: Option<String>) -> Result<ChatRequest, OpenAiError> {
        let Self { model, conversation, stream, mut others, .. } = self;
        let mut field = |name: &str| others.remove(name).unwrap_or_default();
        let mut chat = json!({
            "model": model,
            "messages": messages.list,
            "stream": stream,
            "conversation": session.map_or(conversation.unwrap_or_default(), Value::String),
            "tools": tools::tools(field("tools")),
            "tool_choice": tools::choice(field("tool_choice")),
            "response_format": tools::format(within(field("text"), "format")),
            "reasoning_effort": within(field("reasoning"), "effort"),
            "max_completion_tokens": field("max_output_tokens"),
        });
        for same in ["parallel_tool_calls", "temperature", "top_p", "metadata", "seed", "stop", "moderation"] {
            chat[same] = field(same);
        }
        serde_json::from_value(chat).map_err(|error| {
            let error = shown(&error.to_string());
            OpenAiError::invalid("input", "invalid_type", format!("the request has the wrong shape: {error}"))
        })
    }

    /// The instructions as messages, which come before the input.
    pub(super) fn instructions(&self) -> Option<&str> {
        self.instructions.as_ref()?.as_str().filter(|text| !text.is_empty())
    }
}

/// A field of an object; null of anything else.
fn within(value: Value, name: &str) -> Value {
    match value {
        Value::Object(mut fields) => fields.remove(name).unwrap_or_default(),
        _ => Value::Null,
    }
}
