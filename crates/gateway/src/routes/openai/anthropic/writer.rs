//! A streamed message.
//!
//! Source: Anthropic's API reference, "Streaming Messages".

use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response};
use belay_protocol::UsedTokens;
use serde_json::{Value, json};

use super::body::{END_TURN, MessageUsage, Shape, stop_reason, tool_use};
use super::error::AnthropicError;
use super::events::{Block, event};
use crate::routes::openai::OpenAiError;
use crate::routes::openai::answer::Head;
use crate::routes::openai::outcome::{End, Outcome};
use crate::routes::openai::tool_calls::ToolCallBody;
use crate::routes::openai::writer::{Out, Writer};

/// Writes the events of one message.
pub(super) struct MessageWriter {
    shape: Shape,
    shows_thinking: bool,
    /// The number of blocks that have begun.
    begun: usize,
    open: Option<Block>,
}

impl MessageWriter {
    pub(super) fn new(shape: Shape, shows_thinking: bool) -> Self {
        Self { shape, shows_thinking, begun: 0, open: None }
    }

    fn begin_block(&mut self, block: &Value, out: &mut Out) {
        out.push_back(event("content_block_start", json!({"index": self.begun, "content_block": block})));
        self.begun += 1;
    }

    /// A piece of the block that has begun last.
    fn piece(&self, delta: &Value, out: &mut Out) {
        out.push_back(event("content_block_delta", json!({"index": self.begun - 1, "delta": delta})));
    }

    fn end_block(&self, out: &mut Out) {
        out.push_back(event("content_block_stop", json!({"index": self.begun - 1})));
    }

    fn add(&mut self, block: Block, piece: &str, out: &mut Out) {
        if self.open != Some(block) {
            self.close(out);
            self.begin_block(&block.empty(), out);
            self.open = Some(block);
        }
        self.piece(&block.delta(piece), out);
    }

    fn close(&mut self, out: &mut Out) {
        if self.open.take().is_some() {
            self.end_block(out);
        }
    }

    fn call(&mut self, call: &ToolCallBody, out: &mut Out) {
        let (_, _, arguments) = call.parts();
        self.begin_block(&tool_use(call, json!({})), out);
        self.piece(&json!({"type": "input_json_delta", "partial_json": arguments}), out);
        self.end_block(out);
    }

    fn finish(&mut self, stop: &str, used: UsedTokens, belay: Option<&Value>, out: &mut Out) {
        if self.begun == 0 {
            self.begin_block(&Block::Text.empty(), out); // an empty answer is an answer
            self.open = Some(Block::Text);
        }
        self.close(out);
        let mut end = json!({"delta": {"stop_reason": stop, "stop_sequence": null}, "usage": MessageUsage::of(used)});
        if let Some(belay) = belay {
            end["belay"] = belay.clone();
        }
        out.push_back(event("message_delta", end));
        out.push_back(event("message_stop", json!({})));
    }
}

impl Writer for MessageWriter {
    fn head(&self) -> &Head {
        &self.shape.head
    }

    fn begin(&mut self, out: &mut Out) {
        out.push_back(event("message_start", json!({"message": self.shape.begun()})));
        out.push_back(event("ping", json!({})));
    }

    fn text(&mut self, piece: &str, out: &mut Out) {
        self.add(Block::Text, piece, out);
    }

    fn reasoning(&mut self, piece: &str, out: &mut Out) {
        if self.shows_thinking {
            self.add(Block::Thinking, piece, out);
        }
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Out) {
        let (used, stop) = (outcome.used, stop_reason(&outcome.end));
        match &outcome.end {
            End::Calls(calls) => {
                self.close(out);
                calls.iter().for_each(|call| self.call(call, out));
                self.finish(stop, used, None, out);
            }
            End::Text { belay, .. } => self.finish(stop, used, belay.as_ref(), out),
            End::Error(error) => self.fail(error, out),
        }
    }

    fn command(&mut self, out: &mut Out) {
        self.finish(END_TURN, UsedTokens::default(), None, out);
    }

    fn fail(&mut self, error: &OpenAiError, out: &mut Out) {
        self.close(out);
        out.push_back(Event::default().event("error").data(AnthropicError::from(error.clone()).data()));
    }

    fn refusal(&self, error: &OpenAiError) -> Response {
        AnthropicError::from(error.clone()).into_response()
    }

    fn keep_alive(&self) -> KeepAlive {
        KeepAlive::new().event(event("ping", json!({})))
    }
}
