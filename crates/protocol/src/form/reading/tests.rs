#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn form(fields: Value) -> Form {
    serde_json::from_value(json!({ "server": "s", "message": "m", "fields": fields })).unwrap()
}

fn read(form: &Form, text: &str) -> Result<Value, String> {
    form.read(text).map(Value::Object)
}

fn choice(values: &[&str], default: Option<&str>) -> Form {
    let options: Vec<_> = values.iter().map(|value| json!({ "value": value })).collect();
    form(json!([{ "name": "c", "required": true, "default": default, "type": "choice", "options": options }]))
}

#[test]
fn a_yes_that_is_a_value_does_not_stand_for_the_default() {
    let sure = choice(&["yes", "no"], Some("no"));
    assert!(sure.takes_no());
    assert_eq!(read(&sure, "Yes!").unwrap(), json!({ "c": "yes" }));
    assert_eq!(read(&sure, "No.").unwrap(), json!({ "c": "no" }));
    assert!(read(&sure, "approve").is_err(), "the default is a no");
    assert!(read(&choice(&["no", "later"], Some("no")), "yes").is_err(), "the default is a no");
    let note = form(json!([{ "name": "note", "type": "text", "min": 0, "max": 10 }]));
    assert_eq!(read(&note, "yes").unwrap(), json!({ "note": "yes" }));
    let size = choice(&["s", "m"], Some("m"));
    assert!(!size.takes_no());
    assert_eq!(read(&size, "yes").unwrap(), json!({ "c": "m" }));
}

#[test]
fn an_empty_text_is_no_option() {
    let size = choice(&["s", "m"], None);
    for text in ["", "  ", ".", "c: .", r#"{"c":" "}"#, r#"{"c":""}"#] {
        assert!(read(&size, text).is_err(), "{text:?}");
    }
}

#[test]
fn a_line_without_a_name_sets_no_field() {
    let note = form(json!([{ "name": "note", "type": "text", "min": 0, "max": 10 }]));
    assert_eq!(read(&note, ": milk").unwrap(), json!({ "note": ": milk" }));
    assert_eq!(read(&note, "=1+2").unwrap(), json!({ "note": "=1+2" }));
    let two = form(json!([
        { "name": "a", "type": "text", "min": 0, "max": 50 },
        { "name": "b", "title": "A", "type": "text", "min": 0, "max": 50 },
    ]));
    assert!(read(&two, "=====").is_err());
    assert_eq!(read(&two, "b: x\n=====").unwrap(), json!({ "b": "x\n=====" }));
}

#[test]
fn a_name_comes_before_the_title_of_another_field() {
    let swapped = form(json!([
        { "name": "a", "title": "b", "type": "text", "min": 0, "max": 50 },
        { "name": "b", "title": "Third", "type": "text", "min": 0, "max": 50 },
    ]));
    assert_eq!(read(&swapped, "B: x").unwrap(), json!({ "b": "x" }));
    assert_eq!(read(&swapped, "third: x").unwrap(), json!({ "b": "x" }));
}

#[test]
fn a_list_holds_texts_only() {
    let options = json!([{ "value": "mo" }, { "value": "tu" }]);
    let days = form(json!([{ "name": "d", "type": "choices", "options": options, "min": 0, "max": 2 }]));
    assert_eq!(read(&days, r#"{"d":["tu"]}"#).unwrap(), json!({ "d": ["tu"] }));
    assert_eq!(read(&days, r#"{"d":["tu",1]}"#).unwrap_err(), "d: it must be a list of texts.");
}
