//! Labels: the judgement of people about a recording.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// The judgement about a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// The run works, however long it takes.
    Healthy,
    /// The run loops or makes no progress.
    Pathology,
}

/// A label with its details.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// The label.
    pub label: Label,
    /// The index of the first event that is part of the pathology. `None` for healthy runs, and if the onset was not
    /// given.
    pub onset: Option<usize>,
    /// The names of the mutations that do not change the label; `None`: all.
    pub mutations: Option<Vec<String>>,
    /// A description of the recording, in a sentence.
    pub title: Option<String>,
    /// The origin of the recording.
    pub source: Option<String>,
}

impl Labelled {
    /// A label without details.
    pub fn new(label: Label) -> Self {
        Self { label, onset: None, mutations: None, title: None, source: None }
    }
}

/// A row of `labels.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The file, relative to the file that contains the row.
    pub file: String,
    /// Its label.
    pub label: Labelled,
}

/// Why a label cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{what}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct LabelError {
    /// The line, from 1, in a file of rows.
    pub line: Option<u64>,
    /// The problem.
    pub what: String,
}

/// The serialised form of a label. Other fields are for people.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    file: Option<String>,
    #[serde(alias = "kind")]
    label: String,
    #[serde(default)]
    onset: Option<usize>,
    #[serde(default)]
    mutations: Option<Value>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    source: Option<String>,
}

/// Parses `labels.jsonl`, with one row on each line.
///
/// # Errors
/// A line is not a valid row.
pub fn rows(text: &str) -> Result<Vec<Row>, LabelError> {
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let at = |what: String| LabelError { line: Some(index as u64 + 1), what };
            let value = serde_json::from_str(line).map_err(|error| at(format!("not JSON: {error}")))?;
            let (file, label) = parse(value).map_err(at)?;
            let file = file.ok_or_else(|| at("names no `file`".into()))?;
            Ok(Row { file, label })
        })
        .collect()
}

/// Parses a label alone: the value of a header, or a sidecar file. It is a word, or an object with `label` (or `kind`).
///
/// # Errors
/// The value has neither form.
pub fn labelled(value: &Value) -> Result<Labelled, LabelError> {
    let alone = |what| LabelError { line: None, what };
    match value {
        Value::String(word) => label_of(word).map(Labelled::new).map_err(alone),
        // A sidecar file may contain the same object as a header, including the header's key.
        Value::Object(object) if object.get("label").is_some_and(Value::is_object) => labelled(&object["label"]),
        other => parse(other.clone()).map(|(_, label)| label).map_err(alone),
    }
}

/// The label that a directory with this name gives to its recordings.
pub fn label_of_directory(name: &str) -> Option<Label> {
    match name.to_lowercase().as_str() {
        "healthy" => Some(Label::Healthy),
        "pathology" | "pathologies" | "pathological" => Some(Label::Pathology),
        _ => None,
    }
}

fn parse(value: Value) -> Result<(Option<String>, Labelled), String> {
    let written: Written = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let label = label_of(&written.label)?;
    if label == Label::Healthy && written.onset.is_some() {
        return Err("a healthy run has no `onset`".into());
    }
    let mutations = written.mutations.as_ref().map(mutations_of).transpose()?.flatten();
    let (onset, title, source) = (written.onset, written.title, written.source);
    Ok((written.file, Labelled { label, onset, mutations, title, source }))
}

fn label_of(word: &str) -> Result<Label, String> {
    label_of_directory(word).ok_or_else(|| format!("there is no label `{word}`; there are healthy and pathology"))
}

/// Parses `"all"`, `"none"`, or a list of names.
fn mutations_of(value: &Value) -> Result<Option<Vec<String>>, String> {
    match value {
        Value::String(word) if word == "all" => Ok(None),
        Value::String(word) if word == "none" => Ok(Some(Vec::new())),
        list => serde_json::from_value(list.clone())
            .map(Some)
            .map_err(|_| "`mutations` is \"all\", \"none\", or a list of names".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_read_or_refused_with_their_line() {
        let text = "{\"file\":\"a.jsonl\",\"label\":\"healthy\",\"family\":\"polling\"}\n\n{\"file\":\"b.jsonl\",\"label\":\"pathology\",\"onset\":7,\"mutations\":[\"shuffle\"]}\n";
        let shuffle = Some(vec!["shuffle".into()]);
        assert_eq!(
            rows(text).unwrap(),
            [
                Row { file: "a.jsonl".into(), label: Labelled::new(Label::Healthy) },
                Row {
                    file: "b.jsonl".into(),
                    label: Labelled { onset: Some(7), mutations: shuffle, ..Labelled::new(Label::Pathology) }
                },
            ]
        );
        for (text, expected) in [
            ("{\"label\":\"healthy\"}", "line 1: names no `file`"),
            (
                "\n{\"file\":\"a\",\"label\":\"odd\"}",
                "line 2: there is no label `odd`; there are healthy and pathology",
            ),
            ("{\"file\":\"a\",\"label\":\"healthy\",\"onset\":1}", "line 1: a healthy run has no `onset`"),
            ("{\"file\":\"a\",\"label\":\"healthy\",\"mutations\":[7]}", "line 1: `mutations` is"),
            ("nonsense", "line 1: not JSON"),
        ] {
            let error = rows(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_label_by_itself_is_a_word_or_an_object() {
        for (value, label, onset) in [
            (json!("healthy"), Label::Healthy, None),
            (json!("pathological"), Label::Pathology, None),
            (json!({"kind": "pathology", "onset": 3}), Label::Pathology, Some(3)),
            (json!({"label": "pathology", "onset": 3, "mutations": "all"}), Label::Pathology, Some(3)),
            (json!({"label": {"kind": "pathology", "onset": 3}}), Label::Pathology, Some(3)),
        ] {
            assert_eq!(labelled(&value), Ok(Labelled { onset, ..Labelled::new(label) }), "{value}");
        }
        assert!(labelled(&json!(7)).is_err());
        assert!(labelled(&json!({"onset": 3})).is_err());
    }
}
