//! `GET /api/v1/events` and `GET /api/v1/runs/{id}/events`: committed facts, replayed from any number.

use axum::extract::State;
use axum::response::{IntoResponse, Response, sse};
use belay_protocol::Seq;
use futures_util::{StreamExt, stream};
use serde::Serialize;

use super::resume::{Resume, as_response, json_text};
use crate::app::Shared;
use crate::checks::no_such_run;
use crate::error::ApiError;
use crate::extract::Caller;
use crate::sse::{Feed, RunFeed, events};
use crate::visibility::VisibleRun;

/// Streams all facts that the principal may see, without end. Without a cursor it begins with new facts, after a
/// `begin` event with the current number.
pub(crate) async fn all(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Resume { after, permit, reset }: Resume,
) -> Response {
    let newest = *app.events.tip().borrow();
    let begin = after.is_none().then(|| begin(newest));
    let after = after.unwrap_or(newest);
    let feed = Feed::new(app.events.clone(), after, None, app.draining.clone(), permit).visible_to(app, principal);
    as_response(reset, stream::iter(begin).chain(events(feed))).into_response()
}

/// The data of the event `begin`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Begin {
    /// The number of the newest fact.
    after: Seq,
    message: &'static str,
}

/// The first event for a reader without a cursor. Its id is the cursor at which the reader continues when it
/// reconnects.
fn begin(after: Seq) -> sse::Event {
    let data = Begin { after, message: "this begins behind the newest event; ?since=0 begins with the first" };
    sse::Event::default().id(after.0.to_string()).event("begin").data(json_text(&data))
}

/// Streams the facts of one run, to its end, with the deltas of its answer while it is live.
pub(crate) async fn of_run(
    State(app): State<Shared>,
    Caller(principal): Caller,
    run: VisibleRun,
    Resume { after, permit, reset }: Resume,
) -> Result<Response, ApiError> {
    let id = run.id();
    let watch = app.watch(principal, id, true).await?;
    let record = app.runs.run(id).await?.ok_or_else(|| no_such_run(id))?;
    let over = watch.is_none() && record.status.is_end();
    let after = after.unwrap_or_default();
    let run = RunFeed::new(app.runs.clone(), (id, record.session), after, watch, over);
    let feed = Feed::new(app.events.clone(), after, Some(run), app.draining.clone(), permit);
    Ok(as_response(reset, events(feed)).into_response())
}
