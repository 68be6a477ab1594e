//! How a tool is declared and how it reads its arguments: one typed struct gives both the schema and the values.

use std::time::Duration;

use belay_protocol::{Effect, ToolFailure, ToolSpec};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Declares a tool whose arguments are `A`, which may be run twice without harm and asks nobody. Other tools change
/// those fields.
pub(crate) fn spec<A: JsonSchema>(name: &str, description: &str, effect: Effect, timeout: Duration) -> ToolSpec {
    ToolSpec { effect, timeout, ..ToolSpec::new(name, description, schema_of::<A>()) }
}

/// The schema as models like it: everything in place, and without the words that only tools for schemas read.
fn schema_of<A: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    schema.remove("title");
    schema.remove("description");
    schema.to_value()
}

/// Reads the arguments of a call. The gate has checked them against the schema; this is the second look that makes the
/// types true, and it speaks to the model as well.
pub(crate) fn read<A: DeserializeOwned>(arguments: &Map<String, Value>) -> Result<A, ToolFailure> {
    A::deserialize(Value::Object(arguments.clone()))
        .map_err(|error| ToolFailure::failed(format!("The arguments do not match the schema: {error}.")))
}
