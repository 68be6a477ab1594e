//! The files of the console.

use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::compression::CompressionLayer;

use crate::app::Shared;
use crate::error::ApiError;

/// Nothing but the files here, no inline script or style, and no frame of another page.
/// `blob:` is for pictures that a person is about to send.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The page at `/` and what it loads. Open to all: a stranger finds the form of the sign-in, and no data.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/", get(|headers: HeaderMap| async move { serve(belay_console::PAGE, &headers) }))
        .route(
            "/console/assets/{*path}",
            get(|Path(path): Path<String>, headers: HeaderMap| async move { serve(&path, &headers) }),
        )
        .layer(CompressionLayer::new())
}

fn serve(path: &str, request: &HeaderMap) -> Response {
    let Some(file) = belay_console::file(path) else { return ApiError::not_found("no such file").into_response() };
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
        // A browser asks each time whether its copy is current: another version of the daemon may have other files.
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_TYPE, file.media_type),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let current = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let current = current.flat_map(|value| value.split(',')).any(|known| {
        let known = known.trim();
        known.strip_prefix("W/").unwrap_or(known) == file.etag
    });
    if let Ok(etag) = HeaderValue::from_str(&format!("W/{}", file.etag)) {
        headers.insert(ETAG, etag);
    }
    match current {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, file.bytes).into_response(),
    }
}
