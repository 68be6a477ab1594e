//! A build without the feature `console` has no files of the console: their paths say so.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use crate::app::Shared;
use crate::error::ApiError;

/// Why the build has no console.
pub(crate) const ABSENT: Option<&str> = Some(WORDS);

const WORDS: &str =
    "this build of Belay has no console (feature console); `belay --version --long` lists the parts of a build";

/// The paths of the console. None of them exists.
pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/", any(absent)).route("/console/{*path}", any(absent))
}

async fn absent() -> Response {
    ApiError::not_found(WORDS).into_response()
}
