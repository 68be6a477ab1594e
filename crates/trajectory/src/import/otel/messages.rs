//! The messages of a model call, in the forms of the conventions.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::span::{Event, Span};
use crate::event::CallArguments;
use crate::import::content::{field, list, named, text_or_json};
use crate::import::parts::kind_of;
use crate::import::recorder::Recorder;

type Object = Map<String, Value>;

/// The messages that a model call got and gave.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) input: Vec<Value>,
    pub(super) output: Vec<Value>,
}

impl Messages {
    /// The messages of a span and its events.
    pub(super) fn of(span: &Span, logs: &[Event]) -> Self {
        let mut found = Self::default();
        found.add_attributes(&span.attributes);
        for event in span.events.iter().chain(logs) {
            found.add_event(event);
        }
        if found.input.is_empty() && found.output.is_empty() {
            found.input = numbered(&span.attributes, "gen_ai.prompt.");
            found.output = numbered(&span.attributes, "gen_ai.completion.");
        }
        found
    }

    fn add_attributes(&mut self, attributes: &Map<String, Value>) {
        self.input.extend(listed(attributes.get("gen_ai.input.messages")));
        self.output.extend(listed(attributes.get("gen_ai.output.messages")));
    }

    fn add_event(&mut self, event: &Event) {
        let role = event.name.strip_prefix("gen_ai.").and_then(|rest| rest.strip_suffix(".message"));
        let content = event.attributes.get("gen_ai.event.content").map(parsed);
        let mut message = match content {
            Some(Value::Object(message)) => message,
            _ => event.attributes.clone(),
        };
        if let Some(role) = role {
            message.entry("role").or_insert(role.into());
            self.input.push(Value::Object(message));
        } else if event.name == "gen_ai.choice" {
            let mut inner = match message.remove("message").map(|inner| parsed(&inner)) {
                Some(Value::Object(inner)) => inner,
                Some(text @ Value::String(_)) => Map::from_iter([("content".to_owned(), text)]),
                _ => message.clone(),
            };
            if let Some(calls) = message.remove("tool_calls") {
                inner.entry("tool_calls").or_insert(calls);
            }
            inner.insert("role".into(), "assistant".into());
            self.output.push(Value::Object(inner));
        } else {
            self.add_attributes(&event.attributes);
        }
    }
}

/// JSON that was recorded as text.
pub(super) fn parsed(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        _ => value.clone(),
    }
}

fn listed(value: Option<&Value>) -> Vec<Value> {
    match value.map(parsed) {
        Some(Value::Array(messages)) => messages,
        Some(message @ Value::Object(_)) => vec![message],
        _ => Vec::new(),
    }
}

/// The messages of attributes such as `gen_ai.prompt.0.role` and `gen_ai.prompt.0.tool_calls.0.name`.
fn numbered(attributes: &Map<String, Value>, prefix: &str) -> Vec<Value> {
    let mut found: BTreeMap<u32, (Object, BTreeMap<u32, Object>)> = BTreeMap::new();
    for (key, value) in attributes {
        let Some((number, key)) = key.strip_prefix(prefix).and_then(|rest| rest.split_once('.')) else { continue };
        let Ok(number) = number.parse() else { continue };
        let (message, calls) = found.entry(number).or_default();
        match key.strip_prefix("tool_calls.").and_then(|rest| rest.split_once('.')) {
            Some((call, key)) => {
                calls.entry(call.parse().unwrap_or(0)).or_default().insert(key.to_owned(), value.clone());
            }
            None => drop(message.insert(key.to_owned(), value.clone())),
        }
    }
    let message = |(mut message, calls): (Object, BTreeMap<u32, Object>)| {
        if !calls.is_empty() {
            message.insert("tool_calls".into(), calls.into_values().map(Value::Object).collect());
        }
        Value::Object(message)
    };
    found.into_values().map(message).collect()
}

/// The role of a message.
pub(super) fn role(message: &Value) -> &str {
    field(message, "role")
}

/// The content of a message: a text, or parts, which may be recorded as text. An answer may be JSON too, and is none.
fn content_of(message: &Value) -> Value {
    let written = message.get("content").cloned().unwrap_or_default();
    match parsed(&written) {
        Value::Array(parts) if parts.iter().any(Value::is_object) => Value::Array(parts),
        _ => written,
    }
}

/// Records a message.
pub(super) fn record(recorder: &mut Recorder, message: &Value) {
    let content = content_of(message);
    let single = (content.is_object() && role(message) != "tool").then(|| content.clone());
    let listed_parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let parts = [list(message, "parts"), listed_parts, single.as_slice()].concat();
    let mut texts: Vec<String> = content.as_str().map(str::to_owned).into_iter().collect();
    let mut calls: Vec<Value> = message.get("tool_calls").map(|calls| listed(Some(calls))).unwrap_or_default();
    for part in &parts {
        let text = || part.get("content").or_else(|| part.get("text")).and_then(Value::as_str);
        match field(part, "type") {
            "tool_call" | "tool_use" | "function_call" => calls.push(part.clone()),
            "tool_call_response" | "tool_result" => {
                let given = ["response", "result", "content"].iter().find_map(|key| part.get(*key));
                let id = ["id", "tool_use_id"].iter().find_map(|key| part.get(*key)?.as_str());
                result(recorder, id, given, part.get("is_error").and_then(Value::as_bool));
            }
            "reasoning" | "thinking" => recorder.thought(text().unwrap_or_default().to_owned()),
            "text" | "" if text().or(part.as_str()).is_some() => {
                texts.extend(text().or(part.as_str()).map(str::to_owned));
            }
            _ => match named(part) {
                Some(name) => texts.push(name),
                None => recorder.skip(kind_of(part)),
            },
        }
    }
    let text = texts.join("\n");
    match role(message) {
        "assistant" | "model" => {
            // An instrumentation that may not record texts says only that there was an answer.
            if !["content", "parts", "tool_calls"].iter().any(|key| message.get(*key).is_some()) {
                recorder.skip("answer without its content");
            }
            recorder.assistant(text, !calls.is_empty());
        }
        "tool" if parts.is_empty() => {
            let id = ["id", "tool_call_id"].iter().find_map(|key| message.get(*key)?.as_str());
            result(recorder, id, Some(&content), None);
        }
        "user" if !text.is_empty() => recorder.user(text),
        _ => {}
    }
    for call in &calls {
        let function = call.get("function").map(parsed).unwrap_or_else(|| call.clone());
        let args = ["arguments", "input"].iter().find_map(|key| function.get(*key)).map(written).unwrap_or_default();
        let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
        recorder.call(id, field(&function, "name").to_owned(), CallArguments::parse(&args));
    }
}

/// Arguments as text.
pub(super) fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Records a result, unless a span of the tool has given it.
fn result(recorder: &mut Recorder, id: Option<&str>, given: Option<&Value>, failed: Option<bool>) {
    if recorder.awaits(id, None) {
        recorder.result(id, None, failed.map(|failed| !failed), text_or_json(given));
    }
}
