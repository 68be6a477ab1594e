//! `POST /v1/responses`.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use belay_protocol::{Principal, RunId};
use serde_json::{Map, Value, json};

use super::body::Shape;
use super::events::ResponseWriter;
use super::id::{Kind, ResponseId};
use super::input::Messages;
use super::request::ResponsesRequest;
use super::status::status_of;
use super::{items, previous, references};
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Caller, JsonBytes};
use crate::routes::openai::OpenAiError;
use crate::routes::openai::outcome::{End, Outcome};
use crate::routes::openai::part::{Part, place_of};
use crate::routes::openai::readers::Reading;
use crate::routes::openai::turn::{self, Asked, Turn};
use crate::routes::openai::{follow, writer};

/// Answers a request for a response.
pub(crate) async fn create(
    State(app): State<Shared>,
    Caller(principal): Caller,
    headers: HeaderMap,
    body: Result<JsonBytes<ResponsesRequest>, ApiError>,
) -> Result<Response, OpenAiError> {
    let JsonBytes(mut request, bytes) = body?;
    let (kind, streams) = (request.kind()?, request.streams());
    let (mut messages, shown) = (Messages::default(), request.shown());
    let note = kind.stored.then(|| request.note());
    request.refuse_two_sessions(&headers)?;
    references::resolve(&app, &principal, &mut request.input).await?;
    let session = previous::add(&app, &principal, &request, &mut messages).await?;
    if let Some(text) = request.instructions() {
        messages.add(json!({"role": "system", "content": text}));
    }
    messages.add_input(request.input.take())?;
    let places = messages.places();
    let chat = request.into_chat(messages, session)?;
    let reading = match (kind.background, streams) {
        (true, streams) => Reading::Later { streams },
        (false, true) => Reading::Streamed,
        (false, false) => Reading::Whole,
    };
    let asked = Asked { request: &chat, headers: &headers, bytes: &bytes, reading, note: note.as_ref() };
    let turn = turn::take(&app, &principal, asked).await.map_err(|error| places.renamed(error))?;
    let answer = Answer { app, principal, kind, shown };
    answer.of(turn, streams).await
}

/// The answer to a request.
struct Answer {
    app: Shared,
    principal: Principal,
    kind: Kind,
    shown: Map<String, Value>,
}

impl Answer {
    async fn of(self, turn: Turn, streams: bool) -> Result<Response, OpenAiError> {
        let Self { app, principal, kind, shown } = self;
        let (head, run) = match turn {
            Turn::Run(head, run) => (head, run),
            Turn::Command { head, reply } => {
                let shape = Shape::new(&app, &principal, head, None, shown);
                if streams {
                    return Ok(writer::of_text(ResponseWriter::new(shape, "in_progress"), &reply));
                }
                let output = items::output(shape.message(), &reply, &[]);
                return Ok((shape.head.headers(None), Json(shape.of_command(output))).into_response());
            }
        };
        let id = ResponseId { run: run.reader.run, after: place_of(&app, run.begins, run.reader.run).await, kind };
        let shape = Shape::new(&app, &principal, head, Some(id), shown);
        if streams {
            // A retry begins as the first attempt did, so that the numbers are the same.
            let status = if kind.background { "queued" } else { "in_progress" };
            return follow::of_turn(run, ResponseWriter::new(shape, status)).await;
        }
        if kind.background {
            return at_once(&app, &shape, id.run).await;
        }
        let part = Part::when_there(&shape.head, run).await?;
        let headers = shape.head.headers(part.outcome.run.reason);
        Ok(match part.outcome.end {
            End::Error(error) => (headers, error).into_response(),
            _ => (headers, Json(part.body(&shape))).into_response(),
        })
    }
}

/// The response of a run that goes on without its client.
async fn at_once(app: &App, shape: &Shape, run: RunId) -> Result<Response, OpenAiError> {
    let record = app.runs.run(run).await.map_err(ApiError::from)?;
    let status = match record {
        Some(record) => status_of(&Outcome::of(app, &shape.head, record.into()).await),
        None => "queued",
    };
    let status = if status == "in_progress" { status } else { "queued" };
    Ok((shape.head.headers(None), Json(shape.begun(status))).into_response())
}
