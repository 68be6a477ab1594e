//! Arguments of a recorded call: the parsed value and the original text.

use std::fmt;

use belay_protocol::Arguments;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Arguments of a call: the parsed value and the text. Some rule sets compare the text, in which the order of the keys
/// counts.
#[derive(Clone, Debug, PartialEq)]
pub struct CallArguments {
    arguments: Arguments,
    written: Box<str>,
}

impl CallArguments {
    /// Parses arguments as a model sends them: a JSON object as text. Anything else is stored as malformed.
    pub fn parse(text: &str) -> Self {
        let arguments = Arguments::parse(text);
        let written = match &arguments {
            Arguments::Object(map) if map.is_empty() => "{}".into(),
            Arguments::Object(_) => compact(text).into(),
            Arguments::Malformed(raw) => raw.as_str().into(),
        };
        Self { arguments, written }
    }

    /// Parses the value of `args`: an object, or a string with the text of the model. Other JSON is malformed.
    pub(crate) fn of_json(raw: &RawValue) -> Self {
        match serde_json::from_str::<String>(raw.get()) {
            Ok(text) => Self::parse(&text),
            Err(_) => Self::parse(raw.get()),
        }
    }

    /// The arguments for the stop engine.
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// The text without white space between the tokens, with its keys in the original order.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The entries of the object in the original order, which a map need not keep; `None`: the arguments are malformed.
    pub fn entries(&self) -> Option<Vec<(String, Value)>> {
        match &self.arguments {
            Arguments::Object(_) => serde_json::from_str::<Entries>(&self.written).ok().map(|entries| entries.0),
            Arguments::Malformed(_) => None,
        }
    }

    /// Makes arguments with these entries in this order.
    pub fn of_entries(entries: &[(String, Value)]) -> Self {
        let entries: Vec<_> =
            entries.iter().map(|(key, value)| format!("{}:{value}", Value::from(key.as_str()))).collect();
        Self::parse(&format!("{{{}}}", entries.join(",")))
    }
}

impl From<&Arguments> for CallArguments {
    fn from(arguments: &Arguments) -> Self {
        Self { arguments: arguments.clone(), written: arguments.canonical().into() }
    }
}

/// An object as a list of entries.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

/// JSON text without white space between its tokens.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' | '\t' | '\n' | '\r' if !quoted => continue,
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_form_keeps_the_order_and_loses_the_spaces() {
        for (text, written, malformed) in [
            (r#"{ "b" : [1, 2],  "a":"x  y\" z" }"#, r#"{"b":[1,2],"a":"x  y\" z"}"#, false),
            ("", "{}", false),
            ("{ }", "{}", false),
            ("ls -la", "ls -la", true),
            (r#"{"a": "#, r#"{"a": "#, true),
            ("[1, 2]", "[1, 2]", true),
        ] {
            let args = CallArguments::parse(text);
            assert_eq!(args.written(), written, "{text}");
            assert_eq!(matches!(args.arguments(), Arguments::Malformed(_)), malformed, "{text}");
        }
    }

    #[test]
    fn entries_come_in_the_written_order_and_go_back() {
        let args = CallArguments::parse(r#"{"z":1,"a":{"y":2,"b":3},"m":null}"#);
        let entries = args.entries().unwrap();
        assert_eq!(entries.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["z", "a", "m"]);
        assert_eq!(CallArguments::of_entries(&entries).arguments(), args.arguments());
    }
}
