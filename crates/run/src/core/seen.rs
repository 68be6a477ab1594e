//! Prepares the messages of a model request: removes hidden characters of every author.

use std::borrow::Cow;
use std::sync::Arc;

use belay_protocol::{Message, MessageBody};
use belay_text::{is_hidden, removed};

/// Removes hidden characters from messages. The model's own messages stay unchanged: providers compare them, and people
/// saw them in the same form.
pub(super) fn by_model(mut messages: Cow<'_, [Arc<Message>]>) -> Cow<'_, [Arc<Message>]> {
    if !messages.iter().any(|message| hides(message)) {
        return messages;
    }
    for message in messages.to_mut().iter_mut().filter(|message| hides(message)) {
        clean(Arc::make_mut(message));
    }
    messages
}

fn hides(message: &Message) -> bool {
    !matches!(message.body, MessageBody::Assistant { .. }) && message.text().chars().any(is_hidden)
}

fn clean(message: &mut Message) {
    let text = match &mut message.body {
        MessageBody::System { text } | MessageBody::User { text } | MessageBody::Data { text } => text,
        MessageBody::Tool(result) => &mut result.text,
        MessageBody::Assistant { .. } => return,
    };
    *text = removed(text).into_owned();
}
