//! The events of a streamed chat completion.

use axum::response::sse::Event;
use belay_protocol::UsedTokens;
use serde_json::Value;

use super::answer::{Dialect, Head};
use super::error::OpenAiError;
use super::outcome::{End, Outcome};
use super::tool_calls::{TOOL_CALLS, ToolCallBody};
use super::writer::{Out, Writer};
use crate::event_json::one_line;

/// Writes the chunks of one answer.
pub(super) struct ChatWriter {
    head: Head,
    /// Whether the stream ends with the usage.
    usage: bool,
}

impl ChatWriter {
    pub(super) fn new(head: Head, usage: bool) -> Self {
        Self { head, usage }
    }

    fn close(&self, used: UsedTokens, finish: &'static str, belay: Option<&Value>, out: &mut Out) {
        out.extend(self.head.closing(self.usage.then_some(used), finish, belay));
    }
}

impl Writer for ChatWriter {
    fn head(&self) -> &Head {
        &self.head
    }

    fn begin(&mut self, out: &mut Out) {
        out.extend(self.head.role_chunk());
    }

    fn text(&mut self, text: &str, out: &mut Out) {
        out.push_back(self.head.text_chunk(text));
    }

    /// The older API has no reasoning.
    fn reasoning(&mut self, text: &str, out: &mut Out) {
        if self.head.dialect == Dialect::Chat {
            out.push_back(self.head.reasoning_chunk(text));
        }
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Out) {
        let used = outcome.used;
        match &outcome.end {
            End::Calls(calls) => {
                out.extend(ToolCallBody::indexed(calls.clone()).into_iter().map(|call| self.head.call_chunk(call)));
                self.close(used, TOOL_CALLS, None, out);
            }
            End::Text { finish, belay, .. } => self.close(used, finish, belay.as_ref(), out),
            End::Error(error) => self.fail(error, out),
        }
    }

    fn command(&mut self, out: &mut Out) {
        self.close(UsedTokens::default(), "stop", None, out);
    }

    fn fail(&mut self, error: &OpenAiError, out: &mut Out) {
        out.push_back(Event::default().data(one_line(error.body().to_string())));
    }
}
