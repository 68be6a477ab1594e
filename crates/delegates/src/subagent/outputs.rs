//! The declared outputs of a run: their validators, compiled once, and the submitted values.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{Arguments, DeclaredOutput, Message, MessageBody, ToolStatus};
use jsonschema::Validator;
use serde_json::{Map, Value};

use super::bounds::{self, Bounds};
use super::shapes;

use belay_run::own_tools::{COMPLETE_TASK, EMIT_VALUE};

/// Most outputs of one run. 32: more than a person reads, and few enough for a context.
const MAX_OUTPUTS: usize = 32;
/// Most problems of one value that the model reads.
const MAX_PROBLEMS: usize = 5;

/// The outputs that a run must submit. Without a declared output, the run submits a text.
#[derive(Debug)]
pub struct Declared {
    outputs: Vec<Output>,
    // The lock is held for a few instructions, never across an await. The tools of one run share the values.
    emitted: Mutex<Emitted>,
}

#[derive(Debug)]
struct Output {
    declared: DeclaredOutput,
    validator: Validator,
}

#[derive(Debug, Default)]
struct Emitted {
    /// In the order of the declaration.
    values: Vec<Option<Value>>,
    /// The text of a task without declared outputs.
    result: Option<String>,
    /// `complete_task` has succeeded; no value changes any more.
    complete: bool,
}

impl Declared {
    /// Compiles the validators. Refuses references to other documents and never fetches them. The time is limited to
    /// milliseconds, tens of them in the worst case: see [`bounds`].
    ///
    /// # Errors
    /// All problems, each with the name of its output.
    pub fn compile(declared: Vec<DeclaredOutput>) -> Result<Self, String> {
        let mut problems = Vec::new();
        let mut names = HashSet::new();
        let mut outputs = Vec::with_capacity(declared.len());
        let mut bounds = Bounds::default();
        if declared.len() > MAX_OUTPUTS {
            return Err(format!("{} outputs are declared; the maximum is {MAX_OUTPUTS}", declared.len()));
        }
        for declared in declared {
            let name = &declared.name;
            problems.extend(DeclaredOutput::name_problem(name));
            if !names.insert(name.clone()) {
                problems.push(format!("{name} is declared twice"));
            }
            if let Err(problem) = bounds.admit(&declared) {
                problems.push(problem);
                continue;
            }
            let options = jsonschema::options().offline().with_pattern_options(bounds::patterns());
            match options.build(&declared.schema) {
                Ok(validator) => outputs.push(Output { declared, validator }),
                Err(error) => problems.push(format!("{name}: this is not a usable JSON Schema: {error}")),
            }
        }
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        let emitted = Emitted { values: vec![None; outputs.len()], ..Emitted::default() };
        Ok(Self { outputs, emitted: Mutex::new(emitted) })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Emitted) -> R) -> R {
        f(&mut self.emitted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets all submitted values.
    pub(crate) fn clear(&self) {
        self.with(|emitted| *emitted = Emitted { values: vec![None; self.outputs.len()], ..Emitted::default() });
    }

    /// Returns whether no output is declared.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// The declared outputs, in order.
    pub(crate) fn declarations(&self) -> impl Iterator<Item = &DeclaredOutput> {
        self.outputs.iter().map(|output| &output.declared)
    }

    /// The names, in order.
    pub fn names(&self) -> Vec<&str> {
        self.declarations().map(|declared| declared.name.as_str()).collect()
    }

    /// The outputs without a value, in order.
    pub fn missing(&self) -> Vec<&DeclaredOutput> {
        self.with(|emitted| {
            let open = self.outputs.iter().zip(&emitted.values).filter(|(_, value)| value.is_none());
            open.map(|(output, _)| &output.declared).collect()
        })
    }

    /// Returns whether all outputs are submitted.
    pub fn reached(&self) -> bool {
        if self.is_empty() { self.with(|emitted| emitted.result.is_some()) } else { self.missing().is_empty() }
    }

    /// The submitted values, by name.
    pub fn values(&self) -> Map<String, Value> {
        self.with(|emitted| {
            let there = self.outputs.iter().zip(&emitted.values);
            there.filter_map(|(output, value)| Some((output.declared.name.clone(), value.clone()?))).collect()
        })
    }

    /// The submitted values as one JSON object, in the order of the declaration.
    pub fn as_json(&self) -> String {
        self.with(|emitted| {
            let there = self.outputs.iter().zip(&emitted.values);
            let fields = there.filter_map(|(output, value)| {
                Some(format!("{}:{}", Value::String(output.declared.name.clone()), value.as_ref()?))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        })
    }

    /// The result of a task without declared outputs.
    pub fn result(&self) -> Option<String> {
        self.with(|emitted| emitted.result.clone())
    }

    /// Submits one value. Returns the text for the model.
    ///
    /// # Errors
    /// Text for the model: the path in the value and what was expected there, or the declared names.
    pub fn emit(&self, name: &str, value: &Value) -> Result<String, Refused> {
        let at = self.position(name).ok_or_else(|| self.unknown(name))?;
        let value = self.outputs[at].fitting(value).map_err(|problems| Refused::Invalid(problems.join("; ")))?;
        let replaced = self.with(|emitted| {
            if emitted.complete { Err(Refused::Late) } else { Ok(emitted.values[at].replace(value.into_owned())) }
        })?;
        let what = match replaced {
            Some(_) => format!("{name} is accepted and replaces its earlier value"),
            None => format!("{name} is accepted"),
        };
        let missing = listed(&self.missing());
        Ok(if missing.is_empty() {
            format!("{what}; all outputs are submitted")
        } else {
            format!("{what}; missing: {missing}")
        })
    }

    /// Submits the values of a call of `emit_value`, in any shape that models send: all of them, or none. Returns the text
    /// for the model.
    ///
    /// # Errors
    /// As [`Self::emit`], and text about the expected shape.
    pub(crate) fn emit_all(&self, arguments: &Map<String, Value>) -> Result<String, Refused> {
        let submitted = shapes::submitted(&Value::Object(arguments.clone()), &self.names());
        let values = submitted.ok_or_else(|| match arguments.get("name").and_then(Value::as_str) {
            Some(name) if arguments.contains_key("value") => self.unknown(name),
            _ => Refused::Invalid("expected {\"name\": …, \"value\": …}".into()),
        })?;
        let problems: Vec<String> = values.iter().flat_map(|(name, value)| self.problems_of(name, value)).collect();
        if !problems.is_empty() {
            return Err(Refused::Invalid(problems.join("; ")));
        }
        let mut text = Ok(String::new());
        for (name, value) in &values {
            text = Ok(self.emit(name, value)?);
        }
        text
    }

    /// Takes a text as the submission of all missing outputs, if it is nothing but their values as JSON: the value of the
    /// only output, or an object with the name of each. `among_words`: the only fenced block of the text will do.
    pub(crate) fn take_text(&self, text: &str, among_words: bool) -> bool {
        self.values_in(text, among_words)
            .is_some_and(|values| values.iter().all(|(name, value)| self.emit(name, value).is_ok()) && self.reached())
    }

    /// Whether [`Self::take_text`] would take this text. If it is also a call of a tool, the declaration must name its
    /// fields: a schema that allows any object allows each call too.
    pub(crate) fn is_answer(&self, text: &str, is_call: bool) -> bool {
        self.values_in(text, false).is_some()
            && (!is_call || shapes::json_in(text, false).is_some_and(|value| self.names_fields_of(&value)))
    }

    /// Whether the declaration names all fields of an object, or of each object in a list.
    fn names_fields_of(&self, value: &Value) -> bool {
        let names = |field: &String| {
            let is_named =
                |output: &Output| output.declared.name == *field || shapes::names_field(&output.declared.schema, field);
            self.outputs.iter().any(is_named)
        };
        match value {
            Value::Array(items) => items.iter().all(|item| self.names_fields_of(item)),
            Value::Object(fields) => fields.keys().all(names),
            _ => false,
        }
    }

    fn values_in(&self, text: &str, among_words: bool) -> Option<Vec<(String, Value)>> {
        let value = shapes::json_in(text, among_words)?;
        if let [output] = self.outputs.as_slice()
            && output.problems(&value).is_empty()
        {
            return Some(vec![(output.declared.name.clone(), value)]);
        }
        let values = shapes::submitted(&value, &self.names())?;
        let given = |output: &&DeclaredOutput| values.iter().any(|(name, _)| *name == output.name);
        let fit = values.iter().all(|(name, value)| self.problems_of(name, value).is_empty());
        (fit && self.missing().iter().all(given)).then_some(values)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.outputs.iter().position(|output| output.declared.name == name)
    }

    fn problems_of(&self, name: &str, value: &Value) -> Vec<String> {
        self.position(name).map_or_else(Vec::new, |at| match self.outputs[at].fitting(value) {
            Ok(_) => Vec::new(),
            Err(problems) => problems,
        })
    }

    fn unknown(&self, name: &str) -> Refused {
        Refused::Unknown(format!("no output named {name:?}; declared are: {}", self.names().join(", ")))
    }

    /// Submits all values at once, or none. Returns the text for the model.
    ///
    /// # Errors
    /// Text for the model: the problems of all values.
    pub fn complete(&self, arguments: &Map<String, Value>) -> Result<String, Refused> {
        if self.is_empty() {
            return self.complete_text(arguments);
        }
        let shaped = shapes::submitted(&Value::Object(arguments.clone()), &self.names());
        let shaped = shaped.map(|values| values.into_iter().collect::<Map<_, _>>());
        let arguments = shaped.as_ref().unwrap_or(arguments);
        let (mut problems, mut fitting) = (Vec::new(), Vec::new());
        for output in &self.outputs {
            match arguments.get(&output.declared.name) {
                Some(value) => match output.fitting(value) {
                    Ok(value) => fitting.push(value.into_owned()),
                    Err(unfit) => problems.extend(unfit),
                },
                None => problems.push(format!("{} is missing ({})", output.declared.name, output.kind())),
            }
        }
        let names = self.names();
        let unknown: Vec<&str> = arguments.keys().map(String::as_str).filter(|name| !names.contains(name)).collect();
        if !unknown.is_empty() {
            problems.push(format!("not declared: {}; declared are: {}", unknown.join(", "), names.join(", ")));
        }
        if !problems.is_empty() {
            return Err(Refused::Invalid(problems.join("; ")));
        }
        self.with(|emitted| {
            if std::mem::replace(&mut emitted.complete, true) {
                return Err(Refused::Late);
            }
            emitted.values = fitting.into_iter().map(Some).collect();
            Ok("the task is complete".into())
        })
    }

    fn complete_text(&self, arguments: &Map<String, Value>) -> Result<String, Refused> {
        let result = arguments.get("result").and_then(Value::as_str).map(str::trim).unwrap_or_default();
        if result.is_empty() {
            return Err(Refused::Invalid("result: expected a text that is not blank".into()));
        }
        self.with(|emitted| {
            if std::mem::replace(&mut emitted.complete, true) {
                return Err(Refused::Late);
            }
            emitted.result = Some(result.to_owned());
            Ok("the task is complete".into())
        })
    }

    /// Repeats the submissions of an earlier attempt: the successful calls in `messages`, in order. The conversation
    /// is therefore the only record of submitted values.
    pub(crate) fn replay(&self, messages: &[Arc<Message>]) {
        let succeeded: HashSet<_> = messages
            .iter()
            .filter_map(|message| match &message.body {
                MessageBody::Tool(result) if result.status == ToolStatus::Success => Some(&result.call_id),
                _ => None,
            })
            .collect();
        for call in messages.iter().flat_map(|message| message.tool_calls()) {
            let Arguments::Object(arguments) = &call.arguments else { continue };
            if !succeeded.contains(&call.id) {
                continue;
            }
            // The same declaration accepts the same values again; a changed one validates them anew.
            let _ = match call.name.as_str() {
                EMIT_VALUE => self.emit_all(arguments),
                COMPLETE_TASK => self.complete(arguments),
                _ => continue,
            };
        }
    }
}

impl Output {
    /// The value as it fits: an object or a list may come as its JSON text.
    fn fitting<'v>(&self, value: &'v Value) -> Result<Cow<'v, Value>, Vec<String>> {
        let problems = self.problems(value);
        if problems.is_empty() {
            return Ok(Cow::Borrowed(value));
        }
        let written = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        match written.filter(|written| written.is_object() || written.is_array()) {
            Some(written) if self.problems(&written).is_empty() => Ok(Cow::Owned(written)),
            _ => Err(problems),
        }
    }

    /// The problems of a value: the path, and what was expected there.
    fn problems(&self, value: &Value) -> Vec<String> {
        let name = &self.declared.name;
        let errors = self.validator.iter_errors(value).take(MAX_PROBLEMS);
        let mut problems: Vec<String> =
            errors.map(|error| format!("{name}{}: {error}", error.instance_path())).collect();
        if !problems.is_empty() {
            problems.push(format!("{name} is expected to be {}", self.kind()));
        }
        problems
    }

    fn kind(&self) -> String {
        kind(&self.declared)
    }
}

/// The kind of an output: the name of its type, or its schema.
pub(super) fn kind(declared: &DeclaredOutput) -> String {
    word_of(&declared.schema).unwrap_or_else(|| format!("of the JSON Schema {}", declared.schema))
}

/// The name of a schema that contains only a type: `integer`, `string[]`.
fn word_of(schema: &Value) -> Option<String> {
    let fields = schema.as_object()?;
    match (fields.get("type")?.as_str()?, fields.get("items")) {
        ("array", Some(items)) if fields.len() == 2 => Some(format!("{}[]", word_of(items)?)),
        (word, None) if fields.len() == 1 => Some(word.to_owned()),
        _ => None,
    }
}

/// Names with their types, for a sentence.
pub(super) fn listed(outputs: &[&DeclaredOutput]) -> String {
    let each: Vec<String> = outputs.iter().map(|output| format!("{} ({})", output.name, kind(output))).collect();
    each.join(", ")
}

/// Why a submission was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The values do not match the declaration.
    Invalid(String),
    /// There is no output of this name.
    Unknown(String),
    /// The task is complete; no value changes any more.
    Late,
}

#[cfg(test)]
mod tests {
    use belay_protocol::{ToolCall, ToolResult};
    use serde_json::json;

    use super::*;

    fn declared(outputs: &[&str]) -> Declared {
        let outputs = outputs.iter().map(|text| DeclaredOutput::parse(text).expect("an output"));
        Declared::compile(outputs.collect()).expect("compiles")
    }

    #[test]
    fn values_are_kept_in_the_order_of_their_declaration() {
        let declared = declared(&["zebra:string", "apple:integer"]);
        assert_eq!((declared.reached(), declared.as_json().as_str()), (false, "{}"));
        assert_eq!(declared.emit("apple", &json!(1)), Ok("apple is accepted; missing: zebra (string)".into()));
        assert_eq!(
            declared.emit("apple", &json!(2)).expect("taken").split(';').next(),
            Some("apple is accepted and replaces its earlier value")
        );
        assert_eq!(declared.emit("zebra", &json!("z")), Ok("zebra is accepted; all outputs are submitted".into()));
        assert_eq!((declared.reached(), declared.as_json().as_str()), (true, r#"{"zebra":"z","apple":2}"#));
        assert_eq!(Value::Object(declared.values()), json!({"zebra": "z", "apple": 2}));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_its_place_and_what_was_expected() {
        let declared = declared(&["n:integer", "list:string[]", r#"s:{"type":"string","maxLength":3}"#]);
        for (name, value, needles) in [
            ("n", json!("7"), vec!["n: \"7\" is not of type \"integer\"", "n is expected to be integer"]),
            ("n", json!(7.5), vec!["7.5"]),
            ("list", json!(["a", 1]), vec!["list/1: 1 is not of type \"string\"", "expected to be string[]"]),
            ("s", json!("long"), vec!["longer than 3", "maxLength"]),
        ] {
            match declared.emit(name, &value) {
                Err(Refused::Invalid(text)) => {
                    for needle in needles {
                        assert!(text.contains(needle), "{needle}: {text}");
                    }
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        for (name, value) in [("n", json!(7)), ("list", json!([])), ("s", json!("abc"))] {
            declared.emit(name, &value).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
        }
        let unknown = Refused::Unknown("no output named \"N\"; declared are: n, list, s".into());
        assert_eq!(declared.emit("N", &json!(7)), Err(unknown));
    }

    #[test]
    fn completing_takes_all_or_nothing_and_names_every_problem() {
        let outputs = declared(&["a:string", "b:integer", "c:boolean"]);
        let object = |value: Value| value.as_object().cloned().expect("an object");
        let Err(Refused::Invalid(text)) = outputs.complete(&object(json!({"b": "x", "c": true, "d": 1}))) else {
            panic!("three things are wrong");
        };
        for needle in ["a is missing (string)", "b: \"x\" is not of type \"integer\"", "not declared: d"] {
            assert!(text.contains(needle), "{needle}: {text}");
        }
        assert_eq!(outputs.missing().len(), 3, "nothing of it was taken");
        let whole = object(json!({"a": "x", "b": 1, "c": false}));
        assert!(outputs.complete(&whole).is_ok() && outputs.reached());
        let other = object(json!({"a": "y", "b": 2, "c": true}));
        assert_eq!(outputs.complete(&other), Err(Refused::Late), "the first success counts");
        assert_eq!(outputs.emit("a", &json!("y")), Err(Refused::Late));
        assert_eq!(outputs.as_json(), r#"{"a":"x","b":1,"c":false}"#);
    }

    #[test]
    fn without_declared_outputs_a_text_that_is_not_blank_is_the_result() {
        let declared = declared(&[]);
        let result = |text: Value| json!({ "result": text }).as_object().cloned().expect("an object");
        for blank in [json!(" \n"), json!(7), Value::Null] {
            assert!(declared.complete(&result(blank)).is_err());
        }
        assert!(!declared.reached());
        assert!(declared.complete(&result(json!(" four "))).is_ok() && declared.reached());
        assert_eq!(declared.result().as_deref(), Some("four"));
    }

    #[test]
    fn what_cannot_be_declared_is_told_all_at_once() {
        let output = |name: &str, schema: Value| DeclaredOutput { name: name.into(), schema, description: None };
        let bad = vec![
            output("1", json!({})),
            output("a", json!({"type": "strin"})),
            output("b", json!({"$ref": "https://example.com/schema.json"})),
            output("c", json!(true)),
            output("d", json!({"type": "string"})),
            output("d", json!({"type": "string"})),
            output("e", json!({"const": "x".repeat(16 * 1024)})),
            output("f", json!({"pattern": "("})),
        ];
        let text = Declared::compile(bad).expect_err("eight mistakes");
        for needle in [
            "\"1\" is no name",
            "a: this is not a usable",
            "b: this",
            "c: a schema",
            "d is declared twice",
            "e: a",
            "f: this",
        ] {
            assert!(text.contains(needle), "{needle}: {text}");
        }
        let local = json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "integer"}}});
        let local = Declared::compile(vec![output("x", local)]).expect("a reference within the schema is fine");
        assert!(local.emit("x", &json!("no")).is_err() && local.emit("x", &json!(1)).is_ok());
        assert!(Declared::compile(vec![output("x", json!({})); MAX_OUTPUTS + 1]).is_err());
    }

    #[test]
    fn a_conversation_gives_back_what_was_emitted_in_it_and_nothing_that_failed() {
        let call = |id: &str, name: &str, arguments: &str| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: Arguments::parse(arguments),
        };
        let result = |id: &str, status| {
            Arc::new(Message::tool(ToolResult { call_id: id.into(), name: "x".into(), status, text: String::new() }))
        };
        let messages = vec![
            Arc::new(Message::assistant_calls(
                "",
                vec![
                    call("1", EMIT_VALUE, r#"{"name":"a","value":"old"}"#),
                    call("2", EMIT_VALUE, r#"{"name":"b","value":1}"#),
                    call("3", "echo", r#"{"name":"b","value":1}"#),
                ],
            )),
            result("1", ToolStatus::Success),
            result("2", ToolStatus::Cancelled),
            result("3", ToolStatus::Success),
            Arc::new(Message::assistant_calls("", vec![call("4", EMIT_VALUE, r#"{"name":"a","value":"new"}"#)])),
            result("4", ToolStatus::Success),
        ];
        let outputs = declared(&["a:string", "b:integer"]);
        outputs.replay(&messages);
        assert_eq!(outputs.as_json(), r#"{"a":"new"}"#);
        let done = Arc::new(Message::assistant_calls("", vec![call("5", COMPLETE_TASK, r#"{"a":"x","b":2}"#)]));
        outputs.replay(&[done, result("5", ToolStatus::Success)]);
        assert_eq!(outputs.as_json(), r#"{"a":"x","b":2}"#);
    }
}
