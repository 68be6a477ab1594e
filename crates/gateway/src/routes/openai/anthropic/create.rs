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
use crate::routes::openai::outcome::End;
use crate::routes::openai::part::Part;
use crate::routes::openai::readers::Reading;
use crate::routes::openai::turn::{self, Asked, Begins, Turn};
use crate::routes::openai::{follow, writer};

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
    let (head, run) = match turn {
        Turn::Run(head, run) => (head, run),
        Turn::Command { head, reply } => {
            let shape = shape_of(head, None);
            if chat.streams() {
                return Ok(writer::of_text(MessageWriter::new(shape, shows_thinking), &reply));
            }
            return Ok((shape.head.headers(None), Json(shape.of_command(&reply))).into_response());
        }
    };
    let shape = shape_of(head, Some((run.reader.run, run.begins)));
    if chat.streams() {
        return Ok(follow::of_turn(run, MessageWriter::new(shape, shows_thinking)).await?);
    }
    let part = Part::when_there(&shape.head, run).await?;
    let headers = shape.head.headers(part.outcome.run.reason);
    Ok(match &part.outcome.end {
        End::Error(error) => (headers, AnthropicError::from(error.clone())).into_response(),
        end => (headers, Json(shape.whole(&part.text(&shape.head), end, part.outcome.used))).into_response(),
    })
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
