//! The position of notices among the messages of a thread. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use belay_protocol::{Message, MessageBody};

/// The messages of a thread in a valid order for a model. A notice that was stored between a tool call and its result
/// comes after the results of that step: providers reject a request in which anything but its result follows a call.
pub(crate) fn behind_results(messages: Vec<(u64, Arc<Message>)>) -> Vec<(u64, Arc<Message>)> {
    if !messages.iter().any(|(_, message)| message.is_notice()) {
        return messages;
    }
    let mut ordered = Vec::with_capacity(messages.len());
    let (mut open, mut held) = (HashSet::new(), Vec::new());
    for (position, message) in messages {
        if message.is_notice() && !open.is_empty() {
            held.push((position, message));
            continue;
        }
        if let MessageBody::Tool(result) = &message.body {
            open.remove(&result.call_id);
        } else {
            // Calls without a result so far get none.
            ordered.append(&mut held);
            open = message.tool_calls().iter().map(|call| call.id.clone()).collect();
        }
        ordered.push((position, message));
        if open.is_empty() {
            ordered.append(&mut held);
        }
    }
    ordered.append(&mut held);
    ordered
}
