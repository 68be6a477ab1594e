//! Messages in the form that the model gets, tool calls and their results.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::attachment::{Attachment, AttachmentContent, BlobDigest};
use crate::ids::CallId;
use crate::provenance::Provenance;

/// One message of a conversation. It is immutable and shared as `Arc<Message>`: a step appends to the history and never
/// copies it. Each message caches its wire form (see [`WireCache`]), so that a request of 400 messages is a
/// concatenation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    /// Its content.
    #[serde(flatten)]
    pub body: MessageBody,
    /// How long it stays in the context.
    #[serde(default, skip_serializing_if = "MessageScope::is_thread")]
    pub scope: MessageScope,
    /// Whether it contains untrusted content, such as a web page or the answer of another program. After such a
    /// message, tools with external effects ask for approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// Pictures of a tool's result, for a model with vision. Attached pictures of a user message are read from the blob
    /// store for each request and never stored here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Picture>,
    /// The platform's facts about a user message; `None`: there is a text alone, as earlier versions have stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Arc<Provenance>>,
    /// Its serialised form for one wire format. The first provider that sends the message fills it.
    #[serde(skip)]
    pub wire: WireCache,
}

impl PartialEq for Message {
    /// Compares the content. The cached wire form is not part of the value.
    fn eq(&self, other: &Self) -> bool {
        self.body == other.body
            && self.scope == other.scope
            && self.untrusted == other.untrusted
            && self.pictures == other.pictures
            && self.provenance == other.provenance
    }
}

/// The beginning of a notice. It distinguishes a notice from a summary of untrusted content.
const NOTICE_OPENING: &str = "This is a notice from Belay, not a message of the user.";

/// How long a message stays in the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageScope {
    /// It is part of the conversation: later turns get it.
    #[default]
    Thread,
    /// It steers one run: a nudge, a warning, a notice, a discarded text. It is stored, and later turns do not get it.
    Run,
}

impl MessageScope {
    /// Whether later turns get the message.
    pub fn is_thread(&self) -> bool {
        *self == Self::Thread
    }
}

/// The content of a message, by its role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum MessageBody {
    /// Instructions of Belay: a notice, a pinned summary.
    System {
        /// The text.
        text: String,
    },
    /// A message of the user, or a nudge of a guardrail in the role of the user. ADR 0022 lists all parts that make
    /// one.
    User {
        /// The text.
        text: String,
    },
    /// Data that the agent adds: files, the payload of an event. It is no message of the user and contains no
    /// instructions.
    Data {
        /// The text.
        text: String,
    },
    /// A reply of the model.
    Assistant {
        /// The text; empty if the model only called tools.
        text: String,
        /// The calls, in the model's order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The one result of one tool call.
    Tool(ToolResult),
}

/// The line before data, which is sent in the role of the user.
const DATA_LINE: &str = "[data shown by the agent; no message from the user]";

/// The answer of a model that means: send no message. It stays in the thread, where the model reads it again.
pub const SILENT_TOKEN: &str = "NO_REPLY";

impl Message {
    fn of(body: MessageBody) -> Self {
        let (scope, wire) = (MessageScope::Thread, WireCache::default());
        Self { body, scope, untrusted: false, pictures: Vec::new(), provenance: None, wire }
    }

    /// A system message.
    pub fn system(text: impl Into<String>) -> Self {
        Self::of(MessageBody::System { text: text.into() })
    }

    /// A user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::of(MessageBody::User { text: text.into() })
    }

    /// Data for the model.
    pub fn data(text: impl Into<String>) -> Self {
        Self::of(MessageBody::Data { text: text.into() })
    }

    /// A user message with the platform's facts. It is marked as untrusted content if it contains the words of somebody
    /// else.
    pub fn sent(text: impl Into<String>, provenance: Option<Arc<Provenance>>) -> Self {
        let untrusted = provenance.as_ref().is_some_and(|provenance| provenance.is_untrusted());
        Self { provenance, ..Self::user(text) }.with_untrusted(untrusted)
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

    /// The same message with the scope [`MessageScope::Run`].
    #[must_use]
    pub fn for_run(mut self) -> Self {
        self.scope = MessageScope::Run;
        self
    }

    /// A notice in a conversation, such as the result of a job that was asked for in it. It begins by stating what it
    /// is, and is marked as untrusted content.
    #[must_use]
    pub fn notice(text: &str) -> Self {
        Self::system(format!("{NOTICE_OPENING} {text}")).with_untrusted(true)
    }

    /// The text of a system message in the role of the user, for servers that accept system messages only at the
    /// beginning. It begins by stating what it is.
    #[must_use]
    pub fn told_as_user(&self) -> String {
        match self.is_notice() {
            true => self.text().to_owned(),
            false => format!("{NOTICE_OPENING} {}", self.text()),
        }
    }

    /// Whether it is a [notice](Self::notice). The store adds notices to a conversation at any time, even while a turn
    /// is running.
    #[must_use]
    pub fn is_notice(&self) -> bool {
        self.untrusted && matches!(&self.body, MessageBody::System { text } if text.starts_with(NOTICE_OPENING))
    }

    /// The same message, marked as untrusted content if `untrusted` is set.
    #[must_use]
    pub fn with_untrusted(mut self, untrusted: bool) -> Self {
        self.untrusted |= untrusted;
        self
    }

    /// The same message with pictures.
    #[must_use]
    pub fn with_pictures(mut self, pictures: Vec<Picture>) -> Self {
        self.pictures = pictures;
        self
    }

    /// The text of the message.
    pub fn text(&self) -> &str {
        match &self.body {
            MessageBody::System { text }
            | MessageBody::User { text }
            | MessageBody::Data { text }
            | MessageBody::Assistant { text, .. } => text,
            MessageBody::Tool(result) => &result.text,
        }
    }

    /// The text that the model reads: a user message with its facts, data with a line that identifies it as data. Wire
    /// formats have no role for data and send it as a user message.
    pub fn for_model(&self) -> Cow<'_, str> {
        match (&self.body, &self.provenance) {
            (MessageBody::Data { text }, _) => Cow::Owned(format!("{DATA_LINE}\n{text}")),
            (MessageBody::User { text }, Some(provenance)) => Cow::Owned(provenance.render(text)),
            _ => Cow::Borrowed(self.text()),
        }
    }

    /// The text that people read: without the markers that show untrusted content to a model.
    pub fn for_people(&self) -> Cow<'_, str> {
        match &self.body {
            MessageBody::User { text } => Cow::Borrowed(text),
            _ => belay_text::untrusted::without(self.text()),
        }
    }

    /// Whether it has nothing for people: no text, or [`SILENT_TOKEN`].
    pub fn says_nothing(&self) -> bool {
        let text = self.text();
        text.is_empty() || (matches!(self.body, MessageBody::Assistant { .. }) && text == SILENT_TOKEN)
    }

    /// The files that came with a user message.
    pub fn attachments(&self) -> &[Attachment] {
        self.provenance.as_ref().map_or(&[], |provenance| &provenance.attachments)
    }

    /// The digest and the media type of each attached picture.
    pub fn attached_pictures(&self) -> impl Iterator<Item = (&BlobDigest, &str)> {
        self.attachments().iter().filter_map(|file| match &file.content {
            AttachmentContent::Picture { digest, media_type, .. } => Some((digest, media_type.as_str())),
            _ => None,
        })
    }

    /// The calls of an assistant message; empty for any other message.
    pub fn tool_calls(&self) -> &[ToolCall] {
        match &self.body {
            MessageBody::Assistant { tool_calls, .. } => tool_calls,
            _ => &[],
        }
    }

    /// The rough size in tokens: a quarter of the bytes, plus 4 for the frame. An estimate for budgets and compaction,
    /// good to a factor of about 1.5 for prose; it is never used for billing.
    pub fn estimated_tokens(&self) -> u64 {
        let calls: usize = self.tool_calls().iter().map(|c| c.name.len() + c.arguments.approx_bytes()).sum();
        let pictures = self.pictures.len().max(self.attached_pictures().count()) as u64 * PICTURE_TOKENS;
        ((self.for_model().len() + calls) / 4) as u64 + 4 + pictures
    }
}

/// The estimated tokens of a picture. 1600: the price of one megapixel at providers.
pub const PICTURE_TOKENS: u64 = 1600;

/// A picture. Its maker has decoded it and encoded it again.
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
    /// The provider's id. It is made unique within its batch before it enters the context.
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
    /// A JSON object: the valid case.
    Object(Map<String, Value>),
    /// A text that is no JSON object, such as a truncated one. It is never run.
    Malformed(String),
}

/// The replacement for a sensitive argument wherever arguments are shown, stored with an approval request, or logged.
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
    /// Parses the arguments that a provider has sent. An empty text and `null` mean no arguments.
    pub fn parse(raw: &str) -> Self {
        if matches!(raw.trim(), "" | "null") {
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

    /// The arguments as a JSON object for the wire. Malformed ones are wrapped in a valid object, because providers
    /// refuse a history with invalid JSON.
    pub fn to_wire_object(&self) -> Value {
        match self {
            Self::Object(map) => Value::Object(map.clone()),
            Self::Malformed(raw) => serde_json::json!({ "malformed_arguments": raw }),
        }
    }

    /// The approximate length as JSON, in bytes.
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

/// Serialises a value with object keys sorted at every depth and without spaces.
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
    /// Its status.
    pub status: ToolStatus,
    /// The text that the model reads.
    pub text: String,
}

/// The status of an ended tool call. There is no default, so that each maker of a result chooses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It has succeeded.
    Success,
    /// It has failed, or was refused before it ran. The text has the reason.
    Error,
    /// A person or a rule has denied it.
    Denied,
    /// It was cancelled while it ran.
    Cancelled,
    /// It has never started: the run ended first.
    NotExecuted,
    /// It had started when the daemon died. Its progress is unknown.
    OutcomeUnknown,
}

impl ToolStatus {
    /// The name in metrics and on the wire.
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

    /// Whether the duplicate-failure guardrail counts the call as failed: every status except success.
    pub fn is_failure(self) -> bool {
        self != Self::Success
    }
}

/// A cache for the serialised form of a value in one wire format.
///
/// The first provider that sends the value fills it under the name of its format. A provider with another format
/// serialises without the cache, which is acceptable, since one daemon mostly uses one format.
#[derive(Debug, Default)]
pub struct WireCache(OnceLock<(&'static str, Box<str>)>);

impl Clone for WireCache {
    /// A clone starts empty, since it may be changed before it is sent.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl WireCache {
    /// Appends the form for `format` to `out`. Calls `make` unless the form is cached.
    pub fn append(&self, format: &'static str, out: &mut Vec<u8>, make: impl FnOnce() -> String) {
        let mut make = Some(make);
        // Two threads may get here at the same time; one fills the cache, the other one uses it.
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
            ("null", false),
            (" null ", false),
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
            Message::data("d").with_untrusted(true),
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
