//! `GET /openapi.json`: the description of this API in OpenAPI 3.1.
//!
//! The document is the committed file `docs/reference/openapi.json`. A test makes it from the types of requests and
//! responses, and compares the two; so neither the types nor a library for schemas are needed in the daemon. Another
//! test compares its operations with the route table.

#[cfg(test)]
mod document;
#[cfg(test)]
mod lint;
#[cfg(test)]
mod operation;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod schemas;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

#[cfg(test)]
pub(crate) use schemas::Schemas;

/// The document.
const DOCUMENT: &str = include_str!("../../../../docs/reference/openapi.json");

/// Returns the document. Open to all: it has no data, and a client reads it before it has a token.
pub(crate) async fn show() -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")];
    (headers, DOCUMENT).into_response()
}
