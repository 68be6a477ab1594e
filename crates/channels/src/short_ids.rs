//! The id in the text of a question as people type it.

use std::borrow::Cow;

use belay_protocol::{IdEnd, Outbound};

/// The text of a message, with the end of the id in the place of the id of its question.
pub fn with_short_id(message: &Outbound) -> Cow<'_, str> {
    match &message.question {
        None => Cow::Borrowed(&message.text),
        Some(question) => {
            let id = question.approval;
            Cow::Owned(message.text.replace(&id.to_string(), &IdEnd::of(id.as_uuid())))
        }
    }
}
