//! One part of a content list, in the spellings of several programs.

use serde_json::Value;

use crate::event::CallArguments;
use crate::import::content::{field, part_text, text_of, text_or_json};

/// The ends of the kinds of calls, and of results, in lower case and without separators.
const CALLS: &[&str] = &["tooluse", "toolcall", "functioncall"];
const RESULTS: &[&str] =
    &["toolresult", "toolcallresult", "toolresponse", "functionresponse", "functioncalloutput", "toolcalloutput"];

/// Keys below which a part may have its fields.
const INNER: &[&str] = &["toolUse", "toolCall", "toolResult", "functionCall", "functionResponse"];

const NAMES: &[&str] = &["name", "toolName", "tool_name"];
const IDS: &[&str] = &["tool_use_id", "toolUseId", "tool_call_id", "toolCallId", "call_id", "callId", "id"];

/// One part of a content list.
pub(super) enum Part<'a> {
    Text(String),
    Thought(String),
    Call {
        id: Option<&'a str>,
        name: &'a str,
        args: CallArguments,
    },
    Result {
        id: Option<&'a str>,
        name: Option<&'a str>,
        ok: Option<bool>,
        text: String,
    },
    /// The summary that replaces the context before it.
    Compaction,
    Unknown(&'a str),
}

impl<'a> Part<'a> {
    pub(super) fn of(part: &'a Value) -> Self {
        let wrapped =
            INNER.iter().find_map(|key| part.get(*key).filter(|inner| inner.is_object()).map(|it| (*key, it)));
        let (written, inner) = match (kind_of(part), wrapped) {
            (_, Some((key, inner))) if field(part, "type").is_empty() => (key, inner),
            (kind, wrapped) => (kind, wrapped.map_or(part, |(_, inner)| inner)),
        };
        let kind: String = written.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
        let is = |ends: &[&str]| ends.iter().any(|end| kind.ends_with(end));
        let word =
            |keys: &[&str]| [inner, part].iter().find_map(|of| keys.iter().find_map(|key| of.get(*key)?.as_str()));
        if is(RESULTS) {
            return Self::result(inner, word(IDS), word(NAMES));
        }
        if is(CALLS) {
            return match word(NAMES) {
                Some(name) => Self::Call { id: word(IDS), name, args: args_of(inner) },
                None => Self::Unknown(written),
            };
        }
        if kind.ends_with("thinking") || kind.starts_with("reasoning") {
            let keys = ["thinking", "text", "reasoning", "content", "summary"];
            return Self::Thought(text_of(keys.iter().find_map(|key| part.get(*key))));
        }
        match part_text(part) {
            _ if kind == "compaction" => Self::Compaction,
            Some(text) => Self::Text(text),
            None => Self::Unknown(written),
        }
    }

    fn result(inner: &'a Value, id: Option<&'a str>, name: Option<&'a str>) -> Self {
        let given = ["content", "output", "result", "response"].iter().find_map(|key| inner.get(*key));
        let flag = ["is_error", "isError"].iter().find_map(|key| inner.get(*key)?.as_bool());
        // The failure of a server tool is an object with an error code. Vercel AI SDK: `{"type":"error-text","value":…}`.
        let failed = flag == Some(true)
            || field(inner, "status") == "error"
            || given
                .is_some_and(|given| given.get("error_code").is_some() || field(given, "type").starts_with("error-"));
        let ok = match flag {
            _ if failed => Some(false),
            // Anthropic leaves the flag out of a success. Of other programs the text decides.
            None if inner.get("tool_use_id").is_none() => None,
            _ => Some(true),
        };
        let value = given.filter(|given| !field(given, "type").is_empty()).and_then(|given| given.get("value"));
        Self::Result { id, name, ok, text: text_or_json(value.or(given)) }
    }
}

/// The arguments of a call: JSON, or JSON as text.
fn args_of(call: &Value) -> CallArguments {
    match ["input", "arguments", "args", "parameters"].iter().find_map(|key| call.get(*key)) {
        None | Some(Value::Null) => CallArguments::parse(""),
        Some(Value::String(written)) => CallArguments::parse(written),
        Some(object) => CallArguments::parse(&object.to_string()),
    }
}

/// The type of a part, or the first key of one without a type.
pub(in crate::import) fn kind_of(part: &Value) -> &str {
    let key = || part.as_object().and_then(|object| object.keys().next()).map_or("part without a type", String::as_str);
    match field(part, "type") {
        "" => key(),
        kind => kind,
    }
}
