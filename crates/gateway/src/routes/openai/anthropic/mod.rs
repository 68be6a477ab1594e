//! `/v1/messages`: Anthropic's Messages API, over the same turns as chat completions.
//!
//! A request becomes a [chat request](super::request::ChatRequest), and its turn is taken as that of one. Only the forms of
//! the request, of the answer and of the errors are of this API.

mod blocks;
mod body;
mod count;
mod create;
mod error;
mod events;
mod fields;
mod input;
mod models;
mod request;
mod sources;
mod tools;
mod writer;

use axum::response::{IntoResponse, Response};

#[cfg(test)]
pub(crate) use self::body::MessageBody;
#[cfg(test)]
pub(crate) use self::count::TokenCount;
use self::count::count_tokens;
use self::create::create;
pub(crate) use self::error::AnthropicError;
#[cfg(test)]
pub(crate) use self::error::AnthropicErrorBody;
pub(crate) use self::error::identified;
#[cfg(test)]
pub(crate) use self::events::MessageEvent;
pub(super) use self::models::{model, models};
#[cfg(test)]
pub(crate) use self::request::MessagesRequest;
use super::error::OpenAiError;
use crate::table::{Table, post};

/// The routes of this API, for people.
pub(super) const ROUTES: &str = "POST /v1/messages, POST /v1/messages/count_tokens";

/// The beginning of its paths, and why the build has none of them.
pub(super) const ABSENT: Option<(&str, &str)> = None;

/// The routes of this API.
pub(crate) fn table() -> Table {
    Table::new().route("/v1/messages", post(create)).route("/v1/messages/count_tokens", post(count_tokens))
}

/// The error in the form of the API that the path is of: this one or OpenAI's.
pub(super) fn in_form_of(path: &str, error: OpenAiError) -> Response {
    if AnthropicError::is_for(path) { AnthropicError::from(error).into_response() } else { error.into_response() }
}
