//! The errors that only this API has.

use axum::http::StatusCode;
use belay_protocol::SessionKey;

use crate::foreign::shown;
use crate::routes::openai::OpenAiError;

/// 404: no such response, or one of another client.
pub(super) fn no_response(id: &str) -> OpenAiError {
    let message = format!("there is no response \"{}\" of this client, or it is not stored any more", shown(id));
    OpenAiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message)
}

/// 404: no such response to continue.
pub(super) fn no_previous_response(id: &str) -> OpenAiError {
    let message = format!(
        "there is no response \"{}\" of this client, or it is not stored any more; send the conversation as input",
        shown(id)
    );
    let (status, code) = (StatusCode::NOT_FOUND, "previous_response_not_found");
    OpenAiError::new(status, "invalid_request_error", code, message).about("previous_response_id")
}

/// 409: the conversation of a response has other ones.
pub(super) fn not_alone(session: &SessionKey) -> OpenAiError {
    let message = format!(
        "the conversation {:?} has other responses, which need this one; an operator can delete it whole by DELETE \
         /api/v1/sessions/{{key}}",
        session.as_str()
    );
    let error = OpenAiError::new(StatusCode::CONFLICT, "invalid_request_error", "conflict", message);
    OpenAiError { after_run: true, ..error }
}
