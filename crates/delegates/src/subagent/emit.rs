//! The tools that submit the outputs of a run: `emit_value` for one value, `complete_task` for all at once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::INVALID_ARGUMENTS;
use belay_protocol::{DeclaredOutput, SchemaForm, TextFormat, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

use super::outputs::{Declared, Refused, kind};
use super::shapes;

use belay_run::own_tools::{COMPLETE_TASK, EMIT_VALUE};

/// Longest result of these tools, in bytes. 4 KiB: five problems for each of a few outputs.
const MAX_RESULT_BYTES: usize = 4096;

/// The tools of a run with these outputs. Without declared outputs there is no `emit_value`.
pub(super) fn tools(declared: &Arc<Declared>) -> Vec<Arc<dyn Tool>> {
    let complete: Arc<dyn Tool> = Arc::new(CompleteTask { spec: complete_spec(declared), declared: declared.clone() });
    if declared.is_empty() {
        return vec![complete];
    }
    vec![complete, Arc::new(EmitValue { spec: emit_spec(declared), declared: declared.clone() })]
}

/// Returns whether a tool exists only to submit declared outputs.
pub(crate) fn is_own(name: &str) -> bool {
    matches!(name, EMIT_VALUE | COMPLETE_TASK)
}

struct EmitValue {
    spec: ToolSpec,
    declared: Arc<Declared>,
}

struct CompleteTask {
    spec: ToolSpec,
    declared: Arc<Declared>,
}

fn spec(name: &str, description: String, schema: Value) -> ToolSpec {
    let timeout = Duration::from_secs(1); // it waits for nothing
    // The schema has those of the declared outputs.
    ToolSpec {
        timeout,
        schema_form: SchemaForm::Whole,
        max_output_bytes: MAX_RESULT_BYTES,
        ..ToolSpec::new(name, description, schema)
    }
}

fn emit_spec(declared: &Declared) -> ToolSpec {
    let outputs: Vec<String> = declared.declarations().map(said).collect();
    spec(
        EMIT_VALUE,
        "Submits one of the declared outputs. Submitting a name again replaces its value. When all of them are \
         submitted, the task is complete."
            .into(),
        json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "enum": declared.names(), "description": "which output" },
                "value": { "description": format!("its value: {}", outputs.join("; ")) },
            },
            "required": ["name", "value"],
            "additionalProperties": false,
        }),
    )
}

fn complete_spec(declared: &Declared) -> ToolSpec {
    if declared.is_empty() {
        return spec(
            COMPLETE_TASK,
            "Submits the result and ends the task.".into(),
            json!({
                "type": "object",
                "properties": {
                    "result": { "type": "string", "minLength": 1, "description": "the complete result of the task" },
                },
                "required": ["result"],
                "additionalProperties": false,
            }),
        );
    }
    spec(COMPLETE_TASK, "Submits all declared outputs at once and ends the task.".into(), schema_of_all(declared))
}

fn schema_of_all(declared: &Declared) -> Value {
    let properties: Map<String, Value> =
        declared.declarations().map(|output| (output.name.clone(), property(output))).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": declared.names(),
        "additionalProperties": false,
    })
}

/// The form of a text that submits all outputs: the value of the only output if it is an object, else the object of all.
pub(super) fn format(declared: &Declared) -> Option<TextFormat> {
    let mut outputs = declared.declarations();
    let (first, rest) = (outputs.next()?, outputs.next());
    let is = |kind: &str| first.schema.get("type").is_some_and(|given| given == kind);
    match rest {
        None if is("object") => Some(TextFormat { name: first.name.clone(), schema: first.schema.clone() }),
        // Without a type, an object of all outputs may itself be a value.
        None if first.schema.get("type").is_none_or(|given| !given.is_string()) => None,
        _ => Some(TextFormat { name: "outputs".into(), schema: schema_of_all(declared) }),
    }
}

/// The schema of an output as a property of the tool's arguments.
fn property(output: &DeclaredOutput) -> Value {
    // A reference points into the schema that contains it, and would point elsewhere in the tool's schema.
    if output.schema.to_string().contains("\"$ref\"") {
        return json!({ "description": said(output) });
    }
    let mut schema = output.schema.clone();
    if let (Some(schema), Some(description)) = (schema.as_object_mut(), &output.description) {
        schema.insert("description".into(), description.clone().into());
    }
    schema
}

/// An output as a phrase: `score (integer): how good it is`.
pub(super) fn said(output: &DeclaredOutput) -> String {
    let what = format!("{} ({})", output.name, kind(output));
    match &output.description {
        Some(description) => format!("{what}: {description}"),
        None => what,
    }
}

#[async_trait]
impl Tool for EmitValue {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        self.declared.emit_all(arguments).map(Into::into).map_err(failure)
    }

    fn repaired(&self, raw: &str) -> Option<Map<String, Value>> {
        shapes::wrapped(raw)
    }
}

#[async_trait]
impl Tool for CompleteTask {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        self.declared.complete(arguments).map(Into::into).map_err(failure)
    }

    fn repaired(&self, raw: &str) -> Option<Map<String, Value>> {
        shapes::wrapped(raw)
    }
}

fn invalid(what: &str) -> ToolFailure {
    ToolFailure::failed(format!("{INVALID_ARGUMENTS}: {what}"))
}

fn failure(refused: Refused) -> ToolFailure {
    match refused {
        Refused::Invalid(what) | Refused::Unknown(what) => invalid(&what),
        Refused::Late => ToolFailure::failed("the task is already complete; this call changes nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_completion_has_one_required_property_for_each_output() {
        let outputs = ["b:integer=how many", r##"r:{"$ref":"#/$defs/x","$defs":{"x":{"type":"integer"}}}"##];
        let outputs = outputs.iter().map(|text| DeclaredOutput::parse(text).expect("an output")).collect();
        let tools = tools(&Arc::new(Declared::compile(outputs).expect("compiles")));
        let names: Vec<_> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        assert_eq!(names, [COMPLETE_TASK, EMIT_VALUE]);
        let schema = &tools[0].spec().schema;
        assert_eq!(schema["required"], json!(["b", "r"]));
        assert_eq!(schema["properties"]["b"], json!({ "type": "integer", "description": "how many" }));
        assert!(schema["properties"]["r"].get("$ref").is_none(), "{schema}");
        assert_eq!(tools[1].spec().schema["properties"]["name"]["enum"], json!(["b", "r"]));
        for tool in &tools {
            assert_eq!(tool.spec().schema["additionalProperties"], false);
        }
    }
}
