//! Merging the layers, and reading the result into the settings' types so that every mistake is found at once.

use std::collections::BTreeMap;

use config::{Config, Value, ValueKind};
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value as Json};
use serde_path_to_error::Segment;

use super::layers::Layer;
use super::problem::{Problem, hint_for_unknown, nearest};

/// Where each value came from, by full key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(BTreeMap<String, String>);

impl Origins {
    /// Where the value of a key, or the first value below it, came from.
    pub(crate) fn of(&self, key: &str) -> Option<&str> {
        let below = format!("{key}.");
        let first_below = || self.0.range(below.clone()..).next().filter(|(found, _)| found.starts_with(&below));
        self.0.get(key).or_else(|| first_below().map(|(_, origin)| origin)).map(String::as_str)
    }
}

impl Origins {
    /// Where a value came from, or else the nearest thing around it that came from somewhere: what is missing in an element
    /// of a list belongs where the element is.
    pub(crate) fn around(&self, key: &str) -> Option<&str> {
        let mut wider = std::iter::successors(Some(key), |key| key.get(..key.rfind(['.', '['])?));
        wider.find_map(|key| self.of(key))
    }
}

/// The merged layers.
pub(super) struct Merged {
    pub(super) tree: Json,
    pub(super) origins: Origins,
    unquoted: BTreeMap<String, String>,
}

/// Merges the layers, weakest first.
pub(super) fn merge(layers: Vec<Layer>) -> Result<Merged, Vec<Problem>> {
    let mut builder = Config::builder();
    let mut unquoted = BTreeMap::new();
    for layer in layers {
        unquoted.extend(layer.unquoted.clone());
        builder = builder.add_source(layer);
    }
    let merged = builder.build().map_err(|error| vec![Problem::new("settings", error.to_string())])?;
    let mut origins = Origins::default();
    let tree = to_json(&merged.cache, "", &mut origins);
    Ok(Merged { tree, origins, unquoted })
}

fn to_json(value: &Value, key: &str, origins: &mut Origins) -> Json {
    if !key.is_empty() && !matches!(value.kind, ValueKind::Table(_)) {
        origins.0.insert(key.to_owned(), value.origin().unwrap_or_default().to_owned());
    }
    match &value.kind {
        ValueKind::Nil => Json::Null,
        ValueKind::Boolean(flag) => Json::Bool(*flag),
        ValueKind::I64(number) => Json::from(*number),
        ValueKind::U64(number) => Json::from(*number),
        ValueKind::I128(number) => Json::String(number.to_string()),
        ValueKind::U128(number) => Json::String(number.to_string()),
        ValueKind::Float(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        ValueKind::String(text) => Json::String(text.clone()),
        ValueKind::Array(items) => {
            let mut item = |(at, item): (usize, &Value)| {
                let key = format!("{key}[{at}]");
                let json = to_json(item, &key, origins);
                // A table in a list has a place of its own, where what is missing in it belongs.
                origins.0.entry(key).or_insert_with(|| item.origin().unwrap_or_default().to_owned());
                json
            };
            items.iter().enumerate().map(&mut item).collect()
        }
        ValueKind::Table(table) => {
            let join = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
            Json::Object(
                table.iter().map(|(name, value)| (name.clone(), to_json(value, &join(name), origins))).collect(),
            )
        }
    }
}

/// Reads the tree into `T`. A value that does not fit is reported, taken out, and the rest is read again, so that one
/// mistake does not hide another; what was taken out stands at its default.
pub(super) fn read<T: DeserializeOwned + Default>(merged: &mut Merged, known: &[String]) -> (T, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut first_words = BTreeMap::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&merged.tree) {
            Ok(settings) => return (settings, problems),
            Err(error) => error,
        };
        let path = plain_path(&error);
        let key = path.join(".");
        // What looked like a number or a list may be meant as text: `--set llm.model=4`.
        if let Some(text) = merged.unquoted.remove(&key)
            && replace(&mut merged.tree, &path, Json::String(text))
        {
            first_words.insert(key, error.inner().to_string());
            continue;
        }
        let message = first_words.remove(&key).unwrap_or_else(|| error.inner().to_string());
        problems.push(describe(&message, &key, &merged.origins, known));
        if !remove(&mut merged.tree, &path) {
            return (T::default(), problems);
        }
    }
}

/// The names on the way to the value, up to the setting itself: an element of a list belongs to the list.
fn plain_path(error: &serde_path_to_error::Error<serde_json::Error>) -> Vec<String> {
    let names = error.path().iter().map_while(|segment| match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Seq { .. } | Segment::Unknown => None,
    });
    names.collect()
}

fn describe(message: &str, key: &str, origins: &Origins, known: &[String]) -> Problem {
    let problem = |what: String| Problem::new(key, what).from(origins.of(key));
    if message.starts_with("unknown field") {
        let what = if key.contains('.') { "unknown key" } else { "unknown section" };
        return problem(what.into()).hint(hint_for_unknown(key, known));
    }
    let (what, hint) = plain(message);
    problem(what).hint(hint)
}

/// What the deserialiser says of a value, for people, and what was probably meant.
pub(super) fn plain(message: &str) -> (String, Option<String>) {
    let Some((found, expected)) = message.split_once(", expected ") else { return (message.to_owned(), None) };
    let words: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    if let Some(given) = found.strip_prefix("unknown variant ") {
        let hint = nearest(given.trim_matches('`'), words.iter().copied()).map(|near| format!("did you mean {near}?"));
        return (format!("expected {}", plain_expected(expected)), hint);
    }
    let found = found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
    (format!("expected {}, found {}", plain_expected(expected), plain_found(found)), None)
}

/// The words of the deserialiser, for people.
fn plain_expected(expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "i64" | "i32" => "a whole number".into(),
        "f64" | "f32" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "path string" => "text in quotes".into(),
        "a sequence" => "a list in brackets".into(),
        other if other.starts_with("struct ") => "a section".into(),
        other => other.replace('`', ""),
    }
}

/// What was found, without the words of a text: it may be a secret in the wrong place.
fn plain_found(found: &str) -> String {
    match found.split_once(' ') {
        Some(("string", _)) => "text".into(),
        Some(("integer", number)) => number.replace('`', ""),
        Some(("boolean", flag)) => flag.replace('`', ""),
        Some(("floating", _)) => "a number with a fraction".into(),
        _ => match found {
            "map" => "a section".into(),
            "sequence" => "a list".into(),
            other => other.replace('`', ""),
        },
    }
}

fn parent<'t, 'p>(tree: &'t mut Json, path: &'p [String]) -> Option<(&'t mut Map<String, Json>, &'p str)> {
    let (last, before) = path.split_last()?;
    let mut table = tree.as_object_mut()?;
    for name in before {
        table = table.get_mut(name)?.as_object_mut()?;
    }
    Some((table, last))
}

fn remove(tree: &mut Json, path: &[String]) -> bool {
    parent(tree, path).is_some_and(|(table, last)| table.remove(last).is_some())
}

fn replace(tree: &mut Json, path: &[String], value: Json) -> bool {
    match parent(tree, path) {
        Some((table, last)) if table.contains_key(last) => table.insert(last.to_owned(), value).is_some(),
        _ => false,
    }
}
