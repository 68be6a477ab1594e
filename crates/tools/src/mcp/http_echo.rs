//! Removes the token of a request from the refusal of a server that repeats the headers of the request. Models and operators
//! read refusals, and the log has them.

use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse};
use serde_json::Value;

type Failure = StreamableHttpError<reqwest::Error>;

/// Shortest token that is removed, in bytes. A shorter one is no secret, and would remove parts of words.
const MIN_TOKEN: usize = 8;

/// What stands in place of the token.
const REMOVED: &str = "[token]";

/// The answer to a request with this token, without the token in errors.
pub(super) fn without_token(
    token: Option<&str>,
    mut answer: Result<StreamableHttpPostResponse, Failure>,
) -> Result<StreamableHttpPostResponse, Failure> {
    let Some(token) = token.filter(|token| token.len() >= MIN_TOKEN) else { return answer };
    match &mut answer {
        Err(StreamableHttpError::UnexpectedServerResponse(words)) => *words = words.replace(token, REMOVED).into(),
        Err(StreamableHttpError::AuthRequired(asked)) => {
            asked.www_authenticate_header = asked.www_authenticate_header.replace(token, REMOVED);
        }
        Err(StreamableHttpError::InsufficientScope(asked)) => {
            asked.www_authenticate_header = asked.www_authenticate_header.replace(token, REMOVED);
        }
        Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _)) => {
            error.error.message = error.error.message.replace(token, REMOVED).into();
            error.error.data.iter_mut().for_each(|data| remove(token, data));
        }
        _ => {}
    }
    answer
}

fn remove(token: &str, data: &mut Value) {
    match data {
        Value::String(text) => *text = text.replace(token, REMOVED),
        Value::Array(values) => values.iter_mut().for_each(|value| remove(token, value)),
        Value::Object(fields) => fields.values_mut().for_each(|value| remove(token, value)),
        _ => {}
    }
}
