//! The chunks of a streamed chat completion.

use axum::response::sse::Event;
use belay_protocol::UsedTokens;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{Dialect, Head, TEXT_COMPLETION, UsageBody};
use super::tool_calls::ToolCallBody;
use crate::event_json::one_line;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CompletionChunk"))]
pub(crate) struct Chunk<'a> {
    id: &'a str,
    #[cfg_attr(test, schemars(extend("enum" = ["chat.completion.chunk"])))]
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    /// The approval request that the run waits for, or the files that it has sent, in the last chunk of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    belay: Option<&'a Value>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChunkChoice"))]
struct Choice<'a> {
    index: u32,
    delta: Piece<'a>,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ChunkDelta"))]
struct Piece<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCallBody>>,
    /// A piece of the model's reasoning, as DeepSeek's API has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
}

impl Head {
    fn chunk(&self, delta: Piece<'_>, finish_reason: Option<&'static str>, belay: Option<&Value>) -> Event {
        let Self { id, created, model, .. } = self;
        let data = match self.dialect {
            Dialect::Chat => {
                let choices = [Choice { index: 0, delta, logprobs: (), finish_reason }];
                let object = "chat.completion.chunk";
                serde_json::to_string(&Chunk { id, object, created: *created, model, choices, belay })
            }
            Dialect::Text => {
                let text = delta.content.unwrap_or_default();
                let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason});
                let mut chunk = json!({"id": id, "object": TEXT_COMPLETION, "created": created, "model": model,
                    "choices": [choice]});
                if let Some(belay) = belay {
                    chunk["belay"] = belay.clone();
                }
                Ok(chunk.to_string())
            }
        };
        Event::default().data(one_line(data.unwrap_or_default()))
    }

    /// The first chunk; the older API has none.
    pub(super) fn role_chunk(&self) -> Option<Event> {
        let piece = Piece { role: Some("assistant"), content: Some(""), ..Piece::default() };
        (self.dialect == Dialect::Chat).then(|| self.chunk(piece, None, None))
    }

    pub(super) fn text_chunk(&self, text: &str) -> Event {
        self.chunk(Piece { content: Some(text), ..Piece::default() }, None, None)
    }

    /// A call of a client's tool, whole. Some clients read the first call of a chunk alone.
    pub(super) fn call_chunk(&self, call: ToolCallBody) -> Event {
        self.chunk(Piece { tool_calls: Some(vec![call]), ..Piece::default() }, None, None)
    }

    pub(super) fn reasoning_chunk(&self, text: &str) -> Event {
        self.chunk(Piece { reasoning_content: Some(text), ..Piece::default() }, None, None)
    }

    /// The finish reason, the usage if requested, and the end marker.
    pub(super) fn closing(&self, used: Option<UsedTokens>, finish: &'static str, belay: Option<&Value>) -> Vec<Event> {
        let mut events = vec![self.chunk(Piece::default(), Some(finish), belay)];
        if let Some(used) = used {
            let object = if self.dialect == Dialect::Chat { "chat.completion.chunk" } else { TEXT_COMPLETION };
            let chunk = json!({
                "id": self.id, "object": object, "created": self.created, "model": self.model,
                "choices": [], "usage": UsageBody::of(used),
            });
            events.push(Event::default().data(chunk.to_string()));
        }
        events.push(Event::default().data("[DONE]"));
        events
    }
}
