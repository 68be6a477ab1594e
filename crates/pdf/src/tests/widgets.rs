//! Widgets, the places where a field is shown, and fields that the form does not list.

use pdf_extract::{Dictionary, Document, Object, StringFormat, dictionary};

use super::{MAX_BYTES, PAGE, document, field, fields, lines, name, read, string};

fn widget() -> Dictionary {
    dictionary! { "Subtype" => "Widget" }
}

/// Adds a field with two widgets, which name it as their parent.
fn with_widgets(document: &mut Document, mut field: Dictionary, widgets: [Dictionary; 2]) -> (Object, Vec<Object>) {
    let id = document.new_object_id();
    let link = |mut widget: Dictionary| {
        widget.set("Parent", id);
        document.add_object(widget).into()
    };
    let linked: Vec<Object> = widgets.into_iter().map(link).collect();
    field.set("Kids", linked.clone());
    document.objects.insert(id, field.into());
    (id.into(), linked)
}

fn of_type<'a>(document: &'a mut Document, kind: &str) -> &'a mut Dictionary {
    let mut nodes = document.objects.values_mut().filter_map(|object| object.as_dict_mut().ok());
    nodes.find(|node| node.has_type(kind.as_bytes())).unwrap()
}

fn annotate(document: &mut Document, annotations: Vec<Object>) {
    of_type(document, "Page").set("Annots", annotations);
}

#[test]
fn a_field_is_shown_once_wherever_its_widgets_are_listed() {
    let empty = |bytes: &[u8]| {
        let mut widget = widget();
        widget.set("T", Object::String(bytes.to_vec(), StringFormat::Hexadecimal));
        widget
    };
    for kid in [widget(), empty(b""), empty(b"\xfe\xff"), empty(b" ")] {
        for listed in [&[0, 1, 2][..], &[1, 2, 0], &[1, 2], &[2, 2], &[0]] {
            let form = |document: &mut Document| {
                let (room, widgets) = with_widgets(document, field("room", "7"), [kid.clone(), kid.clone()]);
                annotate(document, widgets.clone());
                let all = [vec![room], widgets].concat();
                dictionary! { "Fields" => listed.iter().map(|place| all[*place].clone()).collect::<Vec<_>>() }
            };
            let (head, text) = read(document(PAGE, form), MAX_BYTES);
            assert_eq!(text, format!("{PAGE}\n\nForm fields:\nroom: 7"), "{kid:?} {listed:?}");
            assert_eq!(head.fields, 1, "{kid:?} {listed:?}");
        }
    }
}

#[test]
fn a_radio_button_that_is_listed_by_its_widgets_shows_the_text_of_its_choice() {
    let got = lines(|document| {
        let widget = |state: &str| {
            let states = dictionary! { state => Object::Null, "Off" => Object::Null };
            dictionary! { "Subtype" => "Widget", "AP" => dictionary! { "N" => states } }
        };
        let options = vec![string("by train"), string("by car")];
        let way =
            dictionary! { "FT" => "Btn", "T" => string("way"), "Ff" => 1 << 15, "V" => name("1"), "Opt" => options };
        let (_, widgets) = with_widgets(document, way, [widget("0"), widget("1")]);
        dictionary! { "Fields" => widgets }
    });
    assert_eq!(got, ["way: by car"]);
}

#[test]
fn a_widget_that_its_field_does_not_list_keeps_its_own_value() {
    let got = lines(|document| {
        let room = document.add_object(dictionary! { "FT" => "Tx", "T" => string("room") });
        fields(document, [dictionary! { "Subtype" => "Widget", "Parent" => room, "V" => string("7") }])
    });
    assert_eq!(got, ["room: 7"]);
}

#[test]
fn fields_of_pages_that_the_form_does_not_list_are_read() {
    let of_page = |document: &mut Document| {
        let mut guest = field("guest", "Ann");
        guest.set("Subtype", "Widget");
        let guest: Object = document.add_object(guest).into();
        let (_, widgets) = with_widgets(document, field("room", "7"), [widget(), widget()]);
        let mut link = field("link", "no field");
        link.set("Subtype", "Link");
        annotate(document, [vec![guest.clone(), link.into(), field("odd", "no widget").into()], widgets].concat());
        guest
    };
    let listed = |document: &mut Document| dictionary! { "Fields" => vec![of_page(document)] };
    assert_eq!(lines(listed), ["guest: Ann", "room: 7"]);
    let unlisted = |document: &mut Document| {
        of_page(document);
        fields(document, [field("first", "1")])
    };
    assert_eq!(lines(unlisted), ["first: 1", "guest: Ann", "room: 7"]);
    let mut without = document(PAGE, unlisted);
    without.catalog_mut().unwrap().remove(b"AcroForm");
    assert_eq!(read(without, MAX_BYTES).1, format!("{PAGE}\n\nForm fields:\nguest: Ann\nroom: 7"));
}

#[test]
fn annotations_that_many_pages_share_end_at_the_limit() {
    let form = |document: &mut Document| {
        let link = Object::Dictionary(dictionary! { "Subtype" => "Link" });
        let shared = document.add_object(Object::Array(vec![link; 1000]));
        let page = of_type(document, "Page");
        page.set("Annots", shared);
        let page = page.clone();
        let pages: Vec<Object> = (0..300).map(|_| document.add_object(page.clone()).into()).collect();
        of_type(document, "Pages").set("Kids", pages);
        fields(document, [field("first", "1")])
    };
    let (head, text) = read(document(PAGE, form), MAX_BYTES);
    assert!(head.is_cut, "{head:?}");
    assert!(text.ends_with("\n\nForm fields:\nfirst: 1\n(The form has more fields, which are not read.)"), "{text}");
}
