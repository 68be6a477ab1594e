//! A build without the feature `messages` has no `/v1/messages`: its paths say so, and clients of that API get errors and
//! names of models in OpenAI's form.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::OpenAiError;
use crate::table::Table;

/// The routes of this API, for people.
pub(super) const ROUTES: &str = "";

/// The beginning of its paths, and why the build has none of them.
pub(super) const ABSENT: Option<(&str, &str)> = Some((
    "/v1/messages",
    "this build of Belay has no Messages API (feature messages); `belay --version --long` lists the parts of a build",
));

/// No routes.
pub(crate) fn table() -> Table {
    Table::new()
}

/// The error in OpenAI's form.
pub(super) fn in_form_of(_path: &str, error: OpenAiError) -> Response {
    error.into_response()
}

/// No answer of its own.
pub(super) fn model(_headers: &HeaderMap, _name: &str) -> Option<Response> {
    None
}

/// No answer of its own.
pub(super) fn models<'a>(_headers: &HeaderMap, _names: impl Iterator<Item = &'a str>) -> Option<Response> {
    None
}

/// Adds nothing.
pub(crate) async fn identified(request: Request, next: Next) -> Response {
    next.run(request).await
}
