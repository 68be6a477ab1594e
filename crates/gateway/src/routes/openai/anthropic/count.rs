//! `POST /v1/messages/count_tokens`: an estimate of what a request would have.

use axum::Json;
use axum::extract::State;
use belay_protocol::{Message, PICTURE_TOKENS};
use serde::Serialize;

use super::error::AnthropicError;
use super::request::{Meant, MessagesRequest};
use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::routes::openai::{OUR_NAME, OpenAiError, check_model};

/// The tokens of a request.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TokenCount {
    /// An estimate: a quarter of the bytes of the messages and tools of the request, and 1600 for each file. What Belay adds,
    /// its instructions and its tools, is not in it.
    input_tokens: u64,
}

/// Estimates the tokens of a request. Nothing is sent to a model.
pub(crate) async fn count_tokens(
    State(app): State<Shared>,
    body: Result<JsonBody<MessagesRequest>, ApiError>,
) -> Result<Json<TokenCount>, AnthropicError> {
    let JsonBody(request) = body?;
    let Meant { chat, places, .. } = request.into_chat()?;
    let count = || -> Result<u64, OpenAiError> {
        check_model(&app, chat.model.as_deref().unwrap_or(OUR_NAME))?;
        let lines = chat.lines()?;
        let of_line = |line: &belay_protocol::inbound::HistoryLine| match line.tools() {
            Some(message) => message.estimated_tokens(),
            None => Message::user(line.text.clone()).estimated_tokens(),
        };
        let said: u64 = lines.iter().map(of_line).sum();
        let tools: usize = chat.tools()?.map_or(0, |tools| tools.bytes());
        Ok(said + tools as u64 / 4 + chat.files(false)?.len() as u64 * PICTURE_TOKENS)
    };
    let input_tokens = count().map_err(|error| places.renamed(error))?;
    Ok(Json(TokenCount { input_tokens }))
}
