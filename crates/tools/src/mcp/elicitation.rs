//! Reads what a server asks a person for: a form by a schema, or an address.
//!
//! Source: MCP 2026-07-28 and 2025-11-25, "Elicitation".

use belay_protocol::{FieldFormat, FieldKind, Form, FormField, FormOption, FormUrl};
use serde_json::{Map, Value};
use url::Url;

use crate::mcp::config::is_loopback;
use crate::mcp::untrusted::line;

/// Longest message, in characters. More cannot be shown whole.
const MAX_MESSAGE: usize = 2000;
/// Most fields.
const MAX_FIELDS: usize = 32;
/// Most options of a choice.
const MAX_OPTIONS: usize = 100;
/// Most bytes of a schema.
const MAX_SCHEMA: usize = 16 * 1024;
/// Longest name of a field, title or description, in bytes.
const MAX_WORDS: usize = 300;
/// Longest text of an answer, in characters.
const MAX_TEXT: u32 = 8000;
/// Longest address, in bytes.
const MAX_ADDRESS: usize = 2000;

/// Words of a form that asks for a secret.
const SECRETS: [&str; 12] = [
    "password",
    "passwort",
    "passphrase",
    "secret",
    "api key",
    "api_key",
    "apikey",
    "token",
    "credential",
    "private key",
    "card number",
    "cvv",
];

/// Reads the parameters of `elicitation/create`.
///
/// # Errors
/// Why Belay cannot ask for it, as the end of a sentence.
pub(super) fn form(server: &str, params: &Value) -> Result<Form, String> {
    let message = params["message"].as_str().unwrap_or_default().to_owned();
    if message.chars().count() > MAX_MESSAGE {
        return Err(format!("its message has more than {MAX_MESSAGE} characters"));
    }
    let form = Form { server: server.to_owned(), message, fields: Vec::new(), url: None, asks_for_secret: false };
    match params.get("mode").and_then(Value::as_str) {
        Some("url") => Ok(Form { url: Some(address(&params["url"])?), ..form }),
        None | Some("form") => {
            let fields = fields(&params["requestedSchema"])?;
            let asks_for_secret = asks_for_secret(&form.message, &fields);
            Ok(Form { fields, asks_for_secret, ..form })
        }
        Some(other) => Err(format!("the mode {} is unknown", line(other, 40))),
    }
}

fn asks_for_secret(message: &str, fields: &[FormField]) -> bool {
    let is = |text: &str| {
        let text = text.to_lowercase().replace('-', " ");
        SECRETS.iter().any(|word| text.contains(word))
    };
    let has_text = fields.iter().any(|field| matches!(field.kind, FieldKind::Text { .. }));
    has_text
        && (is(message) || fields.iter().any(|field| is(&field.name) || is(&field.title) || is(&field.description)))
}

/// An address that a person may open in a browser.
fn address(value: &Value) -> Result<FormUrl, String> {
    let text = value.as_str().ok_or("it has no address")?;
    let url = Url::parse(text).map_err(|error| format!("its address cannot be used: {error}"))?;
    if text.len() > MAX_ADDRESS {
        return Err(format!("its address is longer than {MAX_ADDRESS} bytes"));
    }
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    let Some(host) = url.host_str().filter(|_| is_safe) else {
        return Err("its address is neither https nor on this machine".into());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its address has a name or a password in it, which hides the host".into());
    }
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    Ok(FormUrl { address: url.to_string(), host })
}

fn fields(schema: &Value) -> Result<Vec<FormField>, String> {
    if schema.to_string().len() > MAX_SCHEMA {
        return Err(format!("its form is larger than {} KiB", MAX_SCHEMA / 1024));
    }
    let empty = Map::new();
    let properties = match schema.get("properties") {
        None if schema.is_object() => &empty,
        Some(Value::Object(properties)) => properties,
        _ => return Err("its form is no object with fields".into()),
    };
    if properties.len() > MAX_FIELDS {
        return Err(format!("its form has more than {MAX_FIELDS} fields"));
    }
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(unknown) = required.iter().find(|name| !properties.contains_key(**name)) {
        return Err(format!("its form needs the field {}, which it does not describe", line(unknown, 100)));
    }
    properties.iter().map(|(name, schema)| field(name, schema, required.contains(&name.as_str()))).collect()
}

fn field(name: &str, schema: &Value, required: bool) -> Result<FormField, String> {
    let words = |key: &str| schema[key].as_str().unwrap_or_default().to_owned();
    let (title, description) = (words("title"), words("description"));
    let shown = line(name, 100);
    if name.is_empty() || [name, &title, &description].iter().any(|text| text.len() > MAX_WORDS) {
        return Err(format!("the field {shown} is described in more than {MAX_WORDS} bytes, or has no name"));
    }
    let kind = kind(schema).and_then(possible).map_err(|why| format!("the field {shown} {why}"))?;
    // An answer cannot give an empty text, so an empty default is none.
    let default = schema.get("default").filter(|value| !value.is_null() && value.as_str() != Some("")).cloned();
    let field = FormField { name: name.to_owned(), title, description, required, default: None, kind };
    // A default that is no value of its field is none.
    let alone = Form {
        server: String::new(),
        message: String::new(),
        fields: vec![field.clone()],
        url: None,
        asks_for_secret: false,
    };
    let is_value = |value: &Value| alone.check(Map::from_iter([(name.to_owned(), value.clone())])).is_ok();
    Ok(FormField { default: default.filter(is_value), ..field })
}

fn kind(schema: &Value) -> Result<FieldKind, String> {
    if let Some(options) = options(schema)? {
        return Ok(FieldKind::Choice { options });
    }
    let count =
        |key: &str, otherwise: u32| schema[key].as_u64().map_or(otherwise, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let kind = match schema["type"].as_str() {
        Some("string") => FieldKind::Text {
            min: count("minLength", 0),
            max: count("maxLength", MAX_TEXT).min(MAX_TEXT),
            format: match schema["format"].as_str() {
                Some("email") => Some(FieldFormat::Email),
                Some("uri") => Some(FieldFormat::Uri),
                Some("date") => Some(FieldFormat::Date),
                Some("date-time") => Some(FieldFormat::DateTime),
                _ => None,
            },
        },
        Some(number @ ("number" | "integer")) => {
            let limit = |key: &str| schema[key].as_number().cloned();
            FieldKind::Number { whole: number == "integer", min: limit("minimum"), max: limit("maximum") }
        }
        Some("boolean") => FieldKind::YesNo,
        Some("array") => {
            let options = options(&schema["items"])?.ok_or("is a list of something else than options")?;
            let all = u32::try_from(options.len()).unwrap_or(u32::MAX);
            FieldKind::Choices { options, min: count("minItems", 0), max: count("maxItems", all).min(all) }
        }
        Some(other) => return Err(format!("has the type {}, which no form has", line(other, 40))),
        None => return Err("has no type".into()),
    };
    Ok(kind)
}

/// The values of a field, if there are any.
fn possible(kind: FieldKind) -> Result<FieldKind, String> {
    let is_empty = match &kind {
        FieldKind::Text { min, max, .. } | FieldKind::Choices { min, max, .. } => min > max,
        FieldKind::Number { whole, min: Some(min), max: Some(max) } => {
            let (min, max) = (min.as_f64().unwrap_or(f64::MIN), max.as_f64().unwrap_or(f64::MAX));
            if *whole { min.ceil() > max.floor() } else { min > max }
        }
        FieldKind::Number { .. } | FieldKind::YesNo | FieldKind::Choice { .. } => false,
    };
    if is_empty { Err("has no possible value".into()) } else { Ok(kind) }
}

/// The options of a choice, in each of the ways in which revisions write them. `None`: it is no choice.
fn options(schema: &Value) -> Result<Option<Vec<FormOption>>, String> {
    let titled = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array());
    let options: Option<Vec<_>> = match (schema["enum"].as_array(), titled) {
        (Some(values), _) => {
            let title = |at: usize| schema["enumNames"][at].as_str().unwrap_or_default().to_owned();
            let option =
                |(at, value): (usize, &Value)| Some(FormOption { value: value.as_str()?.to_owned(), title: title(at) });
            values.iter().enumerate().map(option).collect()
        }
        (None, Some(all)) => {
            let option = |one: &Value| {
                let title = one["title"].as_str().unwrap_or_default().to_owned();
                Some(FormOption { value: one["const"].as_str()?.to_owned(), title })
            };
            all.iter().map(option).collect()
        }
        (None, None) => return Ok(None),
    };
    let options = options.ok_or("has options that are no texts")?;
    let is_long = |option: &FormOption| option.value.len() > MAX_WORDS || option.title.len() > MAX_WORDS;
    if options.is_empty() || options.len() > MAX_OPTIONS || options.iter().any(is_long) {
        return Err(format!("has no options, more than {MAX_OPTIONS}, or one longer than {MAX_WORDS} bytes"));
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests;
