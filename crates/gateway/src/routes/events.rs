//! `GET /api/v1/events` and `GET /api/v1/runs/{id}/events`: facts as they are committed, replayed from any number.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::resume::{Resume, as_response};
use super::runs::no_such_run;
use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{Caller, RunPath};
use crate::sse::{Feed, RunFeed, events};

/// All facts that whoever asks is shown, without end. Without a number to go on from: those from now on.
pub(crate) async fn all(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Resume { after, place, reset }: Resume,
) -> Response {
    let after = after.unwrap_or_else(|| *app.events.tip().borrow());
    let feed = Feed::new(app.events.clone(), after, None, app.draining.clone(), place).shown_to(app, principal);
    as_response(reset, events(feed)).into_response()
}

/// The facts of one run, to its end; the fragments of its answer while it is alive.
pub(crate) async fn of_run(
    State(app): State<Shared>,
    Caller(principal): Caller,
    RunPath(id): RunPath,
    Resume { after, place, reset }: Resume,
) -> Result<Response, ApiError> {
    let watch = app.watch(principal, id, true).await?;
    let record = app.runs.run(id).await?.ok_or_else(|| no_such_run(id))?;
    let over = watch.is_none() && record.status.is_end();
    let after = after.unwrap_or_default();
    let run = RunFeed::new(app.runs.clone(), (id, record.session), after, watch, over);
    let feed = Feed::new(app.events.clone(), after, Some(run), app.draining.clone(), place);
    Ok(as_response(reset, events(feed)).into_response())
}
