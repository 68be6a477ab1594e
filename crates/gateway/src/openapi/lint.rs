//! What generators of clients need of the document. tests/clients/generated_clients.py has them make clients of it.

use serde_json::{Map, Value};

use super::document::document;

/// Streams name the form of each event beside it; no field tells them apart.
const TOLD_BY_EVENT: [&str; 3] = ["StreamedAgentEvent", "StreamedFact", "StreamedFactOrDelta"];

/// Calls `see` with each object of the document and its path.
fn walk(value: &Value, path: &str, see: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            see(path, fields);
            fields.iter().for_each(|(name, value)| walk(value, &format!("{path}/{name}"), see));
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(at, value)| walk(value, &format!("{path}/{at}"), see))
        }
        _ => {}
    }
}

/// The places at which `wrong` says what is wrong.
fn found(wrong: impl Fn(&Value, &str, &Map<String, Value>) -> Option<String>) -> Vec<String> {
    let (document, mut found) = (document(), Vec::new());
    walk(&document, "", &mut |path, fields| {
        found.extend(wrong(&document, path, fields).map(|what| format!("{path}: {what}")));
    });
    found
}

#[test]
fn no_schema_is_true_and_a_schema_of_any_json_says_what_it_is() {
    let wrong = found(|_, path, fields| {
        let is_named = ["/properties", "/schemas", "/$defs"].iter().any(|end| path.ends_with(end));
        let places = ["schema", "items", "additionalProperties", "contentSchema"];
        let schemas = fields.iter().filter(|(name, _)| is_named || places.contains(&name.as_str()));
        let mut bad = schemas.filter(|(name, schema)| match schema {
            Value::Object(fields) => fields.is_empty() && *name != "additionalProperties",
            Value::Bool(allowed) => *allowed || *name != "additionalProperties",
            _ => false,
        });
        bad.next().map(|(name, schema)| format!("{name} is {schema}"))
    });
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_closed_list_of_words_is_one_enum() {
    let wrong = found(|_, _, fields| {
        let forms = fields.get("oneOf").or_else(|| fields.get("anyOf"))?.as_array()?;
        let words = forms.iter().filter(|form| form["const"].is_string() || form["enum"].is_array()).count();
        (words > 1 || forms.iter().any(|form| form["const"].is_string())).then(|| "a choice between words".to_owned())
    });
    assert_eq!(wrong, Vec::<String>::new());
    let wrong = found(|_, _, fields| {
        let mut words: Vec<_> = fields.get("enum")?.as_array()?.iter().map(Value::to_string).collect();
        let (before, kind) = (words.len(), fields.get("type"));
        words.sort();
        words.dedup();
        (before == 0 || before != words.len() || kind.is_none_or(|kind| kind != "string")).then(|| format!("{words:?}"))
    });
    assert_eq!(wrong, Vec::<String>::new());
    // A text whose description begins with words in backticks has them as its list.
    let wrong = found(|_, path, fields| {
        let text = fields.get("description").and_then(Value::as_str)?;
        let is_list = text.starts_with('`') && (text.contains("` or `") || text.starts_with("`ok`"));
        let is_open = fields.get("type").is_some_and(|kind| kind == "string") && !fields.contains_key("enum");
        (is_list && is_open && path.contains("/properties/")).then(|| text.to_owned())
    });
    assert_eq!(wrong, ["/components/schemas/FreezePart/properties/person"; 0]);
}

#[test]
fn a_choice_between_objects_has_a_discriminator() {
    let wrong = found(|document, path, fields| {
        let forms = fields.get("oneOf").or_else(|| fields.get("anyOf"))?.as_array()?;
        let target = |form: &Value| document.pointer(form["$ref"].as_str()?.strip_prefix('#')?).cloned();
        let forms: Vec<Value> = forms.iter().map(|form| target(form).unwrap_or_else(|| form.clone())).collect();
        let is_object =
            |form: &&Value| form["type"] == "object" || form.get("oneOf").is_some() || form.get("anyOf").is_some();
        let objects = forms.iter().filter(is_object).count();
        if objects < 2 || TOLD_BY_EVENT.iter().any(|name| path.ends_with(name)) {
            return None;
        }
        let Some(discriminator) = fields.get("discriminator") else { return Some("no discriminator".into()) };
        let field = discriminator["propertyName"].as_str()?;
        let mut mapped = discriminator["mapping"].as_object()?.values().filter_map(Value::as_str);
        let required =
            |form: &Value| form["required"].as_array().is_some_and(|names| names.iter().any(|name| name == field));
        let resolves = mapped.all(|target| document.pointer(target.trim_start_matches('#')).is_some_and(&required));
        (!forms.iter().all(required) || !resolves).then(|| format!("{field} is not in each form"))
    });
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn no_field_has_a_default_which_generators_take_for_required() {
    let wrong = found(|_, path, fields| {
        (!path.ends_with("/properties")).then(|| fields.get("default")).flatten().map(|default| default.to_string())
    });
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_error_has_the_schema_of_errors_and_every_answer_one_schema() {
    let document = document();
    for (path, operation) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in operation.as_object().into_iter().flatten() {
            let place = format!("{method} {path}");
            assert!(operation["operationId"].is_string(), "{place} has no operationId");
            for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
                let target = answer["$ref"].as_str().map(|target| target.trim_start_matches('#'));
                let answer = target.map_or(answer, |target| document.pointer(target).unwrap_or(answer));
                let schema = &answer["content"]["application/json"]["schema"];
                let is_error = status.starts_with(['4', '5']) && !["/readyz", "/startupz"].contains(&path.as_str());
                let form = match path.as_str() {
                    path if path.starts_with("/v1/messages") => "AnthropicErrorBody",
                    path if path.starts_with("/v1/") => "OpenAiErrorBody",
                    _ => "ErrorBody",
                };
                let expected = format!("#/components/schemas/{form}");
                assert!(!is_error || schema["$ref"] == expected, "{place} {status}: {schema}");
                assert!(schema.get("anyOf").is_none() && schema.get("allOf").is_none(), "{place} {status}: {schema}");
            }
        }
    }
}

#[test]
fn every_example_is_valid() {
    let wrong = found(|_, _, fields| {
        let examples = fields.get("examples")?.as_array()?;
        let schema = Value::Object(fields.clone());
        let mut options = jsonschema::draft202012::options();
        options = options.should_validate_formats(true);
        let validator = options.build(&schema).ok()?;
        examples.iter().find(|example| !validator.is_valid(example)).map(Value::to_string)
    });
    assert_eq!(wrong, Vec::<String>::new());
}
