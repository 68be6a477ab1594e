//! `GET /v1/models`, `POST /v1/chat/completions`, `POST /v1/completions`, in [`responses`] `/v1/responses`, and in
//! [`anthropic`] `/v1/messages`, for clients that do not know Belay.
//!
//! Source: the OpenAI API reference, "Chat Completions" and "Models". Unused fields are ignored.

mod answer;
#[cfg_attr(not(feature = "messages"), path = "no_messages.rs")]
pub(crate) mod anthropic;
mod chat_writer;
mod chunks;
mod client_results;
mod client_tools;
mod completions;
mod conversation;
mod embedding_forms;
mod embeddings;
mod error;
#[cfg(test)]
mod fields_tests;
mod follow;
mod format;
mod front_ends;
mod given_results;
mod news;
mod offered;
mod outcome;
mod part;
mod paused;
mod readers;
mod refused;
mod request;
mod resent;
#[cfg_attr(not(feature = "responses"), path = "no_responses.rs")]
pub(crate) mod responses;
mod retries;
mod sampling;
mod sessions;
mod steps;
mod stream;
mod tool_calls;
#[cfg(any(feature = "messages", feature = "responses"))]
mod translated;
mod turn;
mod unknown;
mod used;
mod writer;
mod written;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use belay_protocol::Principal;
use serde::Serialize;

use self::answer::Dialect;
#[cfg(test)]
pub(crate) use self::answer::{Completion, TextCompletion};
use self::chat_writer::ChatWriter;
#[cfg(test)]
pub(crate) use self::chunks::Chunk;
#[cfg(test)]
pub(crate) use self::completions::TextRequest as TextBody;
pub(crate) use self::completions::complete;
#[cfg(test)]
pub(crate) use self::embedding_forms::{Embeddings, EmbeddingsRequest};
pub(crate) use self::embeddings::embeddings;
pub(crate) use self::error::OpenAiError;
#[cfg(test)]
pub(crate) use self::error::OpenAiErrorBody;
use self::readers::Reading;
#[cfg(test)]
pub(crate) use self::request::ChatRequest as ChatBody;
use self::request::ChatRequest;
use self::turn::{Asked, Turn};
pub(crate) use self::unknown::{error_for, no_such_route, wrong_method};
use crate::app::{App, Shared};
use crate::extract::{Caller, JsonBytes, NamePath};

/// The model name that always works, whatever model is configured.
const OUR_NAME: &str = "belay";

/// The names that always work.
const OUR_NAMES: [&str; 2] = [OUR_NAME, TEXT_NAME];

/// The model name of plain text: the configured model without tools, notes or a lasting session.
const TEXT_NAME: &str = "belay:text";

/// The header with the session of a request.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("x-belay-session");

/// Lists the model names that a request may use.
pub(crate) async fn models(State(app): State<Shared>, headers: HeaderMap) -> Response {
    let of_ours = || ModelList { object: "list", data: model_names(&app).map(ModelBody::of).collect() };
    anthropic::models(&headers, model_names(&app)).unwrap_or_else(|| Json(of_ours()).into_response())
}

/// The model names that a request may use.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ModelList {
    #[cfg_attr(test, schemars(extend("enum" = ["list"])))]
    object: &'static str,
    data: Vec<ModelBody>,
}

/// A model name.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Model"))]
pub(crate) struct ModelBody {
    id: String,
    #[cfg_attr(test, schemars(extend("enum" = ["model"])))]
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

impl ModelBody {
    fn of(name: &str) -> Self {
        Self { id: name.to_owned(), object: "model", created: 0, owned_by: "belay" }
    }
}

fn model_names(app: &App) -> impl Iterator<Item = &str> {
    let configured = Some(app.models.chat.model.as_str()).filter(|name| !name.is_empty() && !OUR_NAMES.contains(name));
    OUR_NAMES.into_iter().chain(configured)
}

/// Shows one of the model names that a request may use.
pub(crate) async fn model(
    State(app): State<Shared>,
    headers: HeaderMap,
    NamePath(name): NamePath,
) -> Result<Response, OpenAiError> {
    check_model(&app, &name)?;
    Ok(anthropic::model(&headers, &name).unwrap_or_else(|| Json(ModelBody::of(&name)).into_response()))
}

/// Refuses a model name that a request may not use.
fn check_model(app: &App, name: &str) -> Result<(), OpenAiError> {
    match model_names(app).any(|known| known == name) {
        true => Ok(()),
        false => Err(OpenAiError::model_not_found(name)),
    }
}

/// Answers a chat request.
pub(crate) async fn chat(
    State(app): State<Shared>,
    Caller(principal): Caller,
    headers: HeaderMap,
    body: Result<JsonBytes<ChatRequest>, crate::error::ApiError>,
) -> Result<Response, OpenAiError> {
    let JsonBytes(request, bytes) = body?;
    answer_to(app, principal, headers, request, &bytes, Dialect::Chat).await
}

/// Answers a chat request, or one of the older API that was converted to one, in the form of that API. `bytes`: the body as
/// it was sent, which recognises a retry.
async fn answer_to(
    app: Shared,
    principal: Principal,
    headers: HeaderMap,
    request: ChatRequest,
    bytes: &[u8],
    dialect: Dialect,
) -> Result<Response, OpenAiError> {
    let streams = request.streams();
    let reading = if streams { Reading::Streamed } else { Reading::Whole };
    let asked = Asked { request: &request, headers: &headers, bytes, reading, note: None };
    match turn::take(&app, &principal, asked).await? {
        Turn::Run(head, run) if streams => {
            let writer = ChatWriter::new(head.in_dialect(dialect), request.wants_usage());
            follow::of_turn(run, writer).await
        }
        Turn::Run(head, run) => answer::when_ended_or_paused(head.in_dialect(dialect), run).await,
        Turn::Command { head, reply } if streams => {
            Ok(writer::of_text(ChatWriter::new(head.in_dialect(dialect), request.wants_usage()), &reply))
        }
        Turn::Command { head, reply } => Ok(head.in_dialect(dialect).whole(&reply, Default::default(), "stop", None)),
    }
}
