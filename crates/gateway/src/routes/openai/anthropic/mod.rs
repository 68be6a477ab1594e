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

#[cfg(test)]
pub(crate) use self::body::MessageBody;
#[cfg(test)]
pub(crate) use self::count::TokenCount;
pub(crate) use self::count::count_tokens;
pub(crate) use self::create::create;
#[cfg(test)]
pub(crate) use self::error::AnthropicErrorBody;
pub(crate) use self::error::{AnthropicError, REQUEST_ID, identified};
#[cfg(test)]
pub(crate) use self::events::MessageEvent;
pub(super) use self::models::{VERSION_HEADER, list, one};
#[cfg(test)]
pub(crate) use self::request::MessagesRequest;
