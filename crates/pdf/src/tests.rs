//! The filled fields of forms, from the bytes of a file to the text for the model.

mod hostile;
mod kinds;
mod values;
mod widgets;

use pdf_extract::{Dictionary, Document, Object, Stream, dictionary};

use super::{Head, Unreadable, text_of};

/// The words of the page of each file.
const PAGE: &str = "Guest form";
/// The limit of the text.
const MAX_BYTES: usize = 64 * 1024;

fn string(text: &str) -> Object {
    Object::string_literal(text)
}

fn name(text: &str) -> Object {
    Object::Name(text.into())
}

/// A text field.
fn field(name: &str, value: &str) -> Dictionary {
    dictionary! { "FT" => "Tx", "T" => string(name), "V" => string(value) }
}

/// A document with a page; `words`: its text, empty for a scanned page. `form`: adds the fields and returns the form.
fn document(words: &str, form: impl FnOnce(&mut Document) -> Dictionary) -> Document {
    let mut document = Document::with_version("1.7");
    let pages = document.new_object_id();
    let drawn = if words.is_empty() { String::new() } else { format!("BT /F1 18 Tf 20 100 Td ({words}) Tj ET") };
    let contents = document.add_object(Stream::new(Dictionary::new(), drawn.into_bytes()));
    let font = dictionary! {
        "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Helvetica", "Encoding" => "WinAnsiEncoding"
    };
    let page = document.add_object(dictionary! {
        "Type" => "Page", "Parent" => pages, "Contents" => contents,
        "MediaBox" => vec![0.into(), 0.into(), 300.into(), 200.into()],
        "Resources" => dictionary! { "Font" => dictionary! { "F1" => font } }
    });
    let list = dictionary! { "Type" => "Pages", "Kids" => vec![page.into()], "Count" => 1 };
    document.objects.insert(pages, Object::Dictionary(list));
    let form = form(&mut document);
    let catalog = document.add_object(dictionary! { "Type" => "Catalog", "Pages" => pages, "AcroForm" => form });
    document.trailer.set("Root", catalog);
    document
}

/// A form of fields, each an object of its own.
fn fields(document: &mut Document, fields: impl IntoIterator<Item = Dictionary>) -> Dictionary {
    let ids: Vec<Object> = fields.into_iter().map(|field| document.add_object(field).into()).collect();
    dictionary! { "Fields" => ids }
}

fn read(mut document: Document, max_bytes: usize) -> (Head, String) {
    let mut file = Vec::new();
    document.save_to(&mut file).unwrap();
    text_of(&file, 100, max_bytes).unwrap()
}

/// The lines of the form after the text of the page.
fn lines(form: impl FnOnce(&mut Document) -> Dictionary) -> Vec<String> {
    let (_, text) = read(document(PAGE, form), MAX_BYTES);
    let rest = text.strip_prefix(PAGE).unwrap();
    let form = rest.strip_prefix("\n\nForm fields:\n").unwrap_or(rest);
    form.lines().map(str::to_owned).collect()
}

/// The lines of one field.
fn line(one: Dictionary) -> Vec<String> {
    lines(|document| fields(document, [one]))
}

#[test]
fn the_filled_fields_of_a_form_follow_the_text_of_the_pages() {
    let form = |document: &mut Document| {
        fields(document, [field("guest", "Ann Miller"), field("room", "7"), field("notes", "")])
    };
    let (head, text) = read(document(PAGE, form), MAX_BYTES);
    assert_eq!(text, "Guest form\n\nForm fields:\nguest: Ann Miller\nroom: 7");
    assert_eq!(head, Head { pages: 1, read: 1, broken: 0, fields: 2, is_cut: false });
}

#[test]
fn a_form_without_values_and_a_file_without_a_form_have_the_text_of_their_pages() {
    let (head, text) = read(document(PAGE, |document| fields(document, [field("guest", " ")])), MAX_BYTES);
    assert_eq!((head.fields, text.as_str()), (0, PAGE));
    let mut without = document(PAGE, |_| Dictionary::new());
    without.catalog_mut().unwrap().remove(b"AcroForm");
    assert_eq!(read(without, MAX_BYTES).1, PAGE);
}

#[test]
fn a_scanned_form_has_its_fields_alone() {
    let (head, text) = read(document("", |document| fields(document, [field("guest", "Ann")])), MAX_BYTES);
    assert_eq!((head.fields, text.as_str()), (1, "Form fields:\nguest: Ann"));
}

#[test]
fn the_text_of_an_encrypted_form_is_read_if_its_password_is_empty() {
    use pdf_extract::{EncryptionState, EncryptionVersion, Permissions};
    for (user_password, readable) in [("", true), ("secret", false)] {
        let mut document = document(PAGE, |document| fields(document, [field("guest", "Ann")]));
        document.trailer.set("ID", vec![string("0123456789abcdef"), string("0123456789abcdef")]);
        let (owner_password, key_length, permissions) = ("owner", 128, Permissions::all());
        let version =
            EncryptionVersion::V2 { document: &document, owner_password, user_password, key_length, permissions };
        let state = EncryptionState::try_from(version).unwrap();
        document.encrypt(&state).unwrap();
        let mut file = Vec::new();
        document.save_to(&mut file).unwrap();
        let text = text_of(&file, 100, MAX_BYTES).map(|(_, text)| text);
        let expected =
            if readable { Ok(format!("{PAGE}\n\nForm fields:\nguest: Ann")) } else { Err(Unreadable::Encrypted) };
        assert_eq!(text, expected);
    }
}

#[test]
fn a_long_text_leaves_half_of_the_room_to_the_form() {
    let form = |value: &str| document(&"word ".repeat(40), |document| fields(document, [field("a", value)]));
    let (head, text) = read(form("Ann"), 100);
    assert!(head.is_cut && text.len() <= 100, "{text}");
    assert!(text.starts_with("word word") && text.ends_with("\n\nForm fields:\na: Ann"), "{text}");
    let (head, text) = read(form(&"x".repeat(500)), 100);
    assert!(head.is_cut && text.len() <= 100 && text.starts_with("word word"), "{text}");
    assert!(text.matches('x').count() > 30, "{text}");
}

#[test]
fn a_form_with_data_in_xfa_alone_says_so() {
    let xfa = "(The form has data in XFA, which is not read.)";
    let with = |fields: Dictionary| {
        let mut form = fields;
        form.set("XFA", vec![string("datasets"), string("<x/>")]);
        form
    };
    assert_eq!(lines(|_| with(Dictionary::new())), [xfa]);
    assert_eq!(lines(|document| with(fields(document, [field("a", "")]))), [xfa]);
    assert_eq!(lines(|document| with(fields(document, [field("a", "1")]))), ["a: 1"]);
    let (_, scanned) = read(document("", |_| with(Dictionary::new())), MAX_BYTES);
    assert_eq!(scanned, format!("Form fields:\n{xfa}"));
}
