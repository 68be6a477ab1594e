//! The start of every event stream: its cursor and its permit.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::sse;
use belay_protocol::Seq;
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::Shared;
use crate::error::{ApiError, ErrorCode};
use crate::extract::Params;
use crate::fact_pages::event_text;
use crate::sse::KEEP_ALIVE;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeParams {
    since: Option<String>,
}

/// The cursor of a stream, and its permit.
pub(crate) struct Resume {
    /// The stream begins after this fact; `None`: the reader gives no cursor.
    pub(crate) after: Option<Seq>,
    /// Held until the stream is dropped.
    pub(crate) permit: OwnedSemaphorePermit,
    pub(crate) reset: Option<Reset>,
}

/// The reader's cursor is beyond the newest fact, for example after the store was replaced by an older copy. The reader
/// gets a `reset` event, and the stream continues after the newest fact. An error would end a browser's reconnects for
/// good, and a replay would repeat events.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reset {
    /// The number that the reader gave.
    asked: Seq,
    /// The number of the newest fact, after which the stream continues.
    newest: Seq,
    message: &'static str,
}

impl FromRequestParts<Shared> for Resume {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Params(ResumeParams { since }) = Params::from_request_parts(parts, app).await?;
        Self::read(parts, app, since).await
    }
}

impl Resume {
    /// Reads the cursor from the header that browsers send when they reconnect, or from the parameter `since`.
    ///
    /// # Errors
    /// The cursor is no number, or `since` is beyond the newest fact; or there are too many streams, or the store cannot
    /// be read.
    pub(crate) async fn read(parts: &Parts, app: &Shared, since: Option<String>) -> Result<Self, ApiError> {
        let last = parts.headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?"));
        let name = if last.is_some() { "Last-Event-ID" } else { "since" };
        let after = number(name, last.or(since.as_deref()))?;
        let newest = app.newest_for(after).await?;
        let beyond = after.filter(|after| *after > newest);
        let reset = match (beyond, last) {
            (Some(asked), None) => return Err(ApiError::invalid_cursor("since", asked, newest)),
            (beyond, _) => beyond.map(|asked| Reset {
                asked,
                newest,
                message: "there is no such event yet; this goes on behind the newest",
            }),
        };
        Ok(Self { after: after.map(|after| after.min(newest)), permit: app.stream_permit()?, reset })
    }
}

fn number(name: &str, text: Option<&str>) -> Result<Option<Seq>, ApiError> {
    let text = text.map(str::trim).filter(|text| !text.is_empty());
    let number = text.map(str::parse).transpose();
    number
        .map(|number| number.map(Seq))
        .map_err(|_| ApiError::bad_request(ErrorCode::BadEventId, format!("{name}: takes the number of an event")))
}

impl Reset {
    /// The `reset` event as text.
    pub(crate) fn text(&self) -> String {
        event_text(self.newest, "reset", &json_text(self))
    }

    /// The `reset` event. Its id is the cursor at which the reader continues when it reconnects.
    fn event(&self) -> sse::Event {
        sse::Event::default().id(self.newest.0.to_string()).event("reset").data(json_text(self))
    }
}

/// The JSON of the data of an event.
pub(crate) fn json_text(data: &impl Serialize) -> String {
    serde_json::to_string(data).unwrap_or_default() // our own types: all keys are strings
}

/// Sends events as a response, with comments during silence.
pub(crate) fn as_response(
    reset: Option<Reset>,
    events: impl Stream<Item = sse::Event> + Send + 'static,
) -> sse::Sse<sse::KeepAliveStream<impl Stream<Item = Result<sse::Event, Infallible>>>> {
    let first = stream::iter(reset.map(|reset| reset.event()));
    sse::Sse::new(first.chain(events).map(Ok)).keep_alive(sse::KeepAlive::new().interval(KEEP_ALIVE))
}
