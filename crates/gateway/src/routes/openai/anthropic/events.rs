//! The events of a streamed message, and the blocks that come in pieces.

use axum::response::sse::Event;
use serde_json::{Value, json};

use super::body::text_block;
use crate::event_json::one_line;

/// The data of an event. The other fields are those of its type.
#[cfg(test)]
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct MessageEvent {
    /// The name of the event, such as `content_block_delta`.
    #[serde(rename = "type")]
    kind: &'static str,
}

/// A block that has begun and not ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    Text,
    Thinking,
}

impl Block {
    /// The block before its first piece.
    pub(super) fn empty(self) -> Value {
        match self {
            Self::Text => text_block(""),
            Self::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
        }
    }

    /// A piece of the block.
    pub(super) fn delta(self, piece: &str) -> Value {
        match self {
            Self::Text => json!({"type": "text_delta", "text": piece}),
            Self::Thinking => json!({"type": "thinking_delta", "thinking": piece}),
        }
    }
}

/// An event with its type.
pub(super) fn event(kind: &'static str, mut data: Value) -> Event {
    data["type"] = json!(kind);
    Event::default().event(kind).data(one_line(data.to_string()))
}
