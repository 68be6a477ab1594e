//! The messages of a request, as those of a chat request.

use serde_json::{Map, Value, json};

use super::blocks::Said;
use super::request::wrong;
use crate::routes::openai::OpenAiError;

/// The messages of a chat request, each with its place in the request.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) list: Vec<Value>,
    /// The places, for errors; `None`: `system`.
    pub(super) places: Vec<Option<usize>>,
}

impl Messages {
    /// Adds the system prompt.
    ///
    /// # Errors
    /// 400: it is neither a text nor a list of blocks.
    pub(super) fn add_system(&mut self, system: Option<Value>) -> Result<(), OpenAiError> {
        let content = match system {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) if text.is_empty() => return Ok(()),
            Some(Value::String(text)) => Value::String(text),
            Some(Value::Array(blocks)) => match said(blocks, "system", "system")?.parts {
                parts if parts.is_empty() => return Ok(()),
                parts => Value::Array(parts),
            },
            Some(_) => return Err(wrong("system", "must be a text or a list of text blocks")),
        };
        self.push(message("system", content), None);
        Ok(())
    }

    /// Adds the messages of the request.
    ///
    /// # Errors
    /// 400: they are no list, or one of them has the wrong form.
    pub(super) fn add_all(&mut self, messages: Option<Value>) -> Result<(), OpenAiError> {
        match messages {
            None | Some(Value::Null) => Ok(()), // a request without messages is refused with those whose list is empty
            Some(Value::Array(messages)) => {
                messages.into_iter().enumerate().try_for_each(|(at, one)| self.add(one, at))
            }
            Some(_) => Err(wrong("messages", "must be a list of messages")),
        }
    }

    /// Adds a message. The results of a message of the user come before its text, each as a message of its own.
    fn add(&mut self, one: Value, at: usize) -> Result<(), OpenAiError> {
        let path = format!("messages[{at}]");
        let Value::Object(mut fields) = one else { return Err(wrong(path, "must be an object with role and content")) };
        let role = match fields.remove("role") {
            Some(Value::String(role)) if matches!(&*role, "user" | "assistant" | "system") => role,
            _ => return Err(wrong(format!("{path}.role"), "must be user, assistant or system")),
        };
        let content = fields.remove("content").unwrap_or_default();
        let Value::Array(blocks) = content else {
            self.push(message(&role, content), Some(at));
            return Ok(());
        };
        let Said { results, parts, calls } = said(blocks, &role, &format!("{path}.content"))?;
        let is_said = !parts.is_empty() || (results.is_empty() && calls.is_empty());
        for result in results {
            self.push(result, Some(at));
        }
        let content = if is_said { Value::Array(parts) } else { Value::Null };
        match calls.is_empty() {
            true if !is_said => {}
            true => self.push(message(&role, content), Some(at)),
            false => {
                let mut message = message(&role, content);
                message["tool_calls"] = Value::Array(calls);
                self.push(message, Some(at));
            }
        }
        Ok(())
    }

    fn push(&mut self, message: Value, place: Option<usize>) {
        self.list.push(message);
        self.places.push(place);
    }
}

/// The blocks of a message.
fn said(blocks: Vec<Value>, role: &str, path: &str) -> Result<Said, OpenAiError> {
    let mut said = Said::default();
    for (at, block) in blocks.into_iter().enumerate() {
        said.add(block, role, &format!("{path}[{at}]"))?;
    }
    Ok(said)
}

fn message(role: &str, content: Value) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), json!(role));
    message.insert("content".to_owned(), content);
    Value::Object(message)
}
