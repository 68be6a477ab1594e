//! `response_format`: a declared output in this API. The run produces one value, and the answer's content is that value
//! as JSON, with nothing around it.
//!
//! Source: the OpenAI API reference, "Chat Completions", `response_format`.

use belay_protocol::{DeclaredOutput, RunRecord, SentFile, StopReason};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::OpenAiError;
use crate::foreign::shown;

/// The parameter's name, for errors.
const PARAM: &str = "response_format";

/// The name of an output if the client gives none.
pub(super) const NAME: &str = "answer";

/// The form of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum AnswerForm {
    /// A text.
    #[default]
    Text,
    /// The value of this output.
    Json(DeclaredOutput),
}

#[derive(Deserialize)]
struct JsonSchema {
    name: String,
    schema: Option<Value>,
    description: Option<String>,
}

impl AnswerForm {
    /// Reads the form that a request asks for.
    ///
    /// # Errors
    /// 400: an unknown type, or a type without its required fields.
    pub(crate) fn read(asked: Option<&Value>) -> Result<Self, OpenAiError> {
        let invalid = |param: &str, message: String| Err(OpenAiError::invalid(param, "invalid_value", message));
        let Some(asked) = asked.filter(|value| !value.is_null()) else { return Ok(Self::Text) };
        match asked.get("type").and_then(Value::as_str) {
            Some("text") => Ok(Self::Text),
            Some("json_object") => Ok(Self::Json(DeclaredOutput {
                name: NAME.into(),
                schema: json!({ "type": "object" }),
                description: None,
            })),
            Some("json_schema") => {
                let given = asked.get("json_schema").cloned().unwrap_or_default();
                match serde_json::from_value::<JsonSchema>(given) {
                    Ok(JsonSchema { name, schema, description }) => Ok(Self::Json(DeclaredOutput {
                        name: output_name(&name),
                        schema: schema.unwrap_or_else(|| json!({})),
                        description,
                    })),
                    Err(error) => invalid("response_format.json_schema", shown(&error.to_string())),
                }
            }
            Some(other) => {
                let message = format!("must be text, json_object or json_schema, not \"{}\"", shown(other));
                invalid("response_format.type", message)
            }
            None => invalid(PARAM, "must be an object with a type: text, json_object or json_schema".into()),
        }
    }

    /// The outputs that the run must produce.
    pub(crate) fn outputs(&self) -> Vec<DeclaredOutput> {
        match self {
            Self::Text => Vec::new(),
            Self::Json(output) => vec![output.clone()],
        }
    }

    /// Whether text deltas are parts of the answer.
    pub(crate) fn is_text(&self) -> bool {
        *self == Self::Text
    }

    /// The content of the answer of an ended run. A run without its output has a line for people.
    pub(crate) fn content(&self, run: &RunRecord) -> String {
        let reply = run.reply.as_deref().unwrap_or_default();
        let value = match self {
            Self::Json(output) if run.reason == Some(StopReason::Goal) => serde_json::from_str::<Value>(reply)
                .ok()
                .and_then(|mut outputs| outputs.get_mut(&output.name).map(Value::take)),
            Self::Text | Self::Json(_) => None,
        };
        match (value, self) {
            (Some(value), _) => value.to_string(),
            (None, Self::Text) => format!("{reply}{}", links_to(run)),
            (None, Self::Json(_)) => reply.to_owned(),
        }
    }
}

/// The links to the files that a run has sent, in Markdown: clients of this API read nothing but the content.
fn links_to(run: &RunRecord) -> String {
    let name = |file: &SentFile| file.name.replace(['[', ']', '\\'], "_");
    let caption = |file: &SentFile| if file.caption.is_empty() { String::new() } else { format!("{}\n", file.caption) };
    let link = |file: &SentFile| Some(format!("\n\n{}[{}]({})", caption(file), name(file), file.url.as_deref()?));
    run.files.iter().filter_map(link).collect()
}

/// Converts the name of a schema to the name of an output: each invalid character becomes `_`.
fn output_name(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().take(63).map(fits).collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        Some(_) => name,
        None => NAME.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_form_becomes_what_the_run_has_to_come_up_with() {
        let schema = json!({ "type": "object", "properties": { "sum": { "type": "integer" } } });
        for (asked, expected) in [
            (Value::Null, None),
            (json!({ "type": "text" }), None),
            (json!({ "type": "json_object" }), Some(("answer", json!({ "type": "object" })))),
            (
                json!({ "type": "json_schema", "json_schema": { "name": "my-sum 2", "strict": true, "schema": schema } }),
                Some(("my_sum_2", schema.clone())),
            ),
            (
                json!({ "type": "json_schema", "json_schema": { "name": "4th", "schema": schema } }),
                Some(("_4th", schema.clone())),
            ),
            (json!({ "type": "json_schema", "json_schema": { "name": "" } }), Some(("answer", json!({})))),
        ] {
            let outputs = AnswerForm::read(Some(&asked)).unwrap().outputs();
            let outputs: Vec<_> = outputs.into_iter().map(|output| (output.name, output.schema)).collect();
            let expected: Vec<_> = expected.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
            assert_eq!(outputs, expected, "{asked}");
        }
        for (asked, param) in [
            (json!("json_object"), "response_format"),
            (json!({}), "response_format"),
            (json!({ "type": "grammar" }), "response_format.type"),
            (json!({ "type": "json_schema" }), "response_format.json_schema"),
            (json!({ "type": "json_schema", "json_schema": { "schema": {} } }), "response_format.json_schema"),
        ] {
            let error = AnswerForm::read(Some(&asked)).unwrap_err();
            assert_eq!(error.body()["error"]["param"], json!(param), "{asked}");
        }
    }
}
