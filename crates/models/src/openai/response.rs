//! Decodes the answer: chunks of a stream, or one complete completion.

use belay_protocol::{DeltaSink, FinishReason, ModelError, ModelReply, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::collect::{CallHead, Collector, Reported};
use crate::failure::{from_error_body, network};
use crate::lenient::{Count, Word, object, read, word};
use crate::sse::{Event, EventName};
use crate::stream::{Decoder, Flow};
use crate::wire::{Content, Few, Part, Text, excerpt, text};

/// A chunk of a stream, or a complete completion. Every field may be missing.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Few<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    delta: Option<Piece<'a>>,
    #[serde(borrow, default)]
    message: Option<Piece<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Word<'a>>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    /// The text of a refusal. It replaces the normal text.
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    /// The name in DeepSeek, llama.cpp and vLLM.
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    /// The name in OpenRouter and Ollama.
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Few<CallPiece<'a>>>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    id: Option<Word<'a>>,
    #[serde(borrow, default)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize)]
struct FunctionPiece<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    /// A string that contains JSON. Some servers send the object itself.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireUsage<'a> {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(borrow, default)]
    prompt_tokens_details: Option<&'a RawValue>,
    /// DeepSeek's name for the cached part.
    #[serde(default)]
    prompt_cache_hit_tokens: Count,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Count,
}

/// The usage that the provider reports, and whether it is complete; `None` if nothing can be read.
fn usage(raw: Option<&RawValue>) -> Option<(Usage, Reported)> {
    let usage: WireUsage<'_> = serde_json::from_str(raw?.get()).ok()?;
    let (input, output) = (usage.prompt_tokens.tokens(), usage.completion_tokens.tokens());
    let details: Option<PromptDetails> = object(usage.prompt_tokens_details);
    let cached = details.and_then(|details| details.cached_tokens.tokens());
    let known = Usage {
        input: input.unwrap_or_default(),
        cached_input: cached.or(usage.prompt_cache_hit_tokens.tokens()).unwrap_or_default(),
        output: output.unwrap_or_default(),
    };
    match (input, output) {
        (None, None) => None,
        (Some(_), Some(_)) => Some((known, Reported::All)),
        _ => Some((known, Reported::Part)),
    }
}

/// Decodes an answer.
#[derive(Default)]
pub(crate) struct OpenAiDecoder {
    collected: Collector,
    /// The index of the choice that is read: that of the first one.
    choice: Option<u64>,
}

impl OpenAiDecoder {
    fn chunk(&mut self, data: &[u8], sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        read(data, "a chunk of a completion", |data| Ok(self.take(serde_json::from_slice(data)?, sink)))
    }

    fn take(&mut self, chunk: Chunk<'_>, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
            return Err(from_error_body(error.get().as_bytes()));
        }
        if let Some((usage, reported)) = usage(chunk.usage) {
            self.collected.report(usage, reported, sink);
        }
        for choice in chunk.choices.unwrap_or_default().0 {
            // We never request more than one choice.
            if choice.index.0.is_some_and(|index| *self.choice.get_or_insert(index) != index) {
                continue;
            }
            if let Some(piece) = choice.delta.or(choice.message) {
                self.piece(piece, sink)?;
            }
            if let Some(reason) = finish(word(&choice.finish_reason)) {
                self.collected.stop(reason);
            }
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece<'_>, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        // Servers that know both names of the reasoning send the same text twice.
        let reasoning = if piece.reasoning_content.is_some() { &piece.reasoning_content } else { &piece.reasoning };
        self.collected.reasoning(text(reasoning), sink)?;
        for part in piece.content.unwrap_or_default().0 {
            match part {
                Part::Text(said) => self.collected.text(&said, sink)?,
                Part::Thinking(thought) => self.collected.reasoning(&thought, sink)?,
            }
        }
        self.collected.text(text(&piece.refusal), sink)?;
        piece.tool_calls.unwrap_or_default().0.into_iter().try_for_each(|call| self.call_piece(call, sink))
    }

    /// Adds a piece of a call.
    fn call_piece(&mut self, piece: CallPiece<'_>, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        let (name, arguments) = match &piece.function {
            Some(function) => (text(&function.name), function.arguments.map(RawValue::get)),
            None => ("", None),
        };
        let head = CallHead { index: piece.index.0, id: word(&piece.id), name };
        let at = match self.collected.continued(&head) {
            Some(at) => {
                self.collected.identify(at, head.id, name)?;
                at
            }
            None => {
                let key = head.index.unwrap_or_else(|| self.collected.next_key());
                self.collected.open_call(key, head.id, name, sink)?
            }
        };
        match arguments {
            None | Some("null") => Ok(()),
            Some(quoted) if quoted.starts_with('"') => match serde_json::from_str::<Text<'_>>(quoted) {
                Ok(piece) => self.collected.arguments(at, &piece.0, sink),
                Err(error) => Err(network(format!("the arguments of a tool call are not text: {error}"))),
            },
            Some(object) => self.collected.arguments(at, object, sink),
        }
    }
}

/// Maps the stop reason; `None` for an empty one. An unknown reason counts as a normal stop: the answer is complete.
fn finish(reason: &str) -> Option<FinishReason> {
    Some(match reason {
        "" => return None,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    })
}

impl Decoder for OpenAiDecoder {
    fn event(&mut self, event: &Event<'_>, sink: &mut dyn DeltaSink) -> Result<Flow, ModelError> {
        match event.data.trim_ascii() {
            b"" => Ok(Flow::Continue),
            b"[DONE]" => self.collected.stop_unsaid().map(|()| Flow::Done),
            data if event.name == EventName::Error => Err(from_error_body(data)),
            data => self.chunk(data, sink).map(|()| Flow::Continue),
        }
    }

    fn whole(&mut self, body: &[u8], sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        self.chunk(body, sink)?;
        let ended = self.collected.stop_unsaid();
        ended.map_err(|_| network(format!("a success with a JSON body that is no completion: {}", excerpt(body))))
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
        self.collected.into_reply()
    }
}
