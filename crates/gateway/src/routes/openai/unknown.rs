//! Routes of OpenAI's and Anthropic's APIs that this API does not have, and what to use instead. Their clients show the
//! text of a 404 to the person who has configured them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::error::OpenAiError;

/// Each path with the advice about it.
const ADVICE: &[(&str, &str)] = &[
    ("/v1/messages", "use POST /v1/chat/completions with a client of OpenAI's API"),
    ("/v1/embeddings", "Belay serves no embeddings; configure another server for them"),
    ("/v1/audio", "Belay serves no speech; a message takes sound as a part of type input_audio"),
    ("/v1/images", "Belay makes no pictures; a message takes them as parts of type image_url"),
    ("/v1/moderations", "Belay serves no moderation"),
    ("/v1/files", "upload to POST /api/v1/files, and name the file in a part of type file by its file_id"),
    ("/v1/assistants", "use POST /v1/chat/completions with the header X-Belay-Session"),
    ("/v1/threads", "use POST /v1/chat/completions with the header X-Belay-Session"),
    ("/v1/chat", "use POST /v1/chat/completions"),
];

/// The routes that exist.
const ROUTES: &str =
    "POST /v1/chat/completions, POST /v1/responses, POST /v1/completions, GET /v1/models and GET /v1/models/{name}";

/// 404 for a path below `/v1/`: names the path, the routes that exist, and what to use instead.
pub(crate) fn no_such_route(path: &str) -> Response {
    let below = |known: &str| path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let advice = ADVICE.iter().find(|(known, _)| below(known)).map(|(_, advice)| format!(": {advice}"));
    let shown: String = path.chars().filter(|c| !c.is_control()).take(100).collect();
    let message = format!("no such route: {shown}{}. This API has {ROUTES}", advice.unwrap_or_default());
    OpenAiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message).into_response()
}
