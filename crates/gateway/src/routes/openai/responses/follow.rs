//! The stream of a response whose run has begun before: one that is resumed, or that a retry joins.

use axum::response::Response;
use belay_protocol::{Partial, Principal, RunRecord};

use super::events::ResponseWriter;
use super::id::ResponseId;
use super::status::status_of;
use crate::app::Shared;
use crate::error::ApiError;
use crate::routes::openai::OpenAiError;
use crate::routes::openai::part::Part;
use crate::routes::openai::readers::Reader;
use crate::routes::openai::steps::number_of;
use crate::routes::openai::stream;
use crate::routes::openai::writer::{self, Writer};

/// Streams a response from its beginning to its end. Its run goes on without this reader.
pub(super) async fn follow(
    app: Shared,
    principal: Principal,
    id: ResponseId,
    run: RunRecord,
    events: ResponseWriter,
) -> Result<Response, OpenAiError> {
    // The store is read before the watch begins and after it: a step that ends meanwhile is in both.
    let earlier = number_of(&app.runs.run_messages(id.run).await.map_err(ApiError::from)?);
    let mut watch = app.watch(principal.clone(), id.run, true).await?;
    let part = Part::read(&app, events.head(), run.into(), id.after).await?;
    if !matches!(status_of(&part.outcome), "queued" | "in_progress") {
        let text = part.text(events.head());
        return Ok(writer::of_outcome(events, &text, &part.outcome));
    }
    let before = part.said_before(watch.as_ref(), earlier);
    // The step in which the response before this one has ended.
    if let Some(watch) = watch.as_mut().filter(|watch| watch.so_far.step <= part.steps.before) {
        watch.so_far = Partial::default();
    }
    let mut reader = Reader::new(app, principal, id.run, true);
    reader.served(); // a reader that goes away ends nothing
    Ok(stream::of_run(reader, events, watch, before))
}
