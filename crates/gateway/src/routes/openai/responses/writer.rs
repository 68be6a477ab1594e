//! A streamed response.

use serde_json::json;

use super::events::ResponseWriter;
use super::status::status_of;
use crate::routes::openai::OpenAiError;
use crate::routes::openai::answer::Head;
use crate::routes::openai::outcome::{End, Outcome};
use crate::routes::openai::writer::{Out, Writer};

impl Writer for ResponseWriter {
    fn head(&self) -> &Head {
        &self.shape.head
    }

    fn begin(&mut self, out: &mut Out) {
        let body = self.shape.begun(self.status);
        self.add_response("response.created", &body, out);
        self.add_response("response.in_progress", &self.shape.begun("in_progress"), out);
    }

    fn text(&mut self, piece: &str, out: &mut Out) {
        if self.text.is_none() {
            self.open_text(out);
        }
        let numbers = if self.shape.is_background() { piece.len() as u64 } else { 1 };
        // A part of the piece may have been sent before.
        let known = self.from.saturating_sub(self.next).min(numbers);
        let mut cut = if known < numbers { usize::try_from(known).unwrap_or(0) } else { 0 };
        while !piece.is_char_boundary(cut) {
            cut -= 1;
        }
        let (id, at) = (self.shape.message().to_owned(), self.output.len());
        let delta =
            json!({"item_id": id, "output_index": at, "content_index": 0, "delta": &piece[cut..], "logprobs": []});
        self.add("response.output_text.delta", numbers, delta, out);
        self.text.get_or_insert_default().push_str(piece);
    }

    /// The reasoning before the text. It is not stored, so a response that is read later has none.
    fn reasoning(&mut self, piece: &str, out: &mut Out) {
        if self.shape.is_background() || self.text.is_some() {
            return;
        }
        let (id, at) = (self.shape.reasoning().to_owned(), self.output.len());
        if self.thought.is_none() {
            self.open_item(json!({"type": "reasoning", "id": id, "summary": []}), out);
            let part = json!({"type": "summary_text", "text": ""});
            let part = json!({"item_id": id, "output_index": at, "summary_index": 0, "part": part});
            self.add_one("response.reasoning_summary_part.added", part, out);
        }
        let delta = json!({"item_id": id, "output_index": at, "summary_index": 0, "delta": piece});
        self.add_one("response.reasoning_summary_text.delta", delta, out);
        self.thought.get_or_insert_default().push_str(piece);
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Out) {
        let (status, kind) = (status_of(outcome), kind_of(status_of(outcome)));
        if self.text.is_none() && status == "completed" && matches!(outcome.end, End::Text { .. }) {
            self.open_text(out); // an empty answer is an answer
        }
        self.close_thought(out);
        self.close_text(out);
        if let End::Calls(calls) = &outcome.end {
            calls.iter().for_each(|call| self.call(call, out));
        }
        match (&outcome.end, kind) {
            (_, Some(kind)) => {
                let body = self.shape.ended(outcome, self.output.clone());
                self.add_last(kind, &body, out);
            }
            (End::Error(error), None) => self.fail(error, out),
            (_, None) => {}
        }
    }

    fn command(&mut self, out: &mut Out) {
        self.close_text(out);
        let body = self.shape.of_command(self.output.clone());
        self.add_last("response.completed", &body, out);
    }

    fn fail(&mut self, error: &OpenAiError, out: &mut Out) {
        let (code, message) = error.parts();
        self.next = self.next.max(self.from); // it is sent wherever the client has left off
        self.add_one("error", json!({"code": code, "message": message, "param": null}), out);
    }
}

/// The last event of a response with this status; `None`: it has not ended.
fn kind_of(status: &str) -> Option<&'static str> {
    match status {
        "completed" => Some("response.completed"),
        // The API has no event for a cancelled response.
        "incomplete" | "cancelled" => Some("response.incomplete"),
        "failed" => Some("response.failed"),
        _ => None,
    }
}
