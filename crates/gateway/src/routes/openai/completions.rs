//! `POST /v1/completions`: a text instead of messages, for clients of the older API. The text is a message of the user, and
//! the answer has the older form.
//!
//! Source: the OpenAI API reference, "Completions".

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::Dialect;
use super::error::OpenAiError;
use super::{ChatRequest, answer_to};
use crate::app::Shared;
use crate::extract::{Caller, JsonBytes, parse_object};

/// A request with a text. The other fields are those of a chat request, and unused ones are ignored.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TextRequest {
    /// A text, or a list with one text.
    #[cfg_attr(test, schemars(with = "String"))]
    prompt: Option<Value>,
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    others: Map<String, Value>,
}

impl TextRequest {
    fn into_chat(mut self) -> Result<ChatRequest, OpenAiError> {
        let invalid = |message| OpenAiError::invalid("prompt", "invalid_value", message);
        let prompt = match self.prompt {
            Some(Value::String(text)) => text,
            Some(Value::Array(texts)) => match texts.as_slice() {
                [Value::String(text)] => text.clone(),
                _ => return Err(invalid("must be one text; tokens and several texts are not supported")),
            },
            _ => return Err(invalid("must be a text")),
        };
        for chat_only in ["tools", "functions", "response_format", "messages"] {
            self.others.remove(chat_only);
        }
        // Older clients ask for the probabilities as a number.
        self.others.remove("logprobs");
        self.others.insert("messages".to_owned(), json!([{"role": "user", "content": prompt}]));
        Ok(parse_object(Value::Object(self.others).to_string().as_bytes())?)
    }
}

/// Answers a text.
pub(crate) async fn complete(
    State(app): State<Shared>,
    Caller(principal): Caller,
    headers: HeaderMap,
    body: Result<JsonBytes<TextRequest>, crate::error::ApiError>,
) -> Result<Response, OpenAiError> {
    let JsonBytes(request, bytes) = body?;
    answer_to(app, principal, headers, request.into_chat()?, &bytes, Dialect::Text).await
}
