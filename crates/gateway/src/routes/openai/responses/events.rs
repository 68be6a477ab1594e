//! The events of a response, each with its number.
//!
//! The numbers of a response in the background follow from the text alone: the number of a piece of text is that of the first
//! event of the text and the bytes so far. So a stream can be resumed behind any number, also after a restart of the daemon,
//! although the pieces are others then. Source: the OpenAI API reference, "Streaming events".

use axum::response::sse::Event;
use serde_json::{Value, json};

use super::body::{ResponseBody, Shape};
use super::items;
use crate::event_json::one_line;
use crate::routes::openai::tool_calls::ToolCallBody;
use crate::routes::openai::writer::Out;

/// The largest number that a client can name: the largest that every JSON parser reads exactly.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// The data of an event. The other fields are those of its type.
#[cfg(test)]
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct ResponseEvent {
    /// The name of the event, such as `response.output_text.delta`.
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
}

/// Writes the events of one response.
pub(super) struct ResponseWriter {
    pub(super) shape: Shape,
    /// The status at the beginning.
    pub(super) status: &'static str,
    /// The number of the next event.
    pub(super) next: u64,
    /// Events before this number are not sent.
    pub(super) from: u64,
    /// The items that are complete.
    pub(super) output: Vec<Value>,
    /// The reasoning, while its item is open.
    pub(super) thought: Option<String>,
    /// The text, while its item is open.
    pub(super) text: Option<String>,
}

impl ResponseWriter {
    pub(super) fn new(shape: Shape, status: &'static str) -> Self {
        Self { shape, status, next: 0, from: 0, output: Vec::new(), thought: None, text: None }
    }

    /// Leaves out the events up to this number.
    pub(super) fn after(self, number: Option<u64>) -> Self {
        Self { from: number.map_or(0, |number| number.min(NUMBER_MAX) + 1), ..self }
    }

    /// Adds an event that takes as many numbers, the last of which is its own.
    pub(super) fn add(&mut self, kind: &'static str, numbers: u64, mut event: Value, out: &mut Out) {
        self.next += numbers;
        let number = self.next - 1;
        if number >= self.from {
            event["type"] = json!(kind);
            event["sequence_number"] = json!(number);
            out.push_back(Event::default().event(kind).data(one_line(event.to_string())));
        }
    }

    pub(super) fn add_one(&mut self, kind: &'static str, event: Value, out: &mut Out) {
        self.add(kind, 1, event, out);
    }

    pub(super) fn add_response(&mut self, kind: &'static str, body: &ResponseBody, out: &mut Out) {
        self.add_one(kind, json!({"response": body}), out);
    }

    /// Adds the last event. It is sent wherever the client has left off: the stored text may be shorter than the streamed
    /// one was.
    pub(super) fn add_last(&mut self, kind: &'static str, body: &ResponseBody, out: &mut Out) {
        self.next = self.next.max(self.from);
        self.add_response(kind, body, out);
    }

    pub(super) fn open_item(&mut self, item: Value, out: &mut Out) {
        let at = self.output.len();
        self.add_one("response.output_item.added", json!({"output_index": at, "item": item}), out);
    }

    pub(super) fn close_item(&mut self, item: Value, out: &mut Out) {
        let at = self.output.len();
        self.add_one("response.output_item.done", json!({"output_index": at, "item": item}), out);
        self.output.push(item);
    }

    pub(super) fn open_text(&mut self, out: &mut Out) {
        self.close_thought(out);
        self.text = Some(String::new());
        let (id, at) = (self.shape.message().to_owned(), self.output.len());
        self.open_item(items::empty_message(&id), out);
        let part = json!({"item_id": id, "output_index": at, "content_index": 0, "part": items::text_part("")});
        self.add_one("response.content_part.added", part, out);
    }

    pub(super) fn close_text(&mut self, out: &mut Out) {
        let Some(text) = self.text.take() else { return };
        let (id, at) = (self.shape.message().to_owned(), self.output.len());
        let done = json!({"item_id": id, "output_index": at, "content_index": 0, "text": text, "logprobs": []});
        self.add_one("response.output_text.done", done, out);
        let part = json!({"item_id": id, "output_index": at, "content_index": 0, "part": items::text_part(&text)});
        self.add_one("response.content_part.done", part, out);
        self.close_item(items::message(&id, &text), out);
    }

    pub(super) fn close_thought(&mut self, out: &mut Out) {
        let Some(text) = self.thought.take() else { return };
        let (id, at) = (self.shape.reasoning().to_owned(), self.output.len());
        let done = json!({"item_id": id, "output_index": at, "summary_index": 0, "text": text});
        self.add_one("response.reasoning_summary_text.done", done, out);
        let part = json!({"type": "summary_text", "text": text});
        let part = json!({"item_id": id, "output_index": at, "summary_index": 0, "part": part});
        self.add_one("response.reasoning_summary_part.done", part, out);
        self.close_item(items::reasoning(&id, &text), out);
    }

    pub(super) fn call(&mut self, call: &ToolCallBody, out: &mut Out) {
        let (call_id, name, arguments) = call.parts();
        let (id, at) = (items::call_item_id(call_id), self.output.len());
        self.open_item(items::call(call, "in_progress"), out);
        let delta = json!({"item_id": id, "output_index": at, "delta": arguments});
        self.add_one("response.function_call_arguments.delta", delta, out);
        let done = json!({"item_id": id, "output_index": at, "name": name, "arguments": arguments});
        self.add_one("response.function_call_arguments.done", done, out);
        self.close_item(items::call(call, "completed"), out);
    }
}
