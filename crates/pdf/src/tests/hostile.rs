//! Forms that are made to take time, memory or the stack.

use pdf_extract::{Dictionary, Document, Object, Stream, dictionary};

use super::{MAX_BYTES, PAGE, document, field, fields, lines, name, read, string};

const INCOMPLETE: &str = "(The form has more fields, which are not read.)";

#[test]
fn circles_of_kids_and_of_parents_end() {
    let got = lines(|document| {
        let (a, b, c) = (document.new_object_id(), document.new_object_id(), document.new_object_id());
        let good = document.add_object(field("good", "1"));
        let of = |name: &str, kids: Vec<Object>| {
            dictionary! { "T" => string(name), "FT" => "Tx", "V" => string("x"), "Parent" => b, "Kids" => kids }
        };
        document.objects.insert(a, of("a", vec![b.into(), good.into()]).into());
        document.objects.insert(b, of("b", vec![a.into(), b.into()]).into());
        let mut own = field("c", "2");
        own.set("Parent", c);
        document.objects.insert(c, own.into());
        dictionary! { "Fields" => vec![a.into(), c.into()] }
    });
    assert_eq!(got, ["b.a.good: 1", "c: 2"]);
}

#[test]
fn references_in_a_circle_are_no_value() {
    let got = lines(|document| {
        let (a, b) = (document.new_object_id(), document.new_object_id());
        document.objects.insert(a, Object::Reference(b));
        document.objects.insert(b, Object::Reference(a));
        let odd = dictionary! { "T" => a, "FT" => a, "V" => a, "Kids" => a, "Parent" => a, "Opt" => a };
        let odd = document.add_object(odd).into();
        let good = document.add_object(field("good", "1")).into();
        dictionary! { "Fields" => vec![a.into(), odd, good] }
    });
    assert_eq!(got, ["good: 1"]);
}

#[test]
fn a_tree_of_10_000_levels_is_read_to_its_limit() {
    for upwards in [false, true] {
        let got = lines(|document| {
            let mut last = document.add_object(field("deep", "0"));
            for _ in 0..10_000 {
                let key = if upwards { "Parent" } else { "Kids" };
                let link = if upwards { last.into() } else { Object::Array(vec![last.into()]) };
                last = document.add_object(dictionary! { "T" => string("n"), "FT" => "Tx", key => link });
            }
            let good = document.add_object(field("good", "1")).into();
            dictionary! { "Fields" => vec![last.into(), good] }
        });
        // Upwards, the value is too far above to be inherited.
        let expected = if upwards { vec!["good: 1"] } else { vec!["good: 1", INCOMPLETE] };
        assert_eq!(got, expected);
    }
}

#[test]
fn of_100_000_fields_as_many_are_shown_as_the_text_may_have() {
    let all = (0..100_000).map(|number| field(&format!("f{number}"), "1").into());
    let form = |_: &mut Document| dictionary! { "Fields" => all.collect::<Vec<Object>>() };
    let (head, text) = read(document(PAGE, form), MAX_BYTES);
    assert!(head.is_cut && text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 16, "{head:?}: {}", text.len());
    assert!(text.starts_with(PAGE) && text.contains("\nf5000: 1\n"), "{}", &text[..100]);
}

#[test]
fn a_value_of_10_mb_is_cut() {
    let form = |document: &mut Document| fields(document, [field("a", "1"), field("b", &"x".repeat(10_000_000))]);
    let (head, text) = read(document(PAGE, form), MAX_BYTES);
    assert!(head.is_cut && text.len() == MAX_BYTES, "{head:?}: {}", text.len());
    assert!(text.starts_with("Guest form\n\nForm fields:\na: 1\nb: xxx"), "{}", &text[..100]);
}

#[test]
fn many_fields_that_share_a_large_part_end_at_the_limit() {
    // 10,000 fields with one list of 10,000 options, one value that is no text, and one compressed stream.
    let got = lines(|document| {
        let pairs = |number: usize| Object::Array(vec![string(&number.to_string()), string("x")]);
        let options = document.add_object(Object::Array((0..10_000).map(pairs).collect()));
        let nothing = document.add_object(string(&"\u{1}".repeat(1_000_000)));
        let mut packed = Stream::new(Dictionary::new(), vec![0; 10_000_000]);
        packed.compress().unwrap();
        let packed = document.add_object(packed);
        let one = |kind: &str, value: Object| dictionary! { "FT" => name(kind), "V" => value, "Opt" => options };
        let each =
            (0..10_000).flat_map(|_| [one("Ch", string("none")), one("Tx", nothing.into()), one("Tx", packed.into())]);
        let mut form = fields(document, each);
        if let Ok(Object::Array(all)) = form.get_mut(b"Fields") {
            all.insert(0, field("first", "1").into());
        }
        form
    });
    assert_eq!((got.first().map(String::as_str), got.last().map(String::as_str)), (Some("first: 1"), Some(INCOMPLETE)));
}
