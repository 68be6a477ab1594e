//! The quote of a finding: a tool's name and the beginning of its canonical arguments.

use belay_protocol::Arguments;
use belay_protocol::stop::QUOTE_MAX_CHARS;
use serde_json::{Map, Value};

/// Bytes that are stored: a little more than a quote shows, so that the quote can show that it was cut.
const KEPT: usize = QUOTE_MAX_CHARS + 8;

/// Replaces `quote`. Allocates at most for the first call of a run, and writes only the stored bytes.
pub(super) fn write(quote: &mut String, name: &str, arguments: &Arguments) {
    quote.clear();
    quote.reserve(KEPT + 4);
    text(quote, name);
    quote.push(' ');
    match arguments {
        Arguments::Object(map) => object(quote, map),
        Arguments::Malformed(raw) => text(quote, raw),
    }
}

fn full(quote: &str) -> bool {
    quote.len() >= KEPT
}

fn text(quote: &mut String, text: &str) {
    let room = KEPT.saturating_sub(quote.len());
    quote.push_str(&text[..text.ceil_char_boundary(room.min(text.len()))]);
}

fn object(quote: &mut String, map: &Map<String, Value>) {
    quote.push('{');
    let mut last: Option<&String> = None;
    // Takes the next key in order each time. Arguments have few keys, and a sorted copy would be an allocation.
    while let Some((key, inner)) =
        map.iter().filter(|(key, _)| last.is_none_or(|last| *key > last)).min_by_key(|(key, _)| *key)
    {
        if full(quote) {
            return;
        }
        if last.is_some() {
            quote.push(',');
        }
        string(quote, key);
        quote.push(':');
        value(quote, inner);
        last = Some(key);
    }
    quote.push('}');
}

fn value(quote: &mut String, of: &Value) {
    match of {
        Value::Object(map) => object(quote, map),
        Value::Array(items) => {
            quote.push('[');
            for (place, item) in items.iter().enumerate() {
                if full(quote) {
                    return;
                }
                if place > 0 {
                    quote.push(',');
                }
                value(quote, item);
            }
            quote.push(']');
        }
        Value::String(string_value) => string(quote, string_value),
        Value::Null => quote.push_str("null"),
        Value::Bool(true) => quote.push_str("true"),
        Value::Bool(false) => quote.push_str("false"),
        Value::Number(number) => text(quote, &number.to_string()),
    }
}

fn string(quote: &mut String, of: &str) {
    quote.push('"');
    for letter in of.chars() {
        if full(quote) {
            return;
        }
        match letter {
            '"' | '\\' => quote.extend(['\\', letter]),
            '\n' => quote.push_str("\\n"),
            '\t' => quote.push_str("\\t"),
            letter => quote.push(letter),
        }
    }
    quote.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_the_beginning_of_the_canonical_call() {
        let mut quote = String::new();
        for (raw, expected) in [
            (
                r#"{"b":[1,2.5,null,true],"a":{"y":"é\n\"","x":{}}}"#,
                r#"f {"a":{"x":{},"y":"é\n\""},"b":[1,2.5,null,true]}"#,
            ),
            ("", "f {}"),
            ("{broken", "f {broken"),
        ] {
            write(&mut quote, "f", &Arguments::parse(raw));
            assert_eq!(quote, expected);
        }
        let long = Arguments::parse(&format!(r#"{{"a":"{}","b":1}}"#, "é".repeat(500)));
        write(&mut quote, "f", &long);
        assert!(quote.len() <= KEPT + 4 && long.canonical().starts_with(&quote[2..]), "{quote}");
    }
}
