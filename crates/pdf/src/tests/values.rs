//! The kinds of fields, their names, and the encodings of their values.

use pdf_extract::{Dictionary, Document, Object, Stream, StringFormat, dictionary};

use super::{field, fields, line, lines, name, string};

/// Adds a field with others below it. Returns the reference.
fn above(document: &mut Document, mut field: Dictionary, kids: Vec<Dictionary>) -> Object {
    let kids: Vec<Object> = kids.into_iter().map(|kid| document.add_object(kid).into()).collect();
    field.set("Kids", kids);
    document.add_object(field).into()
}

#[test]
fn names_are_joined_by_dots_and_kind_flags_and_value_are_inherited() {
    let got = lines(|document| {
        let leaf = dictionary! { "T" => string("first") };
        let own = dictionary! { "T" => string("last"), "V" => string("Miller") };
        let person = document.add_object(leaf).into();
        let own = document.add_object(own).into();
        let group = dictionary! { "T" => string("name"), "Kids" => vec![person, own] };
        let group = document.add_object(group);
        let top =
            dictionary! { "T" => string("guest"), "FT" => "Tx", "V" => string("Ann"), "Kids" => vec![group.into()] };
        dictionary! { "Fields" => vec![document.add_object(top).into()] }
    });
    assert_eq!(got, ["guest.name.first: Ann", "guest.name.last: Miller"]);
}

#[test]
fn a_field_that_is_listed_without_its_parent_still_has_the_names_above_it() {
    let got = lines(|document| {
        let top = document.add_object(dictionary! { "T" => string("guest"), "FT" => "Btn" });
        fields(document, [dictionary! { "T" => string("agrees"), "Parent" => top, "V" => name("Yes") }])
    });
    assert_eq!(got, ["guest.agrees: Yes"]);
}

#[test]
fn the_label_that_a_person_saw_is_preferred_to_the_name() {
    let mut with_label = field("f1_01[0]", "Ann");
    with_label.set("TU", string("Name of\nthe guest: "));
    assert_eq!(line(with_label), ["Name of the guest: Ann"]);
    let mut blank = field("f1", "Ann");
    blank.set("TU", string(" "));
    assert_eq!(line(blank), ["f1: Ann"]);
    assert_eq!(line(dictionary! { "FT" => "Tx", "V" => string("Ann") }), ["(unnamed): Ann"]);
    let long = line(field(&"n".repeat(1000), "Ann"));
    assert_eq!(long, [format!("{}…: Ann", "n".repeat(200))]);
}

#[test]
fn values_are_read_in_each_encoding() {
    let of = |bytes: &[u8]| {
        let value = Object::String(bytes.to_vec(), StringFormat::Hexadecimal);
        line(dictionary! { "FT" => "Tx", "T" => string("a"), "V" => value })
    };
    assert_eq!(of(b"\xa0 5 \x84 caf\xe9 \x93fin"), ["a: € 5 — café ﬁfin"]);
    assert_eq!(of(b"\xfe\xff\x04\x10\xd8\x3d\xde\x00"), ["a: А😀"]);
    assert_eq!(of(b"\xfe\xff\x00\x1b\x00d\x00e\x00\x1b\x00J\x00a"), ["a: Ja"], "a language code is no text");
    assert_eq!(of(b"\xfe\xff\x00A\xd8\x3d"), ["a: A\u{fffd}"], "half a character costs that character");
    assert_eq!(of(b"\xff\xfeA\0"), ["a: A"]);
    assert_eq!(of("\u{feff}Ünal".as_bytes()), ["a: Ünal"]);
}

#[test]
fn further_lines_of_a_value_are_indented_so_that_none_looks_like_a_field() {
    let got = line(field("address", "Main St 1\r\nroom: 7\rNowhere\n"));
    assert_eq!(got, ["address: Main St 1", "  room: 7", "  Nowhere"]);
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
    assert_eq!(line(signed), ["s: (signed)"]);
    assert!(line(dictionary! { "FT" => "Sig", "T" => string("s") }).is_empty());
    let password = |value: &str| {
        let mut password = field("p", value);
        password.set("Ff", 1 << 13);
        line(password)
    };
    assert_eq!(password("SECRET"), ["p: (a value is there and is not shown, because it is a password)"]);
    assert!(password("").is_empty());
}

#[test]
fn a_rich_text_is_read_if_there_is_no_plain_one() {
    let rich = "<?xml version=\"1.0\"?><body><p>Ann &amp; <b>Bob</b></p><p>&#x41;&#66; &lt;c&gt; &nope; &</p></body>";
    let mut field = dictionary! { "FT" => "Tx", "T" => string("r"), "RV" => string(rich) };
    assert_eq!(line(field.clone()), ["r: Ann & Bob", "  AB <c> &nope; &"]);
    field.set("V", string("plain"));
    assert_eq!(line(field), ["r: plain"]);
}

#[test]
fn a_value_may_be_a_stream_and_one_that_cannot_be_read_costs_itself_alone() {
    let of = |stream: Stream| {
        lines(|document| {
            let value = document.add_object(stream);
            fields(document, [dictionary! { "FT" => "Tx", "T" => string("a"), "V" => value }, field("b", "2")])
        })
    };
    let mut packed = Stream::new(Dictionary::new(), b"Ann ".repeat(100));
    packed.compress().unwrap();
    assert_eq!(of(packed), [format!("a: {}", "Ann ".repeat(100).trim_end()), "b: 2".to_owned()]);
    let unreadable = Stream::new(dictionary! { "Filter" => "JBIG2Decode" }, vec![1, 2, 3]);
    assert_eq!(of(unreadable), ["a: (a value is there and cannot be read)", "b: 2"]);
}

#[test]
fn broken_fields_cost_themselves_alone() {
    let got = lines(|document| {
        let good = document.add_object(field("good", "1")).into();
        let dead = Object::Reference((9999, 0));
        let odd = dictionary! { "T" => 5, "FT" => string("Tx"), "V" => Object::Reference((9999, 0)), "Kids" => 7 };
        dictionary! { "Fields" => vec![dead, Object::Null, Object::Integer(3), odd.into(), good] }
    });
    assert_eq!(got, ["good: 1"]);
    assert!(lines(|_| dictionary! { "Fields" => 5 }).is_empty());
}
