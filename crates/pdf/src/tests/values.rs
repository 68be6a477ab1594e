//! The names of fields, and the encodings of their values.

use pdf_extract::{Dictionary, Object, Stream, StringFormat, dictionary};

use super::{field, fields, line, lines, name, string};

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
fn escapes_that_mark_no_language_code_are_text() {
    let of = |text: &str| {
        let value = Object::String(format!("\u{feff}{text}").into_bytes(), StringFormat::Hexadecimal);
        line(dictionary! { "FT" => "Tx", "T" => string("a"), "V" => value })
    };
    assert_eq!(of("\u{1b}deDE\u{1b}Ja, \u{1b}en\u{1b}yes"), ["a: Ja, yes"]);
    for kept in ["7\u{1b} and 8", "7\u{1b}", "\u{1b}deu\u{1b}7", "\u{1b}d1\u{1b}7", "\u{1b}de", "\u{1b}\u{1b}7"] {
        assert_eq!(of(kept), [format!("a: {kept}")], "{kept:?}");
    }
}

#[test]
fn line_ends_of_names_and_of_rich_texts_begin_an_indented_line() {
    for end in ["\r", "\r\n", "\n", "\u{c}", "\u{85}", "\u{2028}"] {
        let state = format!("Yes{end}room: 7");
        let button = dictionary! { "FT" => "Btn", "T" => string("b"), "V" => name(&state) };
        assert_eq!(line(button), ["b: Yes", "  room: 7"], "{end:?}");
    }
    for end in ["&#13;", "&#13;&#10;", "&#x2028;", "&#8232;", "<br/>", "\r"] {
        let rich = string(&format!("<p>Ann{end}room: 7"));
        assert_eq!(
            line(dictionary! { "FT" => "Tx", "T" => string("r"), "RV" => rich }),
            ["r: Ann", "  room: 7"],
            "{end:?}"
        );
    }
}

#[test]
fn further_lines_of_a_value_are_indented_so_that_none_looks_like_a_field() {
    let got = line(field("address", "Main St 1\r\nroom: 7\rNowhere\n"));
    assert_eq!(got, ["address: Main St 1", "  room: 7", "  Nowhere"]);
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
    assert_eq!(of(unreadable), ["a [unreadable value]: a value is there and cannot be read", "b: 2"]);
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
