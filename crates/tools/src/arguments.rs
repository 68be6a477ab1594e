//! Declares tools and reads their arguments: one typed struct defines the schema and the values.

use std::time::Duration;

use belay_protocol::{Effect, ToolFailure, ToolSpec};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Declares a tool with arguments of type `A` that is idempotent and needs no approval. Callers override these fields
/// where a tool differs.
pub(crate) fn spec<A: JsonSchema>(name: &str, description: &str, effect: Effect, timeout: Duration) -> ToolSpec {
    ToolSpec { effect, timeout, ..ToolSpec::new(name, description, schema_of::<A>()) }
}

/// The JSON Schema of `A` for models: subschemas inlined; without the meta schema, the title and the description.
fn schema_of<A: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    schema.remove("title");
    schema.remove("description");
    schema.to_value()
}

/// Reads the arguments of a call. The gate has already checked them against the schema; this converts them to the typed
/// struct. The model reads the error.
pub(crate) fn read<A: DeserializeOwned>(arguments: &Map<String, Value>) -> Result<A, ToolFailure> {
    A::deserialize(Value::Object(arguments.clone()))
        .map_err(|error| ToolFailure::failed(format!("The arguments do not match the schema: {error}.")))
}
