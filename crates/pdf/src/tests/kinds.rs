//! The kinds of fields: buttons, lists, signatures, passwords.

use pdf_extract::{Dictionary, Document, Object, dictionary};

use super::{field, line, lines, name, string};

/// Adds a field with others below it. Returns the reference.
fn above(document: &mut Document, mut field: Dictionary, kids: Vec<Dictionary>) -> Object {
    let kids: Vec<Object> = kids.into_iter().map(|kid| document.add_object(kid).into()).collect();
    field.set("Kids", kids);
    document.add_object(field).into()
}

#[test]
fn check_boxes_and_radio_buttons_show_the_name_of_their_state() {
    let button = |value: &str| dictionary! { "FT" => "Btn", "T" => string("b"), "V" => name(value) };
    assert_eq!(line(button("Yes")), ["b: Yes"]);
    assert_eq!(line(button("gr\u{fc}n")), ["b: grün"]);
    assert!(line(button("Off")).is_empty());
    let push = dictionary! { "FT" => "Btn", "T" => string("b"), "Ff" => 1 << 16, "V" => name("Yes") };
    assert!(line(push).is_empty(), "a push button has no state");
    let drawn = dictionary! { "FT" => "Btn", "T" => string("b"), "AS" => name("On") };
    assert_eq!(line(drawn), ["b: On"], "a writer may leave the value out");
    let radio = |field: Dictionary| {
        let widget = |state: &str, shown: &str| {
            let states = dictionary! { state => Object::Null, "Off" => Object::Null };
            dictionary! { "Subtype" => "Widget", "AS" => name(shown), "AP" => dictionary! { "N" => states } }
        };
        lines(|document| {
            let kids = vec![widget("0", "Off"), widget("1", "1")];
            dictionary! { "Fields" => vec![above(document, field, kids)] }
        })
    };
    let options = vec![string("by train"), string("by car")];
    let field = dictionary! { "FT" => "Btn", "T" => string("way"), "Ff" => 1 << 15 };
    assert_eq!(radio(field.clone()), ["way: 1"]);
    let mut with_value = field;
    with_value.set("V", name("1"));
    assert_eq!(radio(with_value.clone()), ["way: 1"]);
    with_value.set("Opt", options);
    assert_eq!(radio(with_value), ["way: by car"]);
}

#[test]
fn choices_show_the_text_of_the_list() {
    let of = |value: Object| {
        let pair = |export: &str, display: &str| Object::Array(vec![string(export), string(display)]);
        let options = vec![pair("de", "Germany"), pair("fr", "France"), string("Other")];
        line(dictionary! { "FT" => "Ch", "T" => string("c"), "V" => value, "Opt" => options })
    };
    assert_eq!(of(string("de")), ["c: Germany"]);
    assert_eq!(of(Object::Array(vec![string("fr"), string("Other")])), ["c: France, Other"]);
    assert_eq!(of(string("typed by hand")), ["c: typed by hand"]);
    assert!(of(Object::Array(Vec::new())).is_empty());
}

#[test]
fn signatures_and_passwords_are_named_and_not_shown() {
    let signature = dictionary! { "Type" => "Sig", "Contents" => string("SECRET") };
    let signed = dictionary! { "FT" => "Sig", "T" => string("s"), "V" => signature };
    assert_eq!(line(signed), ["s [signature field]: signed"]);
    assert!(line(dictionary! { "FT" => "Sig", "T" => string("s") }).is_empty());
    let password = |value: &str| {
        let mut password = field("p", value);
        password.set("Ff", 1 << 13);
        line(password)
    };
    assert_eq!(password("SECRET"), ["p [password field]: a value is there and is not shown"]);
    assert!(password("").is_empty());
}

#[test]
fn a_text_field_cannot_look_like_a_signature() {
    assert_eq!(
        line(field("s", "(signed)\ns [signature field]: signed")),
        ["s: (signed)", "  s [signature field]: signed"]
    );
    assert_eq!(line(field("s [signature field]", "signed")), ["s (signature field): signed"]);
    let mut labelled = field("p", "1");
    labelled.set("TU", string("[password\nfield]: x"));
    assert_eq!(line(labelled), ["(password field): x: 1"]);
}
