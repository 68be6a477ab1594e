//! Functions for writing JSON by hand and reading it borrowed, which both of our clients share.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use belay_protocol::{Arguments, ModelRequest, Sampling};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::bounds::LIST_MAX;
use crate::config::LlmConfig;

/// Text that is borrowed from its event if it contains no escapes. It is a type of its own because serde borrows a
/// `Cow` only outside of `Option`.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A list of at most [`LIST_MAX`] items. A list can be sixty times as large in memory as on the wire, so a longer one
/// is refused while it is parsed.
pub(crate) struct Few<T>(pub(crate) Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {LIST_MAX} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut out = Vec::new();
                while let Some(item) = items.next_element()? {
                    if out.len() == LIST_MAX {
                        return Err(de::Error::invalid_length(LIST_MAX + 1, &self));
                    }
                    out.push(item);
                }
                Ok(Few(out))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// The text; empty if there is none.
pub(crate) fn text<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_ref().map(|text| &*text.0).unwrap_or_default()
}

/// The content of a message: text, or a list of parts. Mistral's reasoning models send a list:
/// `{"type": "thinking", "thinking": [{"type": "text", "text": "…"}]}` before `{"type": "text", "text": "…"}`. Parts of
/// other kinds are ignored.
///
/// Source: Mistral AI, "Reasoning", <https://docs.mistral.ai/capabilities/reasoning/>.
#[derive(Default)]
pub(crate) struct Content<'a>(pub(crate) Vec<Part<'a>>);

/// A part of the content.
pub(crate) enum Part<'a> {
    /// A part of the answer.
    Text(Cow<'a, str>),
    /// A part of the model's reasoning.
    Thinking(Cow<'a, str>),
}

/// A part on the wire. Every field may be missing.
#[derive(Deserialize)]
struct WirePart<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    text: Option<Content<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Content<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Content<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Content<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        let invalid = |error: serde_json::Error| de::Error::custom(error);
        match raw.as_bytes().first() {
            Some(b'"') => Ok(Self(vec![Part::Text(serde_json::from_str::<Text<'a>>(raw).map_err(invalid)?.0)])),
            Some(b'[') => {
                let parts = serde_json::from_str::<Few<&'a RawValue>>(raw).map_err(invalid)?.0;
                Ok(Self(parts.into_iter().flat_map(|part| Self::part(part).0).collect()))
            }
            Some(b'{') => Ok(Self::part(serde_json::from_str(raw).map_err(invalid)?)),
            _ => Err(de::Error::custom("a content is text or a list of parts")),
        }
    }
}

impl<'a> Content<'a> {
    /// The content of one part; empty if its kind is unknown.
    fn part(raw: &'a RawValue) -> Self {
        if raw.get().starts_with('"') {
            return serde_json::from_str(raw.get()).unwrap_or_default();
        }
        let Ok(part) = serde_json::from_str::<WirePart<'a>>(raw.get()) else { return Self::default() };
        match text(&part.kind) {
            "" | "text" | "output_text" => part.text.unwrap_or_default(),
            "refusal" => part.refusal.unwrap_or_default(),
            "thinking" | "reasoning" => {
                let said = part.thinking.or(part.reasoning).or(part.text).unwrap_or_default();
                Self(said.0.into_iter().map(|(Part::Text(said) | Part::Thinking(said))| Part::Thinking(said)).collect())
            }
            _ => Self::default(),
        }
    }
}

/// The beginning of a server's data, to quote in an error.
pub(crate) fn excerpt(data: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&data[..data.len().min(200)])
}

/// A value as JSON.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("strings, and maps with string keys, always serialise")
}

/// Appends a value as JSON.
pub(crate) fn push_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("writing to memory does not fail, and strings and numbers serialise");
}

/// Arguments as the text of a JSON object.
pub(crate) fn arguments_json(arguments: &Arguments) -> String {
    match arguments {
        Arguments::Object(map) => json(map),
        malformed @ Arguments::Malformed(_) => malformed.to_wire_object().to_string(),
    }
}

/// A tool's name in the form that providers accept in a history, `[a-zA-Z0-9_-]{1,64}`. Models invent names, and
/// because of one bad name the provider would refuse every later request of the conversation.
pub(crate) fn tool_name(name: &str) -> String {
    let name: String = name.chars().take(64).map(|c| if is_word(c) { c } else { '_' }).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

/// Whether providers accept the character in a name or an id.
pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Capacity for a body, so that it is not reallocated while it grows: the texts and the tools, a margin for escapes and
/// syntax, and pictures for a model that accepts them.
pub(crate) fn body_capacity(request: &ModelRequest<'_>, vision: bool) -> usize {
    let texts: usize = request.messages.iter().map(|message| message.text().len() + 128).sum();
    let shown = request.messages.iter().filter(|_| vision).flat_map(|message| &message.pictures);
    let pictures: usize = shown.map(|picture| picture.base64.len() + 256).sum();
    let tools = request.tools.map_or(0, |tools| tools.described_bytes() + 128 * tools.iter().count());
    2048 + (request.prompt.text.len() + texts + tools) * 9 / 8 + pictures
}

/// Shrinks a finished body to its size, because thousands of bodies wait for their answers at the same time.
pub(crate) fn finished(mut body: Vec<u8>) -> Vec<u8> {
    body.shrink_to_fit();
    body
}

/// Extra fields of the settings, as `,"name":value…`: those of each request, and those that are only sent with tools,
/// because servers refuse them without tools.
pub(crate) fn extra_fields(config: &LlmConfig, always: Map<String, Value>) -> (Vec<u8>, Vec<u8>) {
    let (always, with_tools) = extra_maps(config, always);
    (fields(&always), fields(&with_tools))
}

/// The same, before serialisation.
pub(crate) fn extra_maps(
    config: &LlmConfig,
    mut always: Map<String, Value>,
) -> (Map<String, Value>, Map<String, Value>) {
    let mut with_tools = Map::new();
    if let Some(temperature) = config.temperature {
        always.insert("temperature".into(), temperature.into());
    }
    for (name, value) in &config.extra_body {
        let beside_tools = matches!(name.as_str(), "tool_choice" | "parallel_tool_calls");
        if beside_tools { &mut with_tools } else { &mut always }.insert(name.clone(), value.clone());
    }
    (always, with_tools)
}

/// The fields of every request, with the options of a client instead of the configured ones. `stop` is the name of the
/// field for stop sequences.
pub(crate) fn sampled(always: &Map<String, Value>, sampling: &Sampling, stop: &str) -> Vec<u8> {
    let mut all = always.clone();
    let wanted = [
        ("temperature", sampling.temperature().map(Value::from)),
        ("top_p", sampling.top_p().map(Value::from)),
        ("seed", sampling.seed.map(Value::from)),
        (stop, (!sampling.stop.is_empty()).then(|| Value::from(sampling.stop.clone()))),
    ];
    all.extend(wanted.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    fields(&all)
}

/// The fields beside the tools of a request, with the rules of a client instead of the configured ones.
pub(crate) fn ruled(configured: &Map<String, Value>, rules: Map<String, Value>) -> Vec<u8> {
    let mut all = configured.clone();
    all.extend(rules);
    fields(&all)
}

fn fields(map: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in map {
        out.push(b',');
        push_json(&mut out, name);
        out.push(b':');
        push_json(&mut out, value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_acceptable() {
        for (given, sent) in
            [("clock", "clock"), ("", "unknown"), ("a b.c/ü", "a_b_c__"), (&"x".repeat(99), &"x".repeat(64))]
        {
            assert_eq!(tool_name(given), sent);
        }
    }
}
