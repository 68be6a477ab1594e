//! The model names in the form of this API, for its clients: they are told by a header that they always send.
//!
//! Source: Anthropic's API reference, "Models".

use axum::Json;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The version of the API that a client speaks. Any is accepted.
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("anthropic-version");

/// The answer with one model name; `None`: the client is of another API.
pub(in crate::routes::openai) fn model(headers: &HeaderMap, name: &str) -> Option<Response> {
    headers.contains_key(VERSION_HEADER).then(|| Json(one(name)).into_response())
}

/// The answer with all model names; `None`: the client is of another API.
pub(in crate::routes::openai) fn models<'a>(
    headers: &HeaderMap,
    names: impl Iterator<Item = &'a str>,
) -> Option<Response> {
    headers.contains_key(VERSION_HEADER).then(|| Json(list(names)).into_response())
}

/// A model name.
fn one(name: &str) -> Value {
    json!({"id": name, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"})
}

/// All model names, on one page.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> Value {
    let data: Vec<Value> = names.map(one).collect();
    let named = |model: Option<&Value>| model.map(|model| model["id"].clone());
    json!({"first_id": named(data.first()), "last_id": named(data.last()), "has_more": false, "data": data})
}
