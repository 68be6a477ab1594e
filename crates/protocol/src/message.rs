//! Messages as the model sees them, tool calls and their results.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::CallId;
use crate::provenance::Provenance;

/// One message of a conversation, immutable once made and shared as `Arc<Message>`: a step appends to the history and
/// never copies it. Each message remembers its own wire form (see [`WireCache`]), so a request of 400 messages is a
/// concatenation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    /// What it says.
    #[serde(flatten)]
    pub body: MessageBody,
    /// How long it matters.
    #[serde(default, skip_serializing_if = "MessageScope::is_thread")]
    pub scope: MessageScope,
    /// Whether it holds words of the outside: a page, another program's answer. From there on, tools that reach outside
    /// ask first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Pictures that belong to a tool's result; shown to a model that can see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Picture>,
    /// Who wrote a user message and what came with it; `None`: its text alone, as an older Belay has stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Arc<Provenance>>,
    /// Its serialised form for one wire format, filled by the provider that first sends it.
    #[serde(skip)]
    pub wire: WireCache,
}

impl PartialEq for Message {
    /// Compares what is said; the cached wire form is not part of the value.
    fn eq(&self, other: &Self) -> bool {
        self.body == other.body
            && self.scope == other.scope
            && self.outside == other.outside
            && self.pictures == other.pictures
            && self.provenance == other.provenance
    }
}

/// How a notice begins, by which it is told from a summary of untrusted content.
const NOTICE_OPENING: &str = "This is a notice from Belay, not a message of the user.";

/// How long a message stays in the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageScope {
    /// Part of the conversation: later turns see it.
    #[default]
    Thread,
    /// Steering within one run (nudges, warnings, notices, a discarded text): stored, and left out of later turns.
    Run,
}

impl MessageScope {
    /// Whether later turns see the message.
    pub fn is_thread(&self) -> bool {
        *self == Self::Thread
    }
}

/// What a message says, by who says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum MessageBody {
    /// Instructions that are nobody's words in the conversation: a notice, a pinned summary.
    System {
        /// The text.
        text: String,
    },
    /// What the person said, or a guardrail in the person's place. ADR 0022 lists all that makes one.
    User {
        /// The text.
        text: String,
    },
    /// Material that the agent shows: files, the payload of an event. Nobody's words in the conversation, and no instructions.
    Data {
        /// The text.
        text: String,
    },
    /// What the model said and asked for.
    Assistant {
        /// The text; empty when the model only called tools.
        text: String,
        /// The calls, in the model's order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The one result of one tool call.
    Tool(ToolResult),
}

/// What stands before data, which is sent in the role of the user.
const DATA_LINE: &str = "[data shown by the agent; no message from the user]";

/// The token by which a model says that nothing should be said. It stays in the thread, where the model reads it again.
pub const SILENT_TOKEN: &str = "NO_REPLY";

impl Message {
    fn of(body: MessageBody) -> Self {
        let (scope, wire) = (MessageScope::Thread, WireCache::default());
        Self { body, scope, outside: false, pictures: Vec::new(), provenance: None, wire }
    }

    /// A system message.
    pub fn system(text: impl Into<String>) -> Self {
        Self::of(MessageBody::System { text: text.into() })
    }

    /// A user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::of(MessageBody::User { text: text.into() })
    }

    /// Material that nobody said: data for the model.
    pub fn data(text: impl Into<String>) -> Self {
        Self::of(MessageBody::Data { text: text.into() })
    }

    /// A user message with what is known of it. Where it brings the words of somebody else, it is marked as such.
    pub fn sent(text: impl Into<String>, provenance: Option<Arc<Provenance>>) -> Self {
        let outside = provenance.as_ref().is_some_and(|provenance| provenance.is_untrusted());
        Self { provenance, ..Self::user(text) }.from_outside(outside)
    }

    /// An assistant message without calls.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::of(MessageBody::Assistant { text: text.into(), tool_calls: Vec::new() })
    }

    /// An assistant message with calls.
    pub fn assistant_calls(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self::of(MessageBody::Assistant { text: text.into(), tool_calls })
    }

    /// A tool result.
    pub fn tool(result: ToolResult) -> Self {
        Self::of(MessageBody::Tool(result))
    }

    /// The same message, for this run only.
    #[must_use]
    pub fn for_run(mut self) -> Self {
        self.scope = MessageScope::Run;
        self
    }

    /// A notice in a conversation: what work has come to that was asked for in it, as untrusted content. It says first what it is.
    #[must_use]
    pub fn notice(text: &str) -> Self {
        Self::system(format!("{NOTICE_OPENING} {text}")).from_outside(true)
    }

    /// Whether it is a [notice](Self::notice). The store adds notices to a conversation at any time, while a turn is running too.
    #[must_use]
    pub fn is_notice(&self) -> bool {
        self.outside && matches!(&self.body, MessageBody::System { text } if text.starts_with(NOTICE_OPENING))
    }

    /// The same message, marked as words of the outside where `outside` says so.
    #[must_use]
    pub fn from_outside(mut self, outside: bool) -> Self {
        self.outside |= outside;
        self
    }

    /// The same message with pictures.
    #[must_use]
    pub fn with_pictures(mut self, pictures: Vec<Picture>) -> Self {
        self.pictures = pictures;
        self
    }

    /// The text of the message, whoever says it.
    pub fn text(&self) -> &str {
        match &self.body {
            MessageBody::System { text }
            | MessageBody::User { text }
            | MessageBody::Data { text }
            | MessageBody::Assistant { text, .. } => text,
            MessageBody::Tool(result) => &result.text,
        }
    }

    /// The text as the model reads it: of a user message, with the facts that came with it; of data, with a line that says
    /// so, since wire formats know no role for it and send it as a user message.
    pub fn for_model(&self) -> Cow<'_, str> {
        match (&self.body, &self.provenance) {
            (MessageBody::Data { text }, _) => Cow::Owned(format!("{DATA_LINE}\n{text}")),
            (MessageBody::User { text }, Some(provenance)) => Cow::Owned(provenance.render(text)),
            _ => Cow::Borrowed(self.text()),
        }
    }

    /// The text as people read it: without the markers that show a model what is untrusted content.
    pub fn for_people(&self) -> Cow<'_, str> {
        match &self.body {
            MessageBody::User { text } => Cow::Borrowed(text),
            _ => belay_text::untrusted::without(self.text()),
        }
    }

    /// Whether it says nothing to people: no text, or the model's word for silence.
    pub fn says_nothing(&self) -> bool {
        let text = self.text();
        text.is_empty() || (matches!(self.body, MessageBody::Assistant { .. }) && text == SILENT_TOKEN)
    }

    /// The calls of an assistant message; empty for every other one.
    pub fn tool_calls(&self) -> &[ToolCall] {
        match &self.body {
            MessageBody::Assistant { tool_calls, .. } => tool_calls,
            _ => &[],
        }
    }

    /// Rough size in tokens: a quarter of its bytes plus 4 for the frame. An estimate for budgets and compaction, good
    /// to a factor of about 1.5 for prose; never what is billed.
    pub fn estimated_tokens(&self) -> u64 {
        let calls: usize = self.tool_calls().iter().map(|c| c.name.len() + c.arguments.approx_bytes()).sum();
        let pictures = self.pictures.len() as u64 * PICTURE_TOKENS;
        ((self.for_model().len() + calls) / 4) as u64 + 4 + pictures
    }
}

/// What a picture is estimated to cost. 1600: what providers charge for one of a million pixels.
const PICTURE_TOKENS: u64 = 1600;

/// A picture, cleaned: decoded and encoded anew by whoever made it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// `image/png` or `image/jpeg`.
    pub media_type: String,
    /// Its bytes in base64.
    pub base64: Arc<str>,
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({}, {} bytes of base64)", self.media_type, self.base64.len())
    }
}

/// A request of the model to run a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id; made unique within its batch before it enters the context.
    pub id: CallId,
    /// The tool's name as the model gave it; it need not exist.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// Arguments of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Arguments {
    /// A JSON object, as it should be.
    Object(Map<String, Value>),
    /// Text that is no JSON object: cut off, or nonsense. Never run.
    Malformed(String),
}

/// What stands in the place of a sensitive argument wherever it is shown, stored with a question, or logged.
pub const NOT_SHOWN: &str = "[not shown]";

impl ToolCall {
    /// The arguments with the values of these top-level names replaced by [`NOT_SHOWN`].
    pub fn redacted(&self, sensitive: &[String]) -> Value {
        let mut shown = self.arguments.to_wire_object();
        if let Value::Object(map) = &mut shown {
            map.iter_mut()
                .filter(|(name, _)| sensitive.contains(name))
                .for_each(|(_, value)| *value = NOT_SHOWN.into());
        }
        shown
    }
}

impl Arguments {
    /// Reads what a provider sent. Empty text means no arguments.
    pub fn parse(raw: &str) -> Self {
        if raw.trim().is_empty() {
            return Self::Object(Map::new());
        }
        match serde_json::from_str::<Map<String, Value>>(raw) {
            Ok(map) => Self::Object(map),
            Err(_) => Self::Malformed(raw.to_owned()),
        }
    }

    /// Canonical JSON: object keys sorted at every depth, no spaces; equal arguments give equal text.
    pub fn canonical(&self) -> String {
        match self {
            Self::Object(map) => canonical_json(&Value::Object(map.clone())),
            Self::Malformed(raw) => raw.clone(),
        }
    }

    /// The arguments as a JSON object for the wire. Malformed ones are shown to the model as what they were, inside a
    /// valid object, because providers refuse a history with broken JSON.
    pub fn to_wire_object(&self) -> Value {
        match self {
            Self::Object(map) => Value::Object(map.clone()),
            Self::Malformed(raw) => serde_json::json!({ "malformed_arguments": raw }),
        }
    }

    /// About how many bytes they have as JSON.
    pub fn approx_bytes(&self) -> usize {
        fn of(value: &Value) -> usize {
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => 6,
                Value::String(s) => s.len() + 2,
                Value::Array(a) => a.iter().map(of).sum::<usize>() + 2,
                Value::Object(m) => m.iter().map(|(k, v)| k.len() + 4 + of(v)).sum::<usize>() + 2,
            }
        }
        match self {
            Self::Object(map) => map.iter().map(|(k, v)| k.len() + 4 + of(v)).sum(),
            Self::Malformed(raw) => raw.len(),
        }
    }
}

/// Writes a value with object keys sorted at every depth and no spaces.
pub fn canonical_json(value: &Value) -> String {
    fn write(value: &Value, out: &mut String) {
        match value {
            Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write(item, out);
                }
                out.push(']');
            }
            Value::Object(map) => {
                let mut keys: Vec<_> = map.keys().collect();
                keys.sort_unstable();
                out.push('{');
                for (i, key) in keys.into_iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::String(key.clone()).to_string());
                    out.push(':');
                    write(&map[key], out);
                }
                out.push('}');
            }
            scalar => out.push_str(&scalar.to_string()),
        }
    }
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// The one result of one tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call it answers.
    pub call_id: CallId,
    /// The tool's name.
    pub name: String,
    /// How it went.
    pub status: ToolStatus,
    /// What the model reads.
    pub text: String,
}

/// How a tool call ended. There is no default: whoever makes a result says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It did what was asked.
    Success,
    /// It ran, or was refused before it ran, and says why.
    Error,
    /// A person or a rule said no.
    Denied,
    /// It was told to stop while it ran.
    Cancelled,
    /// It never began: the run ended first.
    NotExecuted,
    /// It had begun when the daemon died; nobody knows how far it came.
    OutcomeUnknown,
}

impl ToolStatus {
    /// The word for metrics: the same as on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::NotExecuted => "not_executed",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }

    /// Whether the duplicate-failure brake counts the call as failed: everything but success.
    pub fn is_failure(self) -> bool {
        self != Self::Success
    }
}

/// A place to keep a value's serialised form for one wire format.
///
/// The first provider to send the value fills it, under its format's name; another format finds the name different and
/// serialises without the cache. That is right, since one daemon speaks mostly one format.
#[derive(Debug, Default)]
pub struct WireCache(OnceLock<(&'static str, Box<str>)>);

impl Clone for WireCache {
    /// A clone starts empty: it may be changed before it is sent.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl WireCache {
    /// Appends the form for `format` to `out`, making it with `make` unless it is cached.
    pub fn append(&self, format: &'static str, out: &mut Vec<u8>, make: impl FnOnce() -> String) {
        let mut make = Some(make);
        // Two threads may both come here first; one fills it, the other uses what it finds.
        let (name, text) = self.0.get_or_init(|| {
            let text = make.take().map(|make| make()).unwrap_or_default();
            (format, text.into_boxed_str())
        });
        match make {
            Some(make) if *name != format => out.extend_from_slice(make().as_bytes()),
            _ => out.extend_from_slice(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_json_sorts_keys_at_every_depth() {
        let a: Value = serde_json::from_str(r#"{"b":[{"y":1,"x":2}],"a":"é\n"}"#).expect("valid");
        assert_eq!(canonical_json(&a), r#"{"a":"é\n","b":[{"x":2,"y":1}]}"#);
    }

    #[test]
    fn arguments_that_are_no_object_are_malformed() {
        for (raw, malformed) in [
            ("", false),
            ("  ", false),
            ("{}", false),
            (r#"{"a":1}"#, false),
            (r#"{"a":"#, true),
            ("[1]", true),
            ("null", true),
            ("\"x\"", true),
        ] {
            assert_eq!(matches!(Arguments::parse(raw), Arguments::Malformed(_)), malformed, "{raw:?}");
        }
    }

    #[test]
    fn a_message_survives_storage() {
        let call = ToolCall { id: "c1".into(), name: "clock".into(), arguments: Arguments::parse("{}") };
        let result = ToolResult {
            call_id: "c1".into(),
            name: "clock".into(),
            status: ToolStatus::OutcomeUnknown,
            text: "?".into(),
        };
        for message in [
            Message::system("s"),
            Message::user("u").for_run(),
            Message::data("d").from_outside(true),
            Message::assistant_calls("t", vec![call]),
            Message::tool(result),
        ] {
            let text = serde_json::to_string(&message).expect("serialises");
            assert_eq!(serde_json::from_str::<Message>(&text).expect("reads back"), message, "{text}");
        }
    }

    #[test]
    fn a_cached_form_is_used_for_its_own_format_alone() {
        let cache = WireCache::default();
        let mut out = Vec::new();
        cache.append("a", &mut out, || "first".into());
        cache.append("a", &mut out, || "never".into());
        cache.append("b", &mut out, || "other".into());
        assert_eq!(out, b"firstfirstother");
    }

    proptest! {
        #[test]
        fn canonical_json_reads_back_as_the_same_value(pairs in proptest::collection::vec((".*", any::<i64>()), 0..6)) {
            let map: Map<String, Value> = pairs.into_iter().map(|(k, v)| (k, json!(v))).collect();
            let value = Value::Object(map);
            prop_assert_eq!(serde_json::from_str::<Value>(&canonical_json(&value)).expect("valid"), value);
        }
    }
}
