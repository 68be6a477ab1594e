//! The value of a field, as a person sees it.
//!
//! Source: ISO 32000-2, 12.7.5 (kinds of fields).

use pdf_extract::{Dictionary, Object};

use super::field::Field;
use super::source::Source;
use super::words;

/// A value for the model.
pub(super) enum Shown {
    /// The words of the file.
    Text(String),
    /// A mark that follows the label, and words of Belay. A value alone cannot look like it.
    Note(&'static str, &'static str),
}

/// A signature field that is signed. The signature is not verified.
const SIGNED: Shown = Shown::Note("[signature field]", "signed");
/// A password field that is filled in.
const PASSWORD: Shown = Shown::Note("[password field]", "a value is there and is not shown");
/// A value that is no text, or larger than what is read.
const UNREADABLE: Shown = Shown::Note("[unreadable value]", "a value is there and cannot be read");

/// The flag of a text field for a password: bit 14.
const IS_PASSWORD: i64 = 1 << 13;
/// The flag of a button that has no state: bit 17.
const IS_PUSH_BUTTON: i64 = 1 << 16;

/// The state of a button that is not chosen.
const OFF: &[u8] = b"Off";

/// The value of a field; `None` if nothing was filled in.
pub(super) fn shown<'a>(source: &mut Source<'a>, field: &Field<'a>) -> Option<Shown> {
    let value = field.value.or_else(|| of_kids(source, field, b"V"));
    match (field.kind, value) {
        (Some(b"Sig"), Some(Object::Dictionary(_))) => Some(SIGNED),
        (Some(b"Sig"), _) => None,
        (Some(b"Btn"), value) => state(source, field, value).map(Shown::Text),
        (Some(b"Ch"), Some(value)) | (None, Some(value @ Object::Array(_))) => {
            choice(source, field, value).map(Shown::Text)
        }
        (None, Some(value @ Object::Name(_))) => state(source, field, Some(value)).map(Shown::Text),
        (_, value) => typed(source, field, value),
    }
}

/// An entry of the first widget that has it. Some writers put the value there.
fn of_kids<'a>(source: &mut Source<'a>, field: &Field<'a>, key: &[u8]) -> Option<&'a Object> {
    field.kids.iter().find_map(|kid| {
        let kid = source.step().then(|| source.resolved(kid))??;
        source.get(kid.as_dict().ok()?, key)
    })
}

fn typed<'a>(source: &mut Source<'a>, field: &Field<'a>, value: Option<&'a Object>) -> Option<Shown> {
    let text = match value {
        Some(value) => source.text(value),
        None => {
            let rich = source.get(field.node, b"RV")?;
            source.text(rich).map(|markup| words::of_rich(&markup))
        }
    };
    match text {
        Some(text) if text.trim().is_empty() => None,
        _ if field.flags & IS_PASSWORD != 0 => Some(PASSWORD),
        Some(text) => Some(Shown::Text(text)),
        None => Some(UNREADABLE),
    }
}

/// A label in which no words look like a mark.
pub(super) fn without_marks(label: &str) -> String {
    [SIGNED, PASSWORD, UNREADABLE].iter().fold(label.to_owned(), |label, shown| match shown {
        Shown::Note(mark, _) => label.replace(mark, &mark.replace('[', "(").replace(']', ")")),
        Shown::Text(_) => label,
    })
}

/// The name of a check box's or a radio button's state, or the text that the field has for that button.
fn state<'a>(source: &mut Source<'a>, field: &Field<'a>, value: Option<&'a Object>) -> Option<String> {
    if field.flags & IS_PUSH_BUTTON != 0 {
        return None;
    }
    let value = match value {
        Some(value) => value,
        None => appearance(source, field)?,
    };
    if matches!(value, Object::Name(name) if name == OFF) {
        return None;
    }
    let Object::Name(name) = value else { return source.text(value) };
    let button = field.kids.iter().position(|kid| source.step() && has_state(source, kid, name));
    let option = button.and_then(|button| field.options.get(button));
    option.and_then(|option| source.text(option)).or_else(|| source.text(value))
}

/// The state in which the button is drawn, for writers that leave the value out.
fn appearance<'a>(source: &mut Source<'a>, field: &Field<'a>) -> Option<&'a Object> {
    let is_on = |state: &&Object| state.as_name().is_ok_and(|name| name != OFF);
    let own = source.get(field.node, b"AS").filter(is_on);
    own.or_else(|| {
        field.kids.iter().find_map(|kid| {
            let kid = source.step().then(|| source.resolved(kid))??;
            source.get(kid.as_dict().ok()?, b"AS").filter(is_on)
        })
    })
}

fn has_state<'a>(source: &Source<'a>, widget: &'a Object, state: &[u8]) -> bool {
    let drawn = |widget: &'a Dictionary| {
        let states = source.dictionary(source.dictionary(widget, b"AP")?, b"N")?;
        Some(states.has(state))
    };
    source.resolved(widget).and_then(|widget| drawn(widget.as_dict().ok()?)).unwrap_or_default()
}

/// The chosen entries of a list, as the list shows them.
fn choice<'a>(source: &mut Source<'a>, field: &Field<'a>, value: &'a Object) -> Option<String> {
    let chosen = match value {
        Object::Array(chosen) => chosen.as_slice(),
        other => std::slice::from_ref(other),
    };
    let mut texts = Vec::new();
    for one in chosen {
        if !source.step() {
            break;
        }
        let Some(text) = source.text(one).filter(|text| !text.trim().is_empty()) else { continue };
        texts.push(displayed(source, field.options, &text).unwrap_or(text));
    }
    Some(texts.join(", "))
}

/// The text that a list shows for an exported value: an option is a text, or a pair of both.
fn displayed<'a>(source: &mut Source<'a>, options: &'a [Object], exported: &str) -> Option<String> {
    options.iter().find_map(|option| {
        let Some(Object::Array(pair)) = source.step().then(|| source.resolved(option))? else { return None };
        let [export, display] = pair.as_slice() else { return None };
        (source.text(export)? == exported).then(|| source.text(display))?
    })
}
