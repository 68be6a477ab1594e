//! What the APIs whose requests become chat requests need of the types of a chat request: the names of their own for the
//! parameters that an error names, and the parts of an error.

use super::error::OpenAiError;

/// The places of the messages of the chat request in a request of another API.
pub(super) struct Places {
    /// The list in which the places are.
    list: &'static str,
    /// `None`: a message that the list does not have.
    places: Vec<Option<usize>>,
    /// The name of any other parameter.
    param: fn(&str) -> String,
}

impl Places {
    pub(super) fn new(list: &'static str, places: Vec<Option<usize>>, param: fn(&str) -> String) -> Self {
        Self { list, places, param }
    }

    /// The error of the chat request with the names of the other API.
    pub(super) fn renamed(&self, error: OpenAiError) -> OpenAiError {
        let param = error.param.as_deref().map(|name| {
            let place = name.strip_prefix("messages[").and_then(|rest| rest.split_once(']'));
            match place.and_then(|(at, rest)| Some((self.places.get(at.parse::<usize>().ok()?)?, rest))) {
                Some((Some(at), rest)) => format!("{}[{at}]{rest}", self.list),
                Some((None, _)) => self.list.to_owned(),
                None => (self.param)(name),
            }
        });
        OpenAiError { param, ..error }
    }
}

impl OpenAiError {
    /// The code and the message, for an answer that has an error as a part.
    pub(super) fn parts(&self) -> (&'static str, &str) {
        (self.code, &self.message)
    }
}
