//! The model names in the form of this API, for its clients: they are told by a header that they always send.
//!
//! Source: Anthropic's API reference, "Models".

use axum::http::HeaderName;
use serde_json::{Value, json};

/// The version of the API that a client speaks. Any is accepted.
pub(in crate::routes::openai) const VERSION_HEADER: HeaderName = HeaderName::from_static("anthropic-version");

/// A model name.
pub(in crate::routes::openai) fn one(name: &str) -> Value {
    json!({"id": name, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"})
}

/// All model names, on one page.
pub(in crate::routes::openai) fn list<'a>(names: impl Iterator<Item = &'a str>) -> Value {
    let data: Vec<Value> = names.map(one).collect();
    let named = |model: Option<&Value>| model.map(|model| model["id"].clone());
    json!({"first_id": named(data.first()), "last_id": named(data.last()), "has_more": false, "data": data})
}
