//! What a request of a signed-in browser may do.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;
use belay_protocol::Principal;
use futures_util::StreamExt as _;

use crate::app::{App, Shared};
use crate::auth::shows_token;
use crate::error::ApiError;
use crate::peer::Peer;
use crate::sign_ins::SignedIn;

/// A header that every request of the pages has. The page of another origin can set it only after a preflight, which is
/// not answered. Source: OWASP, Cross-Site Request Forgery Prevention, "Custom Request Headers".
pub(crate) const PAGE_HEADER: HeaderName = HeaderName::from_static("x-belay-csrf");

/// Tells where the browser was when it sent a request. Source: W3C, Fetch Metadata.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The sign-in of a request over TCP, if it has a valid cookie and no token. While no token is configured, there are no
/// sign-ins.
///
/// # Errors
/// 503: the store fails.
pub(crate) async fn signed_in(app: &App, peer: Peer, headers: &HeaderMap) -> Result<Option<SignedIn>, ApiError> {
    let applies = app.config.console && app.auth.needs_token();
    if !applies || matches!(peer, Peer::Socket { .. }) || shows_token(headers) {
        return Ok(None);
    }
    for candidate in app.cookies.candidates(headers) {
        if let Some(found) = app.sign_ins.find(candidate.secret, candidate.tls).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The principal of a request with a valid cookie.
///
/// # Errors
/// 403: the request does not come from a page of the console.
pub(crate) fn admit(
    app: &App,
    signed_in: &SignedIn,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Principal, ApiError> {
    own_page(app, method, headers)?;
    Ok(signed_in.entry.principal())
}

/// Refuses a request that a browser sends for another page than the console's.
///
/// # Errors
/// 403.
pub(crate) fn own_page(app: &App, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    app.auth.own_origin(headers)?;
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return Err(ApiError::forbidden("the request comes from a page of another site"));
    }
    if !method.is_safe() && !headers.contains_key(PAGE_HEADER) {
        return Err(ApiError::forbidden("a request with the cookie of the console needs the header x-belay-csrf"));
    }
    Ok(())
}

/// Ends a stream of events when its sign-in is over.
pub(crate) fn ended_with(app: Shared, signed_in: SignedIn, response: Response) -> Response {
    let is_stream = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/event-stream");
    if !response.headers().get(CONTENT_TYPE).is_some_and(is_stream) {
        return response;
    }
    let over = async move { app.sign_ins.until_over(&signed_in).await };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(over))))
}
