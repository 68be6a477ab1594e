//! Decodes the answer: events of a stream, or one complete message.

use belay_protocol::{DeltaSink, FinishReason, ModelError, ModelReply, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::thoughts::{Thinking, Thoughts};
use crate::collect::{Collector, Reported};
use crate::failure::{from_error_body, network};
use crate::lenient::{Count, Word, object, read, word};
use crate::sse::{Event, EventName};
use crate::stream::{Decoder, Flow};
use crate::wire::{Few, Text, excerpt, text};

/// Any event, or a complete message, which uses the same field names. A flat struct and not an enum: for a tagged enum,
/// serde would buffer a tree of each event to find the tag.
#[derive(Deserialize)]
struct AnyEvent<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content_block: Option<Block<'a>>,
    #[serde(borrow, default)]
    delta: Option<WireDelta<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Only in a complete message.
    #[serde(borrow, default)]
    content: Option<Few<Block<'a>>>,
    /// Only in a complete message.
    #[serde(borrow, default)]
    stop_reason: Option<Word<'a>>,
}

#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Word<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    signature: Option<Text<'a>>,
    /// Content of thoughts that only the provider can read.
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
    stop_reason: Option<Word<'a>>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
}

/// Token counts as the provider reports them. `fresh` excludes tokens that were read from the cache or written to it.
#[derive(Default)]
struct Counts {
    fresh: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    output: Option<u64>,
}

impl Counts {
    /// Replaces earlier counts by later ones, because each covers the whole message.
    fn update(&mut self, usage: &WireUsage) {
        self.fresh = usage.input_tokens.tokens().or(self.fresh);
        self.cache_read = usage.cache_read_input_tokens.tokens().or(self.cache_read);
        self.cache_written = usage.cache_creation_input_tokens.tokens().or(self.cache_written);
        self.output = usage.output_tokens.tokens().or(self.output);
    }

    fn usage(&self) -> Usage {
        let input = [self.fresh, self.cache_read, self.cache_written].into_iter().flatten();
        Usage {
            input: input.fold(0, u64::saturating_add),
            cached_input: self.cache_read.unwrap_or_default(),
            output: self.output.unwrap_or_default(),
        }
    }

    /// Whether the counts are complete. They are if `ends` says that the output was counted at the end.
    fn reported(&self, ends: bool) -> Option<Reported> {
        match (self.fresh, self.output) {
            (None, None) => None,
            (Some(_), Some(_)) if ends => Some(Reported::All),
            _ => Some(Reported::Part),
        }
    }
}

/// Decodes an answer.
#[derive(Default)]
pub(super) struct AnthropicDecoder<'t> {
    collected: Collector,
    thinking: Thinking,
    /// The store for thoughts, if the model was asked to think.
    thoughts: Option<&'t Thoughts>,
    counts: Counts,
    /// Number of blocks that have begun, and the key of the latest one: for servers that number them wrongly or not at
    /// all.
    blocks: u64,
    latest: u64,
    /// Arguments that came with the beginning of a call. Used if no pieces follow.
    early_input: Option<(u64, String)>,
}

impl<'t> AnthropicDecoder<'t> {
    /// Decodes an answer and stores the thoughts before its calls.
    pub(super) fn keeping(thoughts: Option<&'t Thoughts>) -> Self {
        Self { thoughts, ..Self::default() }
    }

    /// Processes a report of usage. The report at the beginning of a stream does not count the answer. Only a report
    /// `at_end` that contains the output is complete.
    fn usage(&mut self, usage: Option<&RawValue>, at_end: bool, sink: &mut dyn DeltaSink) {
        if let Some(usage) = object::<WireUsage>(usage) {
            self.counts.update(&usage);
            let ends = at_end && usage.output_tokens.tokens().is_some();
            if let Some(reported) = self.counts.reported(ends) {
                self.collected.report(self.counts.usage(), reported, sink);
            }
        }
    }

    fn stop(&mut self, reason: &Option<Word<'_>>) {
        self.collected.stop(match word(reason) {
            "" => return,
            "tool_use" => FinishReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
            "refusal" => FinishReason::ContentFilter,
            // `end_turn`, `stop_sequence`, `pause_turn` (for tools that we never offer), and future reasons.
            _ => FinishReason::Stop,
        });
    }

    fn begin_block(&mut self, key: u64, block: Block<'_>, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        self.finish_call(sink)?;
        (self.blocks, self.latest) = (self.blocks + 1, key);
        match text(&block.kind) {
            "tool_use" => {
                self.collected.open_call(key, word(&block.id), text(&block.name), sink)?;
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

    /// Sets the arguments that came with the beginning of the latest call, if no pieces followed.
    fn finish_call(&mut self, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        if let Some((key, input)) = self.early_input.take()
            && let Some(at) = self.collected.call(key)
            && self.collected.has_no_arguments(at)
        {
            self.collected.arguments(at, &input, sink)?;
        }
        Ok(())
    }

    fn delta(&mut self, key: u64, delta: WireDelta<'_>, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        self.collected.text(text(&delta.text), sink)?;
        self.collected.reasoning(text(&delta.thinking), sink)?;
        self.thinking.add(text(&delta.thinking), text(&delta.signature))?;
        let call = self.collected.call(key).or_else(|| self.collected.call(self.latest));
        match (delta.partial_json, call) {
            (Some(piece), Some(at)) => self.collected.arguments(at, &piece.0, sink),
            // Arguments of a block that is not one of our calls, such as a tool of the provider.
            _ => Ok(()),
        }
    }
}

impl Decoder for AnthropicDecoder<'_> {
    fn event(&mut self, event: &Event<'_>, sink: &mut dyn DeltaSink) -> Result<Flow, ModelError> {
        if event.data.trim_ascii().is_empty() {
            return Ok(Flow::Continue);
        }
        if event.name == EventName::Error {
            return Err(from_error_body(event.data));
        }
        read(event.data, "an event of a message", |data| Ok(self.take(serde_json::from_slice(data)?, sink)))
    }

    fn whole(&mut self, body: &[u8], sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        let taken =
            read(body, "an event of a message", |data| Ok(self.take_whole(serde_json::from_slice(data)?, sink)))?;
        match taken {
            Whole::Message => Ok(()),
            Whole::Other => Err(network(format!("a success with a JSON body that is no message: {}", excerpt(body)))),
        }
    }

    fn may_end(&self) -> bool {
        self.collected.has_stopped()
    }

    fn is_counted(&self) -> bool {
        self.collected.is_counted()
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

/// The kind of a complete body.
enum Whole {
    Message,
    Other,
}

impl AnthropicDecoder<'_> {
    fn take(&mut self, event: AnyEvent<'_>, sink: &mut dyn DeltaSink) -> Result<Flow, ModelError> {
        if let Some(error) = event.error.filter(|error| error.get() != "null") {
            return Err(from_error_body(error.get().as_bytes()));
        }
        match text(&event.kind) {
            "message_start" => {
                let head = event.message.and_then(|head| serde_json::from_str::<MessageHead<'_>>(head.get()).ok());
                self.usage(head.and_then(|head| head.usage), false, sink);
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.begin_block(event.index.0.unwrap_or(self.blocks), block, sink)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.delta(event.index.0.unwrap_or(self.latest), delta, sink)?;
                }
            }
            "message_delta" => {
                self.usage(event.usage, true, sink);
                if let Some(delta) = event.delta {
                    self.stop(&delta.stop_reason);
                }
                if self.collected.has_stopped() {
                    self.finish_call(sink)?; // `message_stop` may be missing
                }
            }
            "message_stop" => {
                self.finish_call(sink)?;
                return Ok(Flow::Done);
            }
            // `ping`, `content_block_stop`, and future events.
            _ => {}
        }
        Ok(Flow::Continue)
    }

    fn take_whole(&mut self, message: AnyEvent<'_>, sink: &mut dyn DeltaSink) -> Result<Whole, ModelError> {
        if let Some(error) = message.error.filter(|error| error.get() != "null") {
            return Err(from_error_body(error.get().as_bytes()));
        }
        let Some(blocks) = message.content.filter(|_| text(&message.kind) == "message") else {
            return Ok(Whole::Other);
        };
        for (key, block) in (0..).zip(blocks.0) {
            self.begin_block(key, block, sink)?;
        }
        self.usage(message.usage, true, sink);
        self.stop(&message.stop_reason);
        self.finish_call(sink)?;
        Ok(Whole::Message)
    }
}
