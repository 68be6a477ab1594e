//! `GET /api/v1/events` and `GET /api/v1/runs/{id}/events`: committed facts, replayed from any number.

use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use belay_protocol::Seq;
use serde::{Deserialize, Serialize};

use super::resume::{Resume, as_response, json_text};
use crate::app::Shared;
use crate::checks::no_such_run;
use crate::error::ApiError;
use crate::extract::{Caller, Params};
use crate::fact_feed::{FactFeed, respond};
use crate::fact_pages::event_text;
use crate::sse::{Feed, RunFeed, events};
use crate::visibility::VisibleRun;

/// Longest time in which facts are collected. 10 s: less than the silence after which a comment is sent.
const EVERY_MAX: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct AllParams {
    since: Option<String>,
    /// New facts are sent at most once in that many milliseconds; by default at once.
    #[cfg_attr(test, schemars(range(min = 0, max = 10_000)))]
    every_ms: Option<u64>,
}

/// The cursor of a stream of all facts, and how long facts are collected.
pub(crate) struct AllFacts {
    resume: Resume,
    every: Duration,
}

impl FromRequestParts<Shared> for AllFacts {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Params(AllParams { since, every_ms }) = Params::from_request_parts(parts, app).await?;
        let every = Duration::from_millis(every_ms.unwrap_or(0));
        if every > EVERY_MAX {
            return Err(ApiError::invalid(format!("every_ms: at most {}", EVERY_MAX.as_millis())));
        }
        Ok(Self { resume: Resume::read(parts, app, since).await?, every })
    }
}

/// Streams all facts that the principal may see, without end. Without a cursor it begins with new facts, after a
/// `begin` event with the current number.
pub(crate) async fn all(
    State(app): State<Shared>,
    Caller(principal): Caller,
    AllFacts { resume: Resume { after, permit, reset }, every }: AllFacts,
) -> Response {
    let newest = *app.events.tip().borrow();
    let begin = after.is_none().then(|| begin(newest));
    let first = reset.map(|reset| reset.text()).or(begin);
    let feed = FactFeed::new(app, principal, after.unwrap_or(newest), every, permit);
    respond(first.map(Into::into), feed)
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
fn begin(after: Seq) -> String {
    let data = Begin { after, message: "this begins behind the newest event; ?since=0 begins with the first" };
    event_text(after, "begin", &json_text(&data))
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
