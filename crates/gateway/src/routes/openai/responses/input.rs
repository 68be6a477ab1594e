//! The items of `input`, as the messages of a chat request. Items and parts of unknown types are ignored.

use belay_protocol::parse_client_call_id;
use serde_json::{Value, json};

use super::parts::{content_of, part_of_result};
use super::tools;
use crate::routes::openai::OpenAiError;
use crate::routes::openai::translated::Places;

/// The messages of a chat request, each with its place in the input.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) list: Vec<Value>,
    /// The places, for errors; `None`: the input does not have the message.
    places: Vec<Option<usize>>,
    /// The message with the calls to which further calls of the same answer belong.
    calls: Option<usize>,
}

impl Messages {
    /// Adds a message that the input does not have.
    pub(super) fn add(&mut self, message: Value) {
        self.push(message, None);
    }

    /// Adds the input of a request.
    ///
    /// # Errors
    /// 400: it is neither a text nor a list.
    pub(super) fn add_input(&mut self, input: Option<Value>) -> Result<(), OpenAiError> {
        match input {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(text)) => {
                self.push(json!({"role": "user", "content": text}), None);
                Ok(())
            }
            Some(Value::Array(items)) => {
                items.into_iter().enumerate().for_each(|(at, item)| self.add_item(item, at));
                Ok(())
            }
            Some(_) => {
                let message = "must be a text or a list of items";
                Err(OpenAiError::invalid("input", "invalid_type", message))
            }
        }
    }

    fn add_item(&mut self, mut item: Value, at: usize) {
        match item["type"].as_str() {
            None | Some("message") if item["role"].is_string() => {
                self.calls = None;
                let (role, content) = (item["role"].take(), item["content"].take());
                let content = content_of(content);
                self.push(json!({"role": role, "content": content}), Some(at));
            }
            Some("function_call") => self.add_call(item, at),
            Some("function_call_output") => {
                let content = match item["output"].take() {
                    Value::Null => Value::String(String::new()),
                    Value::Array(parts) => Value::Array(parts.into_iter().map(part_of_result).collect()),
                    other => other,
                };
                let message = json!({"role": "tool", "tool_call_id": item["call_id"], "content": content});
                self.push(message, Some(at));
            }
            _ => {}
        }
    }

    /// Adds a call. The calls of one answer are one message, also where each is followed by its result.
    fn add_call(&mut self, mut item: Value, at: usize) {
        let call = json!({"id": item["call_id"].take(), "type": "function",
            "function": {"name": item["name"].take(), "arguments": item["arguments"].take()}});
        let has_results = self.list.last().is_some_and(|last| last["role"] == "tool");
        if let Some(open) = self.calls
            && let Some(calls) = self.list[open]["tool_calls"].as_array_mut()
            && (!has_results || calls.last().is_some_and(|last| is_same_answer(&last["id"], &call["id"])))
        {
            return calls.push(call);
        }
        self.calls = Some(self.list.len());
        self.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}), Some(at));
    }

    /// The places of the messages in the input.
    pub(super) fn places(&self) -> Places {
        Places::new("input", self.places.clone(), tools::param)
    }

    fn push(&mut self, message: Value, place: Option<usize>) {
        self.list.push(message);
        self.places.push(place);
    }
}

/// Whether two calls are of one answer of a run.
fn is_same_answer(one: &Value, other: &Value) -> bool {
    let request = |id: &Value| parse_client_call_id(id.as_str()?).map(|(request, _)| request);
    request(one).is_some_and(|one| request(other) == Some(one))
}
