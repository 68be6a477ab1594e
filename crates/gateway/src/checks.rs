//! Checks of request values, shared by all interfaces.

use std::str::FromStr;

use belay_protocol::{RunId, SessionKey};

use crate::cursor::OTHER_LIST;
use crate::error::ApiError;

/// Longest text of a message, in bytes. 100 000: about 25 000 tokens, more than a person types.
pub(crate) const TEXT_MAX_BYTES: usize = 100_000;
/// Longest idempotency key, in bytes.
pub(crate) const KEY_MAX_BYTES: usize = 256;

/// Longest list that one request returns: runs, sessions, messages, or approval requests.
pub const LIST_MAX: u32 = 500;

/// Checks the limit of a list; absent: 50.
pub(crate) fn check_limit(limit: Option<u32>) -> Result<u32, ApiError> {
    match limit.unwrap_or(50) {
        limit @ 1..=LIST_MAX => Ok(limit),
        _ => Err(ApiError::invalid(format!("limit: must be 1 to {LIST_MAX}"))),
    }
}

/// Parses the parameter `after` of a list.
pub(crate) fn check_cursor<T: FromStr>(after: Option<&str>) -> Result<Option<T>, ApiError> {
    let cursor = after.map(str::parse).transpose();
    cursor.map_err(|_other_shape| ApiError::no_such_row(OTHER_LIST))
}

/// 404 for a run.
pub(crate) fn no_such_run(id: RunId) -> ApiError {
    ApiError::not_found(format!("no such run: {id}"))
}

/// 404 for a session.
pub(crate) fn no_such_session(key: &SessionKey) -> ApiError {
    ApiError::not_found(format!("no such session: {key}"))
}

/// Whether a text is valid as a message.
pub(crate) fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("must not be empty".into());
    }
    if text.len() > TEXT_MAX_BYTES {
        return Err(format!("must be at most {TEXT_MAX_BYTES} bytes, not {}", text.len()));
    }
    if text.contains('\0') {
        return Err("must not contain NUL".into());
    }
    Ok(())
}

/// Whether a text is valid as an idempotency key.
pub(crate) fn check_key(text: &str) -> Result<&str, String> {
    if (1..=KEY_MAX_BYTES).contains(&text.len()) {
        Ok(text)
    } else {
        Err(format!("must be 1 to {KEY_MAX_BYTES} bytes, not {}", text.len()))
    }
}

/// Parses the id of a run.
pub(crate) fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse().map_err(|_not_a_uuid| ApiError::invalid("runId: not the id of a run"))
}
