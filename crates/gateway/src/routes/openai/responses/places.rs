//! The names of this API for the parameters that an error of the chat request names.

use super::tools;
use crate::routes::openai::OpenAiError;

/// The places of messages in the input.
pub(super) struct Places(pub(super) Vec<Option<usize>>);

impl Places {
    /// The error of the chat request with the names of this API.
    pub(super) fn renamed(&self, error: OpenAiError) -> OpenAiError {
        error.with_param(|name| {
            let place = name.strip_prefix("messages[").and_then(|rest| rest.split_once(']'));
            match place.and_then(|(at, rest)| Some((self.0.get(at.parse::<usize>().ok()?)?, rest))) {
                Some((Some(at), rest)) => format!("input[{at}]{rest}"),
                Some((None, _)) => "input".to_owned(),
                None => tools::param(name),
            }
        })
    }
}
