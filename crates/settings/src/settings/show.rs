//! `belay config show`: formats the settings in force with their origins. Secrets are masked, though none should be
//! there.

use serde_json::{Map, Value as Json};

use super::mask::masked;
use super::{BUILT_IN, Loaded};

/// Formats them as TOML, with a comment after each value.
pub(crate) fn as_toml(loaded: &Loaded) -> String {
    let mut out = String::new();
    if let Json::Object(sections) = serde_json::to_value(&loaded.settings).unwrap_or_default() {
        for (name, section) in &sections {
            write_section(name, &masked(name, section), loaded, &mut out);
        }
    }
    out
}

/// Formats them as JSON: value and origin by full key.
pub fn as_json(loaded: &Loaded) -> Json {
    let tree = serde_json::to_value(&loaded.settings).unwrap_or_default();
    let mut entries = Map::new();
    collect(&masked("", &tree), "", loaded, &mut entries);
    Json::Object(entries)
}

/// Collects the values below a key.
fn collect(value: &Json, key: &str, loaded: &Loaded, entries: &mut Map<String, Json>) {
    match value {
        // An empty table is a value.
        Json::Object(table) if !table.is_empty() => {
            for (name, value) in table {
                let full = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect(value, &full, loaded, entries);
            }
        }
        _ => {
            let origin = loaded.origins.of(key).unwrap_or(BUILT_IN);
            entries.insert(key.to_owned(), serde_json::json!({ "value": value, "origin": origin }));
        }
    }
}

/// Writes values first, then the tables: TOML requires this order.
fn write_section(name: &str, section: &Json, loaded: &Loaded, out: &mut String) {
    let Json::Object(entries) = section else { return };
    let (tables, values): (Vec<_>, Vec<_>) = entries.iter().partition(|(_, value)| is_section(value));
    if !values.is_empty() || tables.is_empty() {
        let gap = if out.is_empty() { "" } else { "\n" };
        out.push_str(&format!("{gap}[{name}]\n"));
    }
    let lines: Vec<(String, &str)> = values
        .into_iter()
        .map(|(key, value)| {
            let full = format!("{name}.{key}");
            let origin = loaded.origins.of(&full).unwrap_or(BUILT_IN);
            match value {
                Json::Null => (format!("# {key} ="), "not set"),
                value => (format!("{} = {}", key_text(key), toml_text(value)), origin),
            }
        })
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).filter(|width| *width <= 60).max().unwrap_or(0);
    for (line, origin) in lines {
        out.push_str(&format!("{line:width$}  # {origin}\n"));
    }
    for (key, table) in tables {
        write_section(&format!("{name}.{}", key_text(key)), table, loaded, out);
    }
}

/// An empty table is shown as a value: `{}`.
fn is_section(value: &Json) -> bool {
    value.as_object().is_some_and(|table| !table.is_empty())
}

fn key_text(key: &str) -> String {
    if key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        key.to_owned()
    } else {
        Json::String(key.to_owned()).to_string()
    }
}

fn toml_text(value: &Json) -> String {
    match value {
        // A quoted TOML text has the same escapes as JSON, and also requires DEL to be escaped.
        Json::String(text) => Json::String(text.clone()).to_string().replace('\u{7f}', "\\u007F"),
        Json::Array(items) => format!("[{}]", items.iter().map(toml_text).collect::<Vec<_>>().join(", ")),
        Json::Object(table) => {
            let pairs: Vec<_> =
                table.iter().map(|(key, value)| format!("{} = {}", key_text(key), toml_text(value))).collect();
            if pairs.is_empty() { "{}".into() } else { format!("{{ {} }}", pairs.join(", ")) }
        }
        other => other.to_string(),
    }
}
