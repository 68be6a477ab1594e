#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn of(properties: Value, required: Value) -> Result<Form, String> {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    form("s", &json!({ "message": "Who?", "requestedSchema": schema }))
}

#[test]
fn a_form_is_read_and_its_answers_are_checked() {
    let form = of(
        json!({
            "name": { "type": "string", "minLength": 2, "maxLength": 10 },
            "mail": { "type": "string", "format": "email" },
            "age": { "type": "integer", "minimum": 1, "maximum": 150 },
            "sure": { "type": "boolean", "default": false },
            "size": { "type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"] },
            "colour": { "type": "string", "oneOf": [{ "const": "r", "title": "Red" }] },
            "days": { "type": "array", "items": { "anyOf": [{ "const": "mo" }, { "const": "tu" }] }, "maxItems": 2 },
        }),
        json!(["name", "size"]),
    )
    .unwrap();
    let read = |text: &str| form.read(text).map(Value::Object);
    let whole = "Name: Ann\nmail: a@b.example\nage: 7\nsure: yes\nsize: Medium\ncolour: red\ndays: mo, TU";
    assert_eq!(
        read(whole).unwrap(),
        json!({
            "name": "Ann", "mail": "a@b.example", "age": 7, "sure": true, "size": "m", "colour": "r", "days": ["mo", "tu"],
        })
    );
    assert_eq!(read("- name = Ann\n- size = s").unwrap(), json!({ "name": "Ann", "size": "s", "sure": false }));
    assert_eq!(read(r#"{"name":"Ann","size":"s","age":3.0}"#).unwrap()["age"], 3);
    for (text, why) in [
        ("name: A\nsize: s", "name: it has 1 characters"),
        ("name: Ann", "The field size needs a value."),
        ("name: Ann\nsize: xl", "size: it must be one of s, m."),
        ("name: Ann\nsize: s\nage: 7.5", "age: it must be a whole number."),
        ("name: Ann\nsize: s\nage: 200", "age: it must be from 1 to 150."),
        ("name: Ann\nsize: s\nmail: nobody", "mail: it must be an e-mail address."),
        ("name: Ann\nname: Bob\nsize: s", "The field name is there twice."),
        (r#"{"name":"Ann","size":"s","else":1}"#, "The form has no field else."),
        ("hello there", "That is no answer to the form. Write one line for each field, such as "),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(why), "{text}: {error}");
    }
}

#[test]
fn one_field_takes_the_whole_message() {
    let text = of(json!({ "note": { "type": "string" } }), json!(["note"])).unwrap();
    assert_eq!(Value::Object(text.read("buy: milk\nand bread").unwrap()), json!({ "note": "buy: milk\nand bread" }));
    assert_eq!(Value::Object(text.read("note: milk").unwrap()), json!({ "note": "milk" }));
    assert!(!text.takes_no());
    let sure = of(json!({ "sure": { "type": "boolean" } }), json!(["sure"])).unwrap();
    assert!(sure.takes_no());
    assert_eq!(Value::Object(sure.read("No.").unwrap()), json!({ "sure": false }));
    let nothing =
        form("s", &json!({ "message": "Go?", "requestedSchema": { "type": "object", "properties": {} } })).unwrap();
    assert_eq!(Value::Object(nothing.read("yes").unwrap()), json!({}));
    assert!(nothing.read("perhaps").is_err());
}

#[test]
fn an_empty_default_is_none() {
    for schema in [json!({ "type": "string", "default": "" }), json!({ "enum": ["a", "b"], "default": "" })] {
        assert_eq!(of(json!({ "f": schema }), json!([])).unwrap().fields[0].default, None);
    }
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    for (properties, why) in [
        (json!({ "a": { "type": "object" } }), "the field a has the type object, which no form has"),
        (json!({ "a": {} }), "the field a has no type"),
        (json!({ "a": { "type": "array", "items": { "type": "string" } } }), "the field a is a list of something else"),
        (json!({ "a": { "enum": [1] } }), "the field a has options that are no texts"),
        (json!({ "a": { "enum": [] } }), "the field a has no options"),
        (json!({ "a": { "type": "string", "minLength": 3, "maxLength": 2 } }), "the field a has no possible value"),
        (json!({ "a": { "type": "string", "minLength": 9000 } }), "the field a has no possible value"),
        (json!({ "a": { "type": "number", "minimum": 2, "maximum": 1 } }), "the field a has no possible value"),
        (json!({ "a": { "type": "integer", "minimum": 1.2, "maximum": 1.8 } }), "the field a has no possible value"),
        (json!({ "a": { "type": "array", "items": { "enum": ["x"] }, "minItems": 2 } }), "the field a has no possible"),
        (json!({ "a": { "type": "string", "description": "x".repeat(301) } }), "the field a is described in more"),
        (json!({ "a": { "type": "string", "x": "x".repeat(20_000) } }), "its form is larger than 16 KiB"),
    ] {
        let error = of(properties.clone(), json!([])).unwrap_err();
        assert!(error.starts_with(why), "{properties}: {error}");
    }
    let many: Map<_, _> = (0..33).map(|n| (format!("f{n}"), json!({ "type": "boolean" }))).collect();
    assert!(of(many.into(), json!([])).unwrap_err().contains("more than 32 fields"));
    assert!(of(json!({}), json!(["b"])).unwrap_err().contains("which it does not describe"));
    let of = |params: Value| form("s", &params).unwrap_err();
    assert!(of(json!({ "message": "x".repeat(2001), "requestedSchema": {} })).contains("more than 2000 characters"));
    assert!(of(json!({ "mode": "voice", "message": "x" })).contains("the mode voice is unknown"));
    assert!(of(json!({ "message": "x", "requestedSchema": [] })).contains("no object with fields"));
}

#[test]
fn an_address_is_shown_with_its_host() {
    let of =
        |url: &str| form("s", &json!({ "mode": "url", "message": "m", "url": url })).map(|form| form.url.unwrap().host);
    assert_eq!(of("https://login.example.org/a?b=c").unwrap(), "login.example.org");
    assert_eq!(of("https://bücher.example:8443/").unwrap(), "xn--bcher-kva.example:8443");
    assert_eq!(of("http://127.0.0.1:99/").unwrap(), "127.0.0.1:99");
    for refused in [
        "http://login.example.org/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://bank.example@evil.example/",
        "nothing",
    ] {
        assert!(of(refused).is_err(), "{refused}");
    }
}

#[test]
fn a_form_that_asks_for_a_secret_is_marked() {
    let of = |name: &str| of(json!({ name: { "type": "string" } }), json!([])).unwrap().asks_for_secret;
    assert!(of("password") && of("apiKey".to_lowercase().as_str()) && !of("city"));
}
