//! The answer: events of a stream, or one whole message.

use belay_protocol::{DeltaSink, FinishReason, ModelError, ModelReply, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::thoughts::{Thinking, Thoughts};
use crate::collect::Collector;
use crate::failure::{from_error_body, network};
use crate::sse::{Event, EventName};
use crate::stream::{Decoder, Flow};
use crate::wire::{Few, Text, excerpt, text};

/// Any event, and a whole message, which shares its names with them. Flat rather than an enum: a tagged enum would have
/// serde keep a tree of each event before it knows what it is.
#[derive(Deserialize)]
struct AnyEvent<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    message: Option<MessageHead>,
    #[serde(borrow, default)]
    content_block: Option<Block<'a>>,
    #[serde(borrow, default)]
    delta: Option<WireDelta<'a>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Of a whole message.
    #[serde(borrow, default)]
    content: Option<Few<Block<'a>>>,
    /// Of a whole message.
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct MessageHead {
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    signature: Option<Text<'a>>,
    /// Of thoughts that only the provider can read.
    #[serde(borrow, default)]
    data: Option<Text<'a>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireDelta<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    signature: Option<Text<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

/// Counts as the provider tells them: `fresh` excludes what was read from the cache or written to it.
#[derive(Default)]
struct Counts {
    fresh: u64,
    cache_read: u64,
    cache_written: u64,
    output: u64,
}

impl Counts {
    /// Later counts replace earlier ones: they are of the whole message.
    fn update(&mut self, usage: &WireUsage) {
        self.fresh = usage.input_tokens.unwrap_or(self.fresh);
        self.cache_read = usage.cache_read_input_tokens.unwrap_or(self.cache_read);
        self.cache_written = usage.cache_creation_input_tokens.unwrap_or(self.cache_written);
        self.output = usage.output_tokens.unwrap_or(self.output);
    }

    fn usage(&self) -> Usage {
        Usage {
            input: self.fresh.saturating_add(self.cache_read).saturating_add(self.cache_written),
            cached_input: self.cache_read,
            output: self.output,
        }
    }
}

/// Reads an answer.
#[derive(Default)]
pub(super) struct AnthropicDecoder<'t> {
    collected: Collector,
    thinking: Thinking,
    /// Where thoughts are kept, if the model was told to think.
    thoughts: Option<&'t Thoughts>,
    counts: Counts,
    /// Arguments that came with a call's beginning; used when no pieces follow.
    early_input: Option<(u64, String)>,
}

impl<'t> AnthropicDecoder<'t> {
    /// Reads an answer, and keeps the thoughts before its calls.
    pub(super) fn keeping(thoughts: Option<&'t Thoughts>) -> Self {
        Self { thoughts, ..Self::default() }
    }

    fn usage(&mut self, usage: Option<WireUsage>) {
        if let Some(usage) = usage {
            self.counts.update(&usage);
            self.collected.begun = true;
            self.collected.usage = Some(self.counts.usage());
        }
    }

    fn stop(&mut self, reason: &Option<Text<'_>>) {
        self.collected.finish = match text(reason) {
            "" => self.collected.finish,
            "tool_use" => Some(FinishReason::ToolCalls),
            "max_tokens" | "model_context_window_exceeded" => Some(FinishReason::Length),
            "refusal" => Some(FinishReason::ContentFilter),
            // `end_turn`, `stop_sequence`, `pause_turn` (of tools that we never offer), and those to come.
            _ => Some(FinishReason::Stop),
        };
    }

    fn begin_block(&mut self, key: u64, block: Block<'_>, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        self.finish_call()?;
        match text(&block.kind) {
            "tool_use" => {
                self.collected.open_call(key, text(&block.id), text(&block.name))?;
                self.early_input = block.input.map(|input| (key, input.get().to_owned()));
                Ok(())
            }
            "thinking" => {
                let behind = self.collected.has_content();
                self.thinking.begin(text(&block.thinking), text(&block.signature), behind)?;
                self.collected.reasoning(text(&block.thinking), sink)
            }
            "redacted_thinking" => self.thinking.redacted(text(&block.data), self.collected.has_content()),
            _ => self.collected.text(text(&block.text), sink),
        }
    }

    /// Gives the latest call the arguments that came with its beginning, if no pieces followed.
    fn finish_call(&mut self) -> Result<(), ModelError> {
        if let Some((key, input)) = self.early_input.take()
            && let Some(at) = self.collected.call(key)
            && self.collected.has_no_arguments(at)
        {
            self.collected.arguments(at, &input)?;
        }
        Ok(())
    }

    fn delta(&mut self, key: u64, delta: WireDelta<'_>, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        self.collected.text(text(&delta.text), sink)?;
        self.collected.reasoning(text(&delta.thinking), sink)?;
        self.thinking.add(text(&delta.thinking), text(&delta.signature))?;
        match (delta.partial_json, self.collected.call(key)) {
            (Some(piece), Some(at)) => self.collected.arguments(at, &piece.0),
            // Arguments of a block that is no call of ours, such as a tool of the provider's.
            _ => Ok(()),
        }
    }
}

fn parse(data: &[u8]) -> Result<AnyEvent<'_>, ModelError> {
    serde_json::from_slice(data)
        .map_err(|error| network(format!("not an event of a message ({error}): {}", excerpt(data))))
}

impl Decoder for AnthropicDecoder<'_> {
    fn event(&mut self, event: &Event<'_>, sink: &mut dyn DeltaSink) -> Result<Flow, ModelError> {
        if event.data.trim_ascii().is_empty() {
            return Ok(Flow::Continue);
        }
        if event.name == EventName::Error {
            return Err(from_error_body(event.data));
        }
        let event = parse(event.data)?;
        if let Some(error) = event.error.filter(|error| error.get() != "null") {
            return Err(from_error_body(error.get().as_bytes()));
        }
        let key = event.index.unwrap_or_default();
        match text(&event.kind) {
            "message_start" => self.usage(event.message.and_then(|message| message.usage)),
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.begin_block(key, block, sink)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.delta(key, delta, sink)?;
                }
            }
            "message_delta" => {
                self.usage(event.usage);
                if let Some(delta) = event.delta {
                    self.stop(&delta.stop_reason);
                }
            }
            "message_stop" => {
                self.finish_call()?;
                return Ok(Flow::Done);
            }
            // `ping`, `content_block_stop`, and events to come.
            _ => {}
        }
        Ok(Flow::Continue)
    }

    fn whole(&mut self, body: &[u8], sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        let message = parse(body)?;
        if let Some(error) = message.error.filter(|error| error.get() != "null") {
            return Err(from_error_body(error.get().as_bytes()));
        }
        let Some(blocks) = message.content.filter(|_| text(&message.kind) == "message") else {
            return Err(network(format!("a success with a JSON body that is no message: {}", excerpt(body))));
        };
        for (key, block) in (0..).zip(blocks.0) {
            self.begin_block(key, block, sink)?;
        }
        self.usage(message.usage);
        self.stop(&message.stop_reason);
        self.finish_call()
    }

    fn may_end(&self) -> bool {
        false
    }

    fn begun(&self) -> bool {
        self.collected.begun
    }

    fn into_reply(self) -> ModelReply {
        let reply = self.collected.into_reply();
        if let (Some(thoughts), Some(call), Some(blocks)) =
            (self.thoughts, reply.tool_calls.first(), self.thinking.blocks())
        {
            thoughts.keep(&call.id, &blocks);
        }
        reply
    }
}
