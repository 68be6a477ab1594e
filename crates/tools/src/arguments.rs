//! How a tool is declared and how it reads its arguments: one typed struct gives both the schema and the values.

use std::time::Duration;

use belay_protocol::{Effect, ToolFailure, ToolSpec};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Longest result of any tool here. 64 KiB: about 16 000 tokens, a share of a context that leaves room to think.
pub(crate) const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Declares a tool whose arguments are `A`. All tools here may be run twice without harm.
pub(crate) fn spec<A: JsonSchema>(name: &str, description: &str, effect: Effect, timeout: Duration) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: schema_of::<A>(),
        effect,
        idempotent: true,
        timeout,
        max_output_bytes: MAX_OUTPUT_BYTES,
    }
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
        .map_err(|error| ToolFailure::failed(format!("These arguments do not fit: {error}.")))
}
