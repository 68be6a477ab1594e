//! The frames of Belay.

use belay_protocol::Question;
use serde::Serialize;

/// A frame of Belay.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToAdapter {
    Hello {
        protocol: u32,
        channel: String,
        cursor: Option<String>,
    },
    Ack {
        id: String,
        result: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    Deliver {
        key: String,
        conversation: String,
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        question: Option<Question>,
    },
    LookUp {
        key: String,
        conversation: String,
    },
    Working {
        conversation: String,
        on: bool,
    },
    Error {
        detail: String,
    },
}

impl ToAdapter {
    /// The text of the frame.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // texts and numbers cannot fail
    }
}
