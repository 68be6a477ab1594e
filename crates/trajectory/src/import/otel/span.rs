//! One span, in the forms of OTLP JSON and of the console exporters.

use serde_json::{Map, Value};

use crate::import::content::{field, list};

/// A span, with what is needed of it.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) name: String,
    /// When it began, as text that sorts like the time.
    pub(super) begin: String,
    pub(super) attributes: Map<String, Value>,
    pub(super) events: Vec<Event>,
    pub(super) failed: bool,
}

/// An event of a span, or a log record.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) attributes: Map<String, Value>,
}

impl Span {
    /// Reads a span. `None`: the value has no id of a trace and a span.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let (trace, id) = (id(value, "trace"), id(value, "span"));
        if trace.is_empty() || id.is_empty() || !(value.get("name").is_some() || value.get("attributes").is_some()) {
            return None;
        }
        let parent = ["parentSpanId", "parent_span_id", "parentId", "parent_id"].iter().map(|key| field(value, key));
        let parent =
            parent.chain([value.pointer("/parentSpanContext/spanId").and_then(Value::as_str).unwrap_or_default()]);
        let code = value.pointer("/status/code").or_else(|| value.pointer("/status/status_code"));
        let attributes = attributes(value.get("attributes"));
        Some(Self {
            trace,
            id,
            parent: parent.map(plain_id).find(|parent| !parent.is_empty()).unwrap_or_default(),
            name: field(value, "name").to_owned(),
            begin: begin(value),
            failed: attributes.contains_key("error.type")
                || code.is_some_and(|code| {
                    code.as_u64() == Some(2) || code.as_str().is_some_and(|code| code.contains("ERROR"))
                }),
            attributes,
            events: list(value, "events").iter().filter_map(Event::of).collect(),
        })
    }

    /// A text attribute; empty if it is missing.
    pub(super) fn word(&self, name: &str) -> &str {
        self.attributes.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The operation: as recorded, or by the beginning of the name.
    pub(super) fn operation(&self) -> &str {
        match self.word("gen_ai.operation.name") {
            "" => self.name.split(' ').next().unwrap_or_default(),
            word => word,
        }
    }

    /// Whether the span is about a model call.
    pub(super) fn is_model_call(&self) -> bool {
        let of_model = |name: &String| name.starts_with("gen_ai.request.") || name.starts_with("gen_ai.usage.");
        match self.operation() {
            "chat" | "text_completion" | "generate_content" => true,
            "execute_tool" | "invoke_agent" | "create_agent" | "embeddings" | "invoke_workflow" => false,
            // Versions before 1.27 have no operation.
            _ => self.attributes.keys().any(of_model) && !self.attributes.contains_key("gen_ai.tool.name"),
        }
    }
}

impl Event {
    /// Reads an event of a span, or a log record. `None`: it is not about generative AI.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let mut attributes = attributes(value.get("attributes"));
        if let Some(body) = value.get("body") {
            // The body of a log record is the content of the message.
            if let Value::Object(body) = any_value(body) {
                attributes.extend(body);
            }
        }
        let written = attributes.get("event.name").and_then(Value::as_str).map(str::to_owned);
        let names = ["name", "eventName", "event_name"].iter().map(|key| field(value, key).to_owned());
        let name = names.chain(written).find(|name| name.starts_with("gen_ai."))?;
        Some(Self { name, attributes })
    }
}

/// The id of the trace or of the span.
pub(super) fn id(value: &Value, of: &str) -> String {
    let context = value.get("context").or_else(|| value.get("spanContext")).unwrap_or(&Value::Null);
    let keys = [format!("{of}Id"), format!("{of}_id")];
    let found = [value, context].into_iter().flat_map(|value| keys.iter().map(|key| field(value, key)));
    let own = if of == "span" { field(value, "id") } else { "" }; // the console exporter of JavaScript
    plain_id(found.chain([own]).find(|id| !id.is_empty()).unwrap_or_default())
}

fn plain_id(id: &str) -> String {
    id.trim_start_matches("0x").to_ascii_lowercase()
}

fn begin(value: &Value) -> String {
    let keys = ["startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time", "timestamp"];
    match keys.iter().find_map(|key| value.get(*key)) {
        Some(Value::String(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) => format!("{text:0>24}"),
        Some(Value::String(text)) => text.clone(),
        // Seconds and nanoseconds.
        Some(Value::Array(parts)) => parts.iter().map(|part| format!("{:0>12}", part.as_u64().unwrap_or(0))).collect(),
        Some(number) => format!("{:0>24}", number.to_string()),
        None => String::new(),
    }
}

/// Attributes: a list of keys and values, or an object.
fn attributes(value: Option<&Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(object)) => object.iter().map(|(key, value)| (key.clone(), any_value(value))).collect(),
        Some(Value::Array(pairs)) => {
            let pair = |pair: &Value| Some((pair.get("key")?.as_str()?.to_owned(), any_value(pair.get("value")?)));
            pairs.iter().filter_map(pair).collect()
        }
        _ => Map::new(),
    }
}

/// The value of `{"stringValue":…}` and its kin. Other values stay as they are.
fn any_value(value: &Value) -> Value {
    let Value::Object(object) = value else { return value.clone() };
    let Some((key, inner)) = object.iter().next().filter(|_| object.len() == 1) else { return value.clone() };
    match key.as_str() {
        "stringValue" | "boolValue" | "doubleValue" | "string_value" => inner.clone(),
        "intValue" | "int_value" => match inner.as_str().and_then(|text| text.parse::<u64>().ok()) {
            Some(number) => number.into(),
            None => inner.clone(),
        },
        "arrayValue" | "array_value" => list(inner, "values").iter().map(any_value).collect(),
        "kvlistValue" | "kvlist_value" => Value::Object(attributes(inner.get("values"))),
        _ => value.clone(),
    }
}
