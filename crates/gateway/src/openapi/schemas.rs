//! The schemas of requests and responses, by schemars.

use std::collections::BTreeSet;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use super::plain;

/// Where the references to schemas of requests point before [`Schemas::finish`].
const INPUTS: &str = "#/components/inputs/";

/// Where all references point in the document.
pub(super) const SCHEMAS: &str = "#/components/schemas/";

/// A query parameter: its name, its schema, and whether it is required.
pub(super) type Parameter = (String, Value, bool);

/// Collects the schemas. A type may be written in another form than it is read: a field with a default is optional in
/// a request and always present in a response. So there are two sets.
pub(crate) struct Schemas {
    inputs: SchemaGenerator,
    outputs: SchemaGenerator,
}

impl Schemas {
    pub(crate) fn new() -> Self {
        let settings = |path: &'static str| {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = path.into();
                settings.meta_schema = None;
            })
        };
        Self {
            inputs: settings("/components/inputs").for_deserialize().into_generator(),
            outputs: settings("/components/schemas").for_serialize().into_generator(),
        }
    }

    /// The schema of a type in requests.
    pub(crate) fn input<T: JsonSchema>(&mut self) -> Value {
        self.inputs.subschema_for::<T>().to_value()
    }

    /// The schema of a type in responses.
    pub(crate) fn output<T: JsonSchema>(&mut self) -> Value {
        self.outputs.subschema_for::<T>().to_value()
    }

    /// The properties of a type with query parameters, and which of them are required.
    pub(super) fn parameters<T: JsonSchema>(&mut self) -> Vec<Parameter> {
        let mut schema = T::json_schema(&mut self.inputs).to_value();
        let required: BTreeSet<_> = names(&schema["required"]).collect();
        let properties = schema["properties"].as_object_mut().map(std::mem::take).unwrap_or_default();
        properties
            .into_iter()
            .map(|(name, schema)| (name.clone(), not_null(schema), required.contains(&name)))
            .collect()
    }

    /// All schemas. A type whose two forms differ is in it twice, as `Name` and `NameInput`; the references in
    /// `document` are changed accordingly. Both get the [forms](plain) that generators of clients read.
    pub(crate) fn finish(mut self, document: &mut Value) -> Map<String, Value> {
        let mut schemas = self.outputs.take_definitions(true);
        let inputs = self.inputs.take_definitions(true);
        let differ = differing(&inputs, &schemas);
        rename(document, &differ);
        for (name, mut schema) in inputs {
            rename(&mut schema, &differ);
            let name = if differ.contains(&name) { format!("{name}Input") } else { name };
            schemas.insert(name, schema);
        }
        plain::simplify(document);
        schemas.values_mut().for_each(plain::simplify);
        let schemas = plain::split(schemas);
        plain::discriminate(document, &schemas);
        schemas
    }
}

/// The names of the types whose two forms differ, or refer to such a type.
fn differing(inputs: &Map<String, Value>, outputs: &Map<String, Value>) -> BTreeSet<String> {
    let mut differ = BTreeSet::new();
    loop {
        let before = differ.len();
        for (name, input) in inputs {
            let mut input = input.clone();
            rename(&mut input, &differ);
            if outputs.get(name).is_some_and(|output| *output != input) {
                differ.insert(name.clone());
            }
        }
        if differ.len() == before {
            return differ;
        }
    }
}

/// Changes the references to schemas of requests into those of the document.
fn rename(value: &mut Value, differ: &BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get_mut("$ref")
                && let Some(name) = target.strip_prefix(INPUTS)
            {
                let suffix = if differ.contains(name) { "Input" } else { "" };
                *target = format!("{SCHEMAS}{name}{suffix}");
            }
            fields.values_mut().for_each(|value| rename(value, differ));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, differ)),
        _ => {}
    }
}

fn names(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned))
}

/// A query parameter is absent or has a value; it is never `null`.
fn not_null(mut schema: Value) -> Value {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = &types[..] {
            schema["type"] = only.clone();
        }
    }
    if let Some(Value::Array(forms)) = schema.get_mut("anyOf") {
        forms.retain(|form| form["type"] != "null");
        if let [only] = &forms[..] {
            let (only, description) = (only.clone(), schema.get("description").cloned());
            schema = only;
            if let (Some(fields), Some(description)) = (schema.as_object_mut(), description) {
                fields.insert("description".into(), description);
            }
        }
    }
    schema
}
