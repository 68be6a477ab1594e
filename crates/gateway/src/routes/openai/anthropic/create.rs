//! `POST /v1/messages`.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use belay_protocol::RunId;

use super::body::Shape;
use super::error::AnthropicError;
use super::request::{Meant, MessagesRequest};
use super::writer::MessageWriter;
use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{Caller, JsonBytes};
use crate::routes::openai::answer::Head;
use crate::routes::openai::outcome::{End, Outcome};
use crate::routes::openai::part::{Part, place_of};
use crate::routes::openai::readers::Reading;
use crate::routes::openai::turn::{self, Asked, Begins, RunTurn, Turn};
use crate::routes::openai::{stream, writer};

/// Answers a request for a message.
pub(crate) async fn create(
    State(app): State<Shared>,
    Caller(principal): Caller,
    headers: HeaderMap,
    body: Result<JsonBytes<MessagesRequest>, ApiError>,
) -> Result<Response, AnthropicError> {
    let JsonBytes(request, bytes) = body?;
    let Meant { chat, places, shows_thinking } = request.into_chat()?;
    let reading = if chat.streams() { Reading::Streamed } else { Reading::Whole };
    let asked = Asked { request: &chat, headers: &headers, bytes: &bytes, reading, note: None };
    let turn = turn::take(&app, &principal, asked).await.map_err(|error| places.renamed(error))?;
    let RunTurn { head, mut reader, watch, begins } = match turn {
        Turn::Run(run) => run,
        Turn::Command { head, reply } => {
            let shape = shape_of(head, None);
            if chat.streams() {
                return Ok(writer::of_text(MessageWriter::new(shape, shows_thinking), &reply));
            }
            return Ok((shape.head.headers(None), Json(shape.of_command(&reply))).into_response());
        }
    };
    let run = reader.run;
    let shape = shape_of(head, Some((run, begins)));
    if chat.streams() {
        return Ok(stream::of_run(reader, MessageWriter::new(shape, shows_thinking), watch, String::new()));
    }
    let outcome = Outcome::when_there(&app, &shape.head, run, watch).await;
    reader.served();
    let Outcome { run: record, end } = outcome?;
    let headers = shape.head.headers(record.reason);
    if let End::Error(error) = end {
        return Ok((headers, AnthropicError::from(error)).into_response());
    }
    let part = Part::read_of_ended(&app, &shape.head, record, place_of(&app, begins, run).await).await;
    let message = shape.whole(&part.text(&shape.head), &part.outcome.end, &part.outcome.run.usage);
    Ok((headers, Json(message)).into_response())
}

/// The id names what the message begins with. Clients take two messages with one id for the same.
fn shape_of(head: Head, run: Option<(RunId, Begins)>) -> Shape {
    let own = match run {
        Some((run, Begins::New)) => run.as_uuid(),
        Some((_, Begins::Results(request))) => request.as_uuid(),
        Some((_, Begins::Answer)) | None => RunId::new().as_uuid(),
    };
    Shape { id: format!("msg_{}", own.simple()), head }
}
