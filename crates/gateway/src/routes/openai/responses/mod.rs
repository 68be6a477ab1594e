//! `/v1/responses`: OpenAI's newer API, over the same turns as chat completions.
//!
//! A request becomes a [chat request](super::request::ChatRequest), and its turn is taken as that of one. Only the forms of
//! the request and of the answer are of this API. Nothing is kept but what a run keeps: the [`id`] of a response says
//! which part of which run it is.

mod body;
mod create;
mod errors;
mod events;
mod forms;
mod id;
mod input;
mod input_items;
mod items;
mod parts;
mod previous;
mod references;
mod request;
mod shown;
mod status;
mod stored;
mod tools;
mod writer;

#[cfg(test)]
pub(crate) use self::body::ResponseBody;
pub(crate) use self::create::create;
#[cfg(test)]
pub(crate) use self::events::ResponseEvent;
pub(crate) use self::input_items::input_items;
#[cfg(test)]
pub(crate) use self::input_items::{ItemList, ItemParams};
#[cfg(test)]
pub(crate) use self::request::ResponsesRequest;
#[cfg(test)]
pub(crate) use self::stored::{DeletedResponse, ShowParams};
pub(crate) use self::stored::{cancel, delete, show};
