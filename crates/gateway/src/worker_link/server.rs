//! The host's end of the link: a socket for its owner alone, six routes, and one answer for all refusals.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use belay_protocol::{LinkError, LinkId, WorkerEnd, WorkerLink, WorkerLinks};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::jobs::{Jobs, Links};
use crate::control_socket::ControlSocket;
use crate::error::{ApiError, ErrorCode, GatewayError};
use crate::peer::Peer;
use crate::server::{ConnectionService, accept_socket, report};

/// Largest body of a request. 32 MiB: a conversation with some pictures; a model accepts far less.
const BODY_BYTES: usize = 32 * 1024 * 1024;

/// Connections at a time; more wait. 256: a worker has about three.
const CONNECTIONS: usize = 256;

/// A server that is bound and not yet serving.
pub struct WorkerLinkServer {
    socket: ControlSocket,
    jobs: Arc<Jobs>,
}

impl WorkerLinkServer {
    /// Binds the socket for this user alone, and returns the handle that opens links over it.
    ///
    /// # Errors
    /// The socket cannot be made, or another daemon answers on it.
    pub fn bind(path: PathBuf) -> Result<(Self, Arc<dyn WorkerLinks>), GatewayError> {
        let socket = ControlSocket::bind(path.clone(), None)?;
        let jobs = Arc::new(Jobs::new(path));
        Ok((Self { socket, jobs: jobs.clone() }, Arc::new(Links(jobs))))
    }

    /// Serves until `stop`. All jobs have ended by then, so connections are closed at once.
    ///
    /// # Cancel safety
    /// If dropped, every connection is closed at once.
    pub async fn serve(mut self, stop: CancellationToken) {
        let router = router(self.jobs);
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let service = ConnectionService { router: router.clone(), draining: stop.clone() };
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = connections.join_next() => report(ended),
                (stream, trusted, slot) = accept_socket(Some(&mut self.socket), &slots) => {
                    connections.spawn(service.serve(stream, Peer::Socket { trusted }, slot.into()));
                }
            }
        }
        connections.shutdown().await;
    }
}

fn router(jobs: Arc<Jobs>) -> Router {
    Router::new()
        .route("/worker/{job}/task", get(task))
        .route("/worker/{job}/model", post(model))
        .route("/worker/{job}/batch", post(batch))
        .route("/worker/{job}/order", get(order))
        .route("/worker/{job}/done", post(done))
        .route("/worker/{job}/finish", post(finish))
        .fallback(async || no_such_path())
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(jobs)
}

fn no_such_path() -> ApiError {
    ApiError::bad_request(ErrorCode::BadPath, "the path is /worker/JOB/task, model, batch, order, done or finish")
}

/// One answer for a missing, wrong, foreign or revoked token: a stranger learns nothing from it.
fn refused() -> ApiError {
    ApiError::unauthorized("there is no such job for this token")
}

/// The link of the job in the path, for a request with its token.
struct LinkState(Arc<dyn WorkerLink>);

impl FromRequestParts<Arc<Jobs>> for LinkState {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, jobs: &Arc<Jobs>) -> Result<Self, ApiError> {
        let Path(job) = Path::<String>::from_request_parts(parts, jobs).await.map_err(|_| no_such_path())?;
        let job: LinkId = job.parse().map_err(|_| no_such_path())?;
        jobs.admit(job, &parts.headers).map(Self).ok_or_else(refused)
    }
}

/// Converts an answer of the link to a response.
fn answer<T: IntoResponse>(answer: Result<T, LinkError>) -> Response {
    match answer {
        Ok(answer) => answer.into_response(),
        Err(LinkError::Over) => refused().into_response(),
        Err(LinkError::Broken(why)) => {
            tracing::warn!(why, "a worker's request could not be answered");
            ApiError::internal().into_response()
        }
    }
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(ErrorCode::BadBody, format!("the body cannot be read: {error}")))
}

async fn task(LinkState(link): LinkState) -> Response {
    answer(link.task().await.map(Json))
}

async fn model(LinkState(link): LinkState, body: Bytes) -> Result<Response, ApiError> {
    Ok(answer(link.model(read(&body)?).await.map(Json)))
}

async fn batch(LinkState(link): LinkState, body: Bytes) -> Result<Response, ApiError> {
    Ok(answer(link.batch(read(&body)?).await.map(Json)))
}

#[derive(Deserialize)]
struct After {
    /// The number of the last order that was received.
    #[serde(default)]
    after: u64,
}

async fn order(LinkState(link): LinkState, Query(After { after }): Query<After>) -> Response {
    answer(link.order(after).await.map(|order| match order {
        Some(order) => Json(order).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }))
}

async fn done(LinkState(link): LinkState, body: Bytes) -> Result<Response, ApiError> {
    Ok(answer(link.done(read(&body)?).await.map(|()| StatusCode::NO_CONTENT)))
}

async fn finish(LinkState(link): LinkState, body: Bytes) -> Response {
    answer(link.finish(WorkerEnd::read(&body)).await.map(|()| StatusCode::NO_CONTENT))
}
