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
use self::create::create;
#[cfg(test)]
pub(crate) use self::events::ResponseEvent;
use self::input_items::input_items;
#[cfg(test)]
pub(crate) use self::input_items::{ItemList, ItemParams};
#[cfg(test)]
pub(crate) use self::request::ResponsesRequest;
#[cfg(test)]
pub(crate) use self::stored::{DeletedResponse, ShowParams};
use self::stored::{cancel, delete, show};
use crate::table::{Table, get, post};

/// The routes of this API, for people.
pub(super) const ROUTES: &str = "POST /v1/responses, GET and DELETE /v1/responses/{response}, \
                                 POST /v1/responses/{response}/cancel, GET /v1/responses/{response}/input_items";

/// Why the build has no such API.
pub(super) const ABSENT: Option<(&str, &str)> = None;

/// The routes of this API.
pub(crate) fn table() -> Table {
    Table::new()
        .route("/v1/responses", post(create))
        .route("/v1/responses/{response}", get(show).delete(delete))
        .route("/v1/responses/{response}/cancel", post(cancel))
        .route("/v1/responses/{response}/input_items", get(input_items))
}
