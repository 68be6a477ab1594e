//! The message that is the answer.

use belay_protocol::UsedTokens;
use serde::Serialize;
use serde_json::{Value, json};

use crate::routes::openai::answer::Head;
use crate::routes::openai::outcome::End;
use crate::routes::openai::tool_calls::ToolCallBody;

/// A message.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AnthropicMessage"))]
pub(crate) struct MessageBody {
    id: String,
    #[serde(rename = "type")]
    #[cfg_attr(test, schemars(extend("enum" = ["message"])))]
    form: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["assistant"])))]
    role: &'static str,
    model: String,
    /// Blocks of the types `text` and `tool_use`; in a stream also `thinking`.
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Map<String, Value>>"))]
    content: Vec<Value>,
    /// `end_turn`, `tool_use`, `max_tokens` or `refusal`; null at the beginning of a stream.
    stop_reason: Option<&'static str>,
    /// Always null: an answer does not tell which of the texts has ended it.
    stop_sequence: (),
    usage: MessageUsage,
    /// As in the answer to a chat request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    belay: Option<Value>,
}

/// The usage of an answer.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MessageUsage {
    input_tokens: u64,
    output_tokens: u64,
    /// Always 0: what a provider has cached is among the input tokens.
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
}

impl MessageUsage {
    pub(super) fn of(used: UsedTokens) -> Self {
        Self {
            input_tokens: used.input,
            output_tokens: used.output,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: 0,
        }
    }
}

/// The fields that the whole answer and the events of a stream have in common.
pub(super) struct Shape {
    pub(super) head: Head,
    pub(super) id: String,
}

impl Shape {
    /// A message without an end.
    pub(super) fn begun(&self) -> MessageBody {
        MessageBody {
            id: self.id.clone(),
            form: "message",
            role: "assistant",
            model: self.head.model.clone(),
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: (),
            usage: MessageUsage::of(UsedTokens::default()),
            belay: None,
        }
    }

    /// The whole message.
    pub(super) fn whole(&self, text: &str, end: &End, used: UsedTokens) -> MessageBody {
        let (calls, belay) = match end {
            End::Calls(calls) => (calls.as_slice(), None),
            End::Text { belay, .. } => (&[][..], belay.clone()),
            End::Error(_) => (&[][..], None),
        };
        let said = (!text.is_empty() || calls.is_empty()).then(|| text_block(text));
        MessageBody {
            content: said.into_iter().chain(calls.iter().map(|call| tool_use(call, input_of(call)))).collect(),
            stop_reason: Some(stop_reason(end)),
            usage: MessageUsage::of(used),
            belay,
            ..self.begun()
        }
    }

    /// The reply to a command.
    pub(super) fn of_command(&self, text: &str) -> MessageBody {
        MessageBody { content: vec![text_block(text)], stop_reason: Some(END_TURN), ..self.begun() }
    }
}

pub(super) const END_TURN: &str = "end_turn";

/// Why the answer ends.
pub(super) fn stop_reason(end: &End) -> &'static str {
    match end {
        End::Calls(_) => "tool_use",
        End::Text { finish: "length", .. } => "max_tokens",
        End::Text { finish: "content_filter", .. } => "refusal",
        End::Text { .. } | End::Error(_) => END_TURN,
    }
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A call that the client is to carry out.
pub(super) fn tool_use(call: &ToolCallBody, input: Value) -> Value {
    let (id, name, _) = call.parts();
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

fn input_of(call: &ToolCallBody) -> Value {
    let (_, _, arguments) = call.parts();
    serde_json::from_str(arguments).unwrap_or_else(|_broken| json!({}))
}
