//! Routes and methods of OpenAI's and Anthropic's APIs that this API does not have, and what to use instead. Their clients
//! show the text of the error to the person who has configured them.

use axum::http::StatusCode;
use axum::response::Response;

use super::error::OpenAiError;
use super::{anthropic, responses};
use crate::error::ApiError;
use crate::foreign::shown;

/// Each path with the advice about it. A path stands before the beginnings of it.
const ADVICE: &[(&str, &str)] = &[
    ("/v1/messages/batches", "Belay has no batches; send the messages one by one"),
    ("/v1/complete", "use POST /v1/messages"),
    ("/v1/responses/compact", "Belay compacts its conversations itself; go on by previous_response_id or conversation"),
    ("/v1/responses/input_tokens", "POST /v1/messages/count_tokens estimates the tokens of a request"),
    ("/v1/conversations", "a session is a conversation; name it in the field conversation of POST /v1/responses"),
    ("/v1/batches", "Belay has no batches; send the requests one by one"),
    ("/v1/audio", "Belay serves no speech; a message takes sound as a part of type input_audio"),
    ("/v1/images", "Belay makes no pictures; a message takes them as parts of type image_url"),
    ("/v1/moderations", "Belay serves no moderation"),
    ("/v1/files", "upload to POST /api/v1/files, and name the file in a part of type file by its file_id"),
    ("/v1/assistants", "use POST /v1/chat/completions with the header X-Belay-Session"),
    ("/v1/threads", "use POST /v1/chat/completions with the header X-Belay-Session"),
    ("/v1/chat", "use POST /v1/chat/completions"),
];

/// The routes that exist.
fn routes() -> String {
    let routes = [
        "POST /v1/chat/completions",
        responses::ROUTES,
        "POST /v1/completions, POST /v1/embeddings",
        anthropic::ROUTES,
        "GET /v1/models and GET /v1/models/{name}",
    ];
    let there: Vec<&str> = routes.into_iter().filter(|routes| !routes.is_empty()).collect();
    there.join(", ")
}

/// The APIs that the build does not have: the beginning of the paths, and the reason.
const ABSENT: [Option<(&str, &str)>; 2] = [responses::ABSENT, anthropic::ABSENT];

/// The error in the form of the API that a path below `/v1/` is of.
pub(crate) fn error_for(path: &str, error: ApiError) -> Response {
    anthropic::in_form_of(path, OpenAiError::from(error))
}

/// 404 for a path below `/v1/`: names the path, the routes that exist, and what to use instead.
pub(crate) fn no_such_route(path: &str) -> Response {
    let advice = advice(path).map(|advice| format!(": {advice}")).unwrap_or_default();
    let message = format!("no such route: {}{advice}. This API has {}", shown(path), routes());
    anthropic::in_form_of(path, OpenAiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message))
}

/// 405 for a path below `/v1/` that takes another method. The name of a route of those APIs that fits the pattern of another
/// route is 404.
pub(crate) fn wrong_method(path: &str) -> Response {
    if advice(path).is_some() {
        return no_such_route(path);
    }
    let error = ApiError::method_not_allowed();
    let message = format!("{} ({}). This API has {}", error.message, shown(path), routes());
    error_for(path, ApiError { message: message.into(), ..error })
}

/// What to use instead of a path.
fn advice(path: &str) -> Option<&'static str> {
    let below = |known: &str| path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let exists = path.starts_with("/v1/chat/completions");
    let absent = ABSENT.iter().flatten();
    absent.chain(ADVICE).find(|(known, _)| below(known) && !exists).map(|(_, advice)| *advice)
}
