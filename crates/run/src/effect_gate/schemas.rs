//! The schemas of the tools' arguments. Each is compiled at the first call of its tool: most tools are rarely called, and
//! a compiled schema takes about 15 KiB.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use belay_protocol::{Tool, ToolSet};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Most problems of one call that the model is told.
const MAX_PROBLEMS: usize = 5;

/// The schemas, by the name of the tool. Swapped as a whole when tools are added.
pub(super) struct Schemas(ArcSwap<HashMap<String, Arc<Schema>>>);

struct Schema {
    tool: Arc<dyn Tool>,
    compiled: OnceLock<Result<Validator, String>>,
}

impl Schemas {
    pub(super) fn of(tools: &ToolSet) -> Self {
        Self(ArcSwap::from_pointee(tools.iter().map(Schema::of).collect()))
    }

    /// Adds tools. A tool whose name is in use is ignored.
    pub(super) fn add(&self, tools: &[Arc<dyn Tool>]) {
        self.0.rcu(|known| {
            let mut all = HashMap::clone(known);
            for (name, schema) in tools.iter().map(Schema::of) {
                all.entry(name).or_insert(schema);
            }
            all
        });
    }

    /// The problems of these arguments, for the model. None for a tool that is not in the set: such a tool acts on its run
    /// alone, and checks its arguments itself.
    ///
    /// # Errors
    /// The tool declares an unusable schema, which is a bug of the tool.
    pub(super) fn problems(&self, tool: &str, arguments: &Value) -> Result<Vec<String>, String> {
        let Some(schema) = self.0.load().get(tool).cloned() else { return Ok(Vec::new()) };
        let compile = || compile(&schema.tool.spec().schema).map_err(|error| error.to_string());
        let validator = schema.compiled.get_or_init(compile);
        let validator =
            validator.as_ref().map_err(|detail| format!("the tool {tool} declares an unusable schema: {detail}"))?;
        Ok(validator.iter_errors(arguments).take(MAX_PROBLEMS).map(|error| text(&error)).collect())
    }
}

impl Schema {
    fn of(tool: &Arc<dyn Tool>) -> (String, Arc<Self>) {
        (tool.spec().name.clone(), Arc::new(Self { tool: tool.clone(), compiled: OnceLock::new() }))
    }
}

/// Compiles a schema. Its patterns take linear time for any text. A format is an annotation, as in the dialect of MCP:
/// servers accept more than its RFC, for example a time without an offset.
fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    let options = jsonschema::options().offline().should_validate_formats(false);
    options.with_pattern_options(PatternOptions::regex()).build(schema)
}

fn text(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use belay_protocol::{ToolContext, ToolOutput, ToolSpec};
    use serde_json::{Map, json};

    use super::*;

    struct Bell(ToolSpec);

    #[async_trait]
    impl Tool for Bell {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        async fn call(&self, _: &Map<String, Value>, _: &ToolContext) -> ToolOutput {
            Ok("rang".into())
        }
    }

    #[test]
    fn a_pattern_takes_linear_time_and_a_format_is_no_problem() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": { "a": { "pattern": "^(a+)+$" }, "at": { "format": "date-time" } },
        });
        let schemas = Schemas::of(&ToolSet::new(vec![Arc::new(Bell(ToolSpec::new("bell", "rings", schema))) as _]));
        let problems =
            schemas.problems("bell", &json!({ "a": format!("{}b", "a".repeat(5000)), "at": "2026-11-29T04:00" }));
        let problems = problems.expect("a usable schema");
        assert!(matches!(&problems[..], [one] if one.contains("does not match \"^(a+)+$\"")), "{problems:?}");
    }

    #[test]
    fn problems_name_their_place_and_an_unusable_schema_names_its_tool() {
        let bell = |name: &str, schema| -> Arc<dyn Tool> { Arc::new(Bell(ToolSpec::new(name, "rings", schema))) };
        let times = json!({ "type": "object", "properties": { "times": { "type": "integer" } } });
        let schemas = Schemas::of(&ToolSet::new(vec![bell("bell", times), bell("broken", json!({ "type": 7 }))]));
        assert_eq!(schemas.problems("bell", &json!({ "times": 2 })), Ok(vec![]));
        let problems = schemas.problems("bell", &json!({ "times": "two" })).expect("a usable schema");
        assert!(matches!(&problems[..], [one] if one.starts_with("/times: ")), "{problems:?}");
        let fault = schemas.problems("broken", &json!({})).expect_err("an unusable schema");
        assert!(fault.starts_with("the tool broken declares an unusable schema: "), "{fault}");
        assert_eq!(schemas.problems("whistle", &json!({})), Ok(vec![]));

        let strict = json!({ "type": "object", "required": ["tune"] });
        schemas.add(&[bell("whistle", strict.clone()), bell("bell", strict)]);
        assert_eq!(schemas.problems("whistle", &json!({})).expect("a usable schema").len(), 1, "it was added");
        assert_eq!(schemas.problems("bell", &json!({ "times": 2 })), Ok(vec![]), "the first one stays");
    }
}
