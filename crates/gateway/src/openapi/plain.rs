//! Schemas in the forms that generators of clients read. They allow the same JSON as those of schemars; only what a
//! generator cannot read, or reads wrongly, is written in another way.

use serde_json::{Map, Value, json};

use super::schemas::SCHEMAS;

/// Rewrites a schema, or a document with schemas in it:
/// - a closed list of words is one `enum`, not a choice between constants;
/// - a default is a sentence: several generators make a field with `default` a required one;
/// - `true` is `{}`, which is an object in every program.
pub(super) fn simplify(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value {
                    // Names of fields, not of keywords: one may be `default`.
                    Value::Object(named) if name == "properties" => named.values_mut().for_each(schema),
                    Value::Bool(true) if name == "additionalProperties" => *value = json!({}),
                    Value::Bool(true) if name == "contentSchema" => *value = json!({}),
                    _ => simplify(value),
                }
            }
            default_as_text(fields);
            closed_list(fields);
        }
        Value::Array(values) => values.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// [`simplify`] where a schema stands, which may be `true`.
fn schema(value: &mut Value) {
    if *value == Value::Bool(true) {
        *value = json!({});
    }
    simplify(value);
}

fn default_as_text(fields: &mut Map<String, Value>) {
    match fields.remove("default") {
        // The default of an object is that of its fields.
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(Value::Array(values)) if values.is_empty() => {}
        Some(Value::String(text)) if text.is_empty() => {}
        Some(Value::String(text)) => describe(fields, " ", &format!("Default: `{text}`.")),
        Some(other) => describe(fields, " ", &format!("Default: `{other}`.")),
    }
}

fn describe(fields: &mut Map<String, Value>, between: &str, more: &str) {
    let text = match fields.get("description").and_then(Value::as_str) {
        Some(text) => format!("{text}{between}{more}"),
        None => more.to_owned(),
    };
    fields.insert("description".into(), text.into());
}

/// Joins the words of a choice to one `enum`.
fn closed_list(fields: &mut Map<String, Value>) {
    let Some(Value::Array(forms)) = fields.get_mut("oneOf") else { return };
    let (mut words, mut lines, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for form in std::mem::take(forms) {
        let own: Vec<Value> = form["enum"].as_array().cloned().unwrap_or_else(|| vec![form["const"].clone()]);
        if form["type"] != "string" || !own.iter().all(Value::is_string) {
            others.push(form);
            continue;
        }
        if let (Some(text), [Value::String(word)]) = (form["description"].as_str(), &own[..]) {
            lines.push(format!("- `{word}`: {}", text.replace('\n', " ")));
        }
        words.extend(own);
    }
    if words.is_empty() {
        *forms = others;
        return;
    }
    if others.is_empty() {
        fields.remove("oneOf");
        fields.insert("type".into(), "string".into());
        fields.insert("enum".into(), words.into());
    } else {
        *forms = [json!({ "type": "string", "enum": words })].into_iter().chain(others).collect();
    }
    if !lines.is_empty() {
        describe(fields, "\n\n", &lines.join("\n"));
    }
}

/// Gives each form of an object that is told by a word a schema of its own, and names the field with the word as the
/// discriminator.
pub(super) fn split(schemas: Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in &schemas {
        let Some((tag, forms)) = tagged(value) else {
            all.insert(name.clone(), value.clone());
            continue;
        };
        let (mut references, mut mapping) = (Vec::new(), Map::new());
        for form in forms {
            let word = form["properties"][tag]["const"].as_str().unwrap_or_default();
            let own = format!("{name}{}", pascal(word));
            assert!(!schemas.contains_key(&own), "two schemas are called {own}");
            references.push(json!({ "$ref": format!("{SCHEMAS}{own}") }));
            mapping.insert(word.into(), format!("{SCHEMAS}{own}").into());
            all.insert(own, joined(&[value, &schemas[target(form, name, &schemas)], form]));
        }
        let mut union = json!({ "oneOf": references, "discriminator": { "propertyName": tag, "mapping": mapping } });
        union["description"] = value["description"].clone();
        all.insert(name.clone(), union);
    }
    all
}

/// The field whose constant tells the forms of an object apart, and the forms.
fn tagged(schema: &Value) -> Option<(&str, &Vec<Value>)> {
    let forms = schema["oneOf"].as_array().filter(|forms| !forms.is_empty())?;
    let constants = |form: &Value, name: &str| form["properties"][name]["const"].is_string();
    let tag = forms[0]["properties"].as_object()?.keys().find(|name| forms.iter().all(|form| constants(form, name)))?;
    Some((tag, forms))
}

/// The name of the schema whose fields a form has too; of the whole itself, if it names none.
fn target<'a>(form: &'a Value, whole: &'a str, schemas: &Map<String, Value>) -> &'a str {
    let named = form["$ref"].as_str().and_then(|target| target.strip_prefix(SCHEMAS));
    named.filter(|name| schemas.contains_key(*name)).unwrap_or(whole)
}

/// The schema of an object with the fields of all these.
fn joined(parts: &[&Value]) -> Value {
    let (mut fields, mut properties, mut required) = (Map::new(), Map::new(), Vec::<Value>::new());
    for part in parts.iter().filter_map(|part| part.as_object()) {
        let plain = |name: &String| !matches!(name.as_str(), "oneOf" | "$ref" | "properties" | "required");
        fields.extend(part.iter().filter(|(name, _)| plain(name)).map(|(name, value)| (name.clone(), value.clone())));
        properties.extend(part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        for name in part.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !required.contains(name) {
                required.push(name.clone());
            }
        }
    }
    fields.extend([("properties".into(), properties.into()), ("required".into(), required.into())]);
    fields.into()
}

/// `run_started` as `RunStarted`.
fn pascal(word: &str) -> String {
    let parts = word.split(['_', '-', '.']).map(|part| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
    });
    parts.collect()
}

/// Names the discriminator of each choice between schemas of objects, if a required field has other words in each.
pub(super) fn discriminate(value: &mut Value, schemas: &Map<String, Value>) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| discriminate(value, schemas));
            if let Some(discriminator) = fields.get("oneOf").and_then(|forms| discriminator(forms, schemas)) {
                fields.entry("discriminator").or_insert(discriminator);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| discriminate(value, schemas)),
        _ => {}
    }
}

fn discriminator(forms: &Value, schemas: &Map<String, Value>) -> Option<Value> {
    let forms: Vec<(&str, &Value)> =
        forms.as_array()?.iter().map(|form| resolved(form, schemas)).collect::<Option<_>>()?;
    let words = |form: &Value, name: &str| -> Option<Vec<Value>> {
        let required = form["required"].as_array()?.iter().any(|required| required == name);
        let field = &form["properties"][name];
        let field = resolved(field, schemas).map_or(field, |(_, target)| target);
        field["enum"].as_array().filter(|_| required).cloned()
    };
    forms[0].1["properties"].as_object()?.keys().find_map(|name| {
        let mut mapping = Map::new();
        for (target, form) in &forms {
            for word in words(form, name)? {
                if mapping.insert(word.as_str()?.into(), (*target).into()).is_some() {
                    return None;
                }
            }
        }
        Some(json!({ "propertyName": name, "mapping": mapping }))
    })
}

/// The target of a reference, and its schema.
fn resolved<'a>(form: &'a Value, schemas: &'a Map<String, Value>) -> Option<(&'a str, &'a Value)> {
    let target = form["$ref"].as_str()?;
    Some((target, schemas.get(target.strip_prefix(SCHEMAS)?)?))
}
