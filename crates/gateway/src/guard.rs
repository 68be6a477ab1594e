//! The middleware of routes that need a principal.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::COOKIE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::{App, Shared};
use crate::connection_slots::Arrival;
use crate::console::admission;
use crate::error::{ApiError, Unstored};
use crate::peer::Peer;
use crate::routes::error_for;

/// Passes a request on with its [`Principal`](belay_protocol::Principal) attached, or answers it with an error.
pub(crate) async fn guard(State(app): State<Shared>, mut request: Request, next: Next) -> Response {
    // A request without a peer did not come through our server; nothing is trusted.
    let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Socket { trusted: false });
    let signed_in = match admission::signed_in(&app, peer, request.headers()).await {
        Ok(signed_in) => signed_in,
        Err(error) => return error_for(request.uri().path(), error).into_response(),
    };
    let admitted = match &signed_in {
        Some(signed_in) => admission::admit(&app, signed_in, request.method(), request.headers()),
        None => app.auth.admit(peer, request.headers()),
    };
    match admitted {
        Ok(principal) => {
            let arrival = request.extensions().get::<Arrival>();
            let proven = signed_in.is_some() || app.auth.is_proof(peer, request.headers());
            if proven && arrival.is_some_and(|arrival| !arrival.secure()) {
                return std::future::pending().await; // its connection is about to be closed
            }
            request.extensions_mut().insert(principal);
            match signed_in {
                Some(signed_in) => {
                    request.extensions_mut().insert(signed_in.clone());
                    admission::ended_with(app.clone(), signed_in, answer(&app, request, next).await)
                }
                None => answer(&app, request, next).await,
            }
        }
        Err(error) => {
            tracing::debug!(status = error.status.as_u16(), path = request.uri().path(), "request refused");
            let expired = error.status == StatusCode::UNAUTHORIZED && request.headers().contains_key(COOKIE);
            let answer = error_for(request.uri().path(), error).into_response();
            if expired { (app.cookies.delete(), answer).into_response() } else { answer }
        }
    }
}

/// The answer of the route. An error of a store that is lost is no reason to try again.
async fn answer(app: &App, request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    if answer.extensions().get::<Unstored>().is_some() && app.health.trouble().is_some() {
        return ApiError::lost_store().into_response();
    }
    answer
}
