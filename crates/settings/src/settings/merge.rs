//! Merges the layers, and deserialises the result so that all mistakes are found at once.

use std::collections::{BTreeMap, BTreeSet};

use belay_text::near::nearest;
use config::{Config, Value, ValueKind};
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value as Json};
use serde_path_to_error::Segment;

use super::layers::{BUILT_IN, Layer};
use super::problem::{Problem, hint_for_unknown};

/// The origin of each value, by full key.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, String>);

impl Origins {
    /// The origin of a key's value, or of the first value below it.
    pub fn of(&self, key: &str) -> Option<&str> {
        let below = format!("{key}.");
        let first_below = || self.0.range(below.clone()..).next().filter(|(found, _)| found.starts_with(&below));
        self.0.get(key).or_else(|| first_below().map(|(_, origin)| origin)).map(String::as_str)
    }
}

impl Origins {
    /// The origin of a value, or else of its nearest ancestor with an origin: a value that an element of a list lacks
    /// belongs to the element.
    pub fn around(&self, key: &str) -> Option<&str> {
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

/// Merges the layers, weakest first. A value in the place of a section of an earlier layer is reported in `problems` and left
/// out: the merging library would replace the whole section by it, and a later layer with a key of that section would then
/// hide it.
pub(super) fn merge(layers: Vec<Layer>, problems: &mut Vec<Problem>) -> Result<Merged, Vec<Problem>> {
    let mut builder = Config::builder();
    let (mut unquoted, mut empty) = (BTreeMap::new(), BTreeMap::new());
    let mut sections = BTreeSet::new();
    for mut layer in layers {
        for (key, found, origin) in layer.take_values_for(&mut sections) {
            problems.push(Problem::new(&key, format!("expected a section, found {found}")).from(Some(&origin)));
        }
        empty.extend(layer.empty_tables());
        unquoted.extend(layer.unquoted.clone());
        builder = builder.add_source(layer);
    }
    let merged = builder.build().map_err(|error| vec![Problem::new("settings", error.to_string())])?;
    let mut origins = Origins::default();
    let tree = to_json(&merged.cache, "", &mut origins);
    // The merging library loses the origin of empty tables.
    for (key, origin) in empty {
        if origins.of(&key).is_none() {
            origins.0.insert(key, origin);
        }
    }
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
                // A table in a list gets its own origin, for values that are missing in it.
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

/// Reads the tree into `T`. A value that does not fit is reported and removed, and the rest is read again, so that no
/// mistake hides another. A removed value has its default.
pub(super) fn read<T: DeserializeOwned + Default>(merged: &mut Merged, known: &[String]) -> (T, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut first_words = BTreeMap::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&merged.tree) {
            Ok(settings) => return (settings, problems),
            Err(error) => error,
        };
        let message = error.inner().to_string();
        let mut path = steps(&error);
        let unknown = unknown_field(&message);
        match unknown {
            // If tables are flattened into one, or read as a whole, the path ends above the key.
            Some(name) if path.last().is_none_or(|step| *step != Step::Key(name.to_owned())) => {
                path.push(Step::Key(name.to_owned()));
            }
            Some(_) => {}
            None => {
                // An element of a list is reported as the list.
                path.truncate(path.iter().position(|step| matches!(step, Step::At(_))).unwrap_or(path.len()));
                path.extend(wrong_value::<T>(&merged.tree, &path, &message));
            }
        }
        let key = key_of(&path);
        // A value that looks like a number or a list may be meant as text: `--set llm.model=4`.
        if let Some(text) = merged.unquoted.remove(&key)
            && replace(&mut merged.tree, &path, Json::String(text))
        {
            first_words.insert(key, message);
            continue;
        }
        let message = first_words.remove(&key).unwrap_or(message);
        // The missing value may have been removed before; then it has its own problem.
        let told = missing_field(&message).is_some_and(|name| {
            let full = if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
            problems.iter().any(|problem: &Problem| problem.key == full)
        });
        if !told {
            problems.push(describe(&message, &key, &merged.origins, known));
        }
        // If the end of the path is unknown, the values around it are removed too, so that the rest can be read.
        while !remove(&mut merged.tree, &path) {
            if path.pop().is_none() {
                return (T::default(), problems);
            }
        }
    }
}

/// Reports and removes the lists in the place of sections. A deserialiser would take the elements of the list as the
/// values of the section, and the defaults for missing ones: `[]` would silently be a section without any value.
///
/// A list is in the place of a section if an empty section would be accepted there, or would lack values.
pub(super) fn remove_lists_for_sections<T: DeserializeOwned>(merged: &mut Merged) -> Vec<Problem> {
    let mut lists = Vec::new();
    collect_lists(&merged.tree, &mut Vec::new(), &mut lists);
    let mut problems = Vec::new();
    for path in lists {
        let key = key_of(&path);
        let origin = merged.origins.around(&key).unwrap_or_default();
        if origin == BUILT_IN || !is_section::<T>(&path) {
            continue;
        }
        problems.push(Problem::new(&key, "expected a section, found a list").from(Some(origin)));
        remove(&mut merged.tree, &path);
    }
    problems
}

/// The paths to all lists; those of the outer ones come first.
fn collect_lists(value: &Json, path: &mut Vec<Step>, lists: &mut Vec<Vec<Step>>) {
    let mut below = |step: Step, inner: &Json| {
        path.push(step);
        if inner.is_array() {
            lists.push(path.clone());
        }
        collect_lists(inner, path, lists);
        path.pop();
    };
    match value {
        Json::Object(table) => table.iter().for_each(|(name, inner)| below(Step::Key(name.clone()), inner)),
        Json::Array(items) => items.iter().enumerate().for_each(|(at, inner)| below(Step::At(at), inner)),
        _ => {}
    }
}

/// Whether the value of this path is a section, and not a value of any type, such as a part of a request's body.
fn is_section<T: DeserializeOwned>(path: &[Step]) -> bool {
    fits::<T>(path, Json::Object(Map::new())) && !fits::<T>(path, Json::Bool(true))
}

/// Whether the deserialiser takes this value at this path. The values around it may be missing.
fn fits<T: DeserializeOwned>(path: &[Step], value: Json) -> bool {
    let alone = path.iter().rev().fold(value, |inner, step| match step {
        Step::Key(name) => Json::Object(Map::from_iter([(name.clone(), inner)])),
        Step::At(_) => Json::Array(vec![inner]),
    });
    match serde_path_to_error::deserialize::<_, T>(&alone) {
        Ok(_) => true,
        Err(error) => missing_field(&error.inner().to_string()).is_some(),
    }
}

/// A step of the path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    At(usize),
}

/// The path to the value, as far as the deserialiser knows it.
fn steps(error: &serde_path_to_error::Error<serde_json::Error>) -> Vec<Step> {
    let steps = error.path().iter().map_while(|segment| match segment {
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Seq { index } => Some(Step::At(*index)),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    steps.collect()
}

/// Finds the wrong value below a table if the deserialiser names only the table: flattened tables are read as a whole.
/// It is the value without which the same error does not occur.
fn wrong_value<T: DeserializeOwned>(tree: &Json, path: &[Step], message: &str) -> Option<Step> {
    let names: Vec<String> = at(tree, path)?.as_object()?.keys().cloned().collect();
    let is_culprit = |name: &String| {
        let mut without = tree.clone();
        let mut path = path.to_vec();
        path.push(Step::Key(name.clone()));
        let error = remove(&mut without, &path).then(|| serde_path_to_error::deserialize::<_, T>(&without).err());
        error.is_some_and(|error| error.is_none_or(|error| error.inner().to_string() != message))
    };
    // Removing a required value only causes another error, "missing field".
    names.into_iter().find(is_culprit).filter(|_| !message.starts_with("missing field")).map(Step::Key)
}

/// The key in an error about an unknown key.
fn unknown_field(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// The key in an error about a missing key.
fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

/// A full key for people: `llm.fallbacks[0].model`.
fn key_of(path: &[Step]) -> String {
    path.iter().fold(String::new(), |key, step| match step {
        Step::Key(name) if key.is_empty() => name.clone(),
        Step::Key(name) => format!("{key}.{name}"),
        Step::At(index) => format!("{key}[{index}]"),
    })
}

fn describe(message: &str, key: &str, origins: &Origins, known: &[String]) -> Problem {
    let problem = |what: String| Problem::new(key, what).from(origins.around(key));
    if let Some(name) = unknown_field(message) {
        let what = if key.contains('.') { "unknown key" } else { "unknown section" };
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        let is_known = known.iter().any(|key| key.rsplit_once('.').is_some_and(|(parent, _)| parent == section));
        // Elements of lists and entries of tables have no defaults, so the deserialiser's list of fields is used.
        let there: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let hint = match nearest(name, there.iter().copied()) {
            _ if is_known || section.is_empty() || there.is_empty() => hint_for_unknown(key, known),
            Some(near) => Some(format!("did you mean {section}.{near}?")),
            None => Some(format!("there are {}", there.join(", "))),
        };
        return problem(what.into()).hint(hint);
    }
    let (what, hint) = plain(message);
    problem(what).hint(hint)
}

/// Translates an error of the deserialiser for people, with a suggestion if possible.
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

/// Translates the expected type for people.
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

/// Translates the found value for people, without text: it may be a secret in the wrong place.
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

fn at<'t>(tree: &'t Json, path: &[Step]) -> Option<&'t Json> {
    path.iter().try_fold(tree, |value, step| match step {
        Step::Key(name) => value.get(name),
        Step::At(index) => value.get(index),
    })
}

fn parent<'t, 'p>(tree: &'t mut Json, path: &'p [Step]) -> Option<(&'t mut Map<String, Json>, &'p str)> {
    let (Step::Key(last), before) = path.split_last()? else { return None };
    let mut value = tree;
    for step in before {
        value = match step {
            Step::Key(name) => value.get_mut(name)?,
            Step::At(index) => value.get_mut(index)?,
        };
    }
    Some((value.as_object_mut()?, last))
}

fn remove(tree: &mut Json, path: &[Step]) -> bool {
    parent(tree, path).is_some_and(|(table, last)| table.remove(last).is_some())
}

fn replace(tree: &mut Json, path: &[Step], value: Json) -> bool {
    match parent(tree, path) {
        Some((table, last)) if table.contains_key(last) => table.insert(last.to_owned(), value).is_some(),
        _ => false,
    }
}
