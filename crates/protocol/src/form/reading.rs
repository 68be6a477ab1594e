//! Reads the answers to forms. Pure.

use serde_json::{Map, Number, Value};

use super::formats::{is_date, is_email, is_time, is_uri};
use super::{FieldFormat, FieldKind, Form, FormField, FormOption};
use crate::decision::Decision;
use crate::json_bytes::json_bytes;

/// Most bytes of an answer. 16 KiB: it is one message of a person.
const MAX_ANSWER: usize = 16 * 1024;

pub(super) fn read(form: &Form, text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > MAX_ANSWER {
        return Err(format!("The answer is too long: at most {MAX_ANSWER} bytes."));
    }
    if let Ok(Value::Object(values)) = serde_json::from_str(text) {
        return check(form, values);
    }
    let is_yes = Decision::from_words(text) == Some(Decision::Approve);
    // A yes that is a value of the only field is that value. It does not stand for the default, which may be a no.
    if let (true, [field]) = (is_yes, &form.fields[..])
        && let Ok(values) = check(form, Map::from_iter([(field.name.clone(), text.into())]))
    {
        return Ok(values);
    }
    if is_yes && !form.takes_no() && form.fields.iter().all(|field| !field.required || field.default.is_some()) {
        return check(form, Map::new());
    }
    let (mut values, mut last) = (Map::<String, Value>::new(), None::<String>);
    for line in text.lines() {
        match named(form, line) {
            Some((field, value)) => {
                if values.insert(field.name.clone(), value.trim().into()).is_some() {
                    return Err(format!("The field {} is there twice.", field.name));
                }
                last = Some(field.name.clone());
            }
            None if line.trim().is_empty() => {}
            // The value of a text goes on.
            None => match last.as_ref().and_then(|name| values.get_mut(name)) {
                Some(Value::String(before)) => {
                    before.push('\n');
                    before.push_str(line);
                }
                _ => break,
            },
        }
    }
    match (&form.fields[..], values.is_empty()) {
        ([field], true) => check(form, Map::from_iter([(field.name.clone(), text.into())])),
        (_, true) => Err(format!("That is no answer to the form. {}", how(form))),
        (_, false) => check(form, values),
    }
}

/// How an answer is written.
fn how(form: &Form) -> String {
    match form.fields.first() {
        None => "Answer yes or no.".to_owned(),
        Some(field) => format!("Write one line for each field, such as {}: …", field.name),
    }
}

/// The field that a line names, and its value. The name of a field comes before the title of another one.
fn named<'a>(form: &'a Form, line: &'a str) -> Option<(&'a FormField, &'a str)> {
    let (name, value) = line.split_once([':', '='])?;
    let name = name.trim().trim_start_matches(['-', '*', ' ']);
    if name.is_empty() {
        return None;
    }
    let lower = name.to_lowercase();
    let find = |is: &dyn Fn(&FormField) -> bool| form.fields.iter().find(|field| is(field));
    let field = find(&|field| field.name == name)
        .or_else(|| find(&|field| field.name.to_lowercase() == lower))
        .or_else(|| find(&|field| field.title.to_lowercase() == lower));
    field.map(|field| (field, value))
}

pub(super) fn check(form: &Form, mut values: Map<String, Value>) -> Result<Map<String, Value>, String> {
    if let Some(unknown) = values.keys().find(|name| !form.fields.iter().any(|field| field.name == **name)) {
        return Err(format!("The form has no field {}. {}", super::short(unknown), how(form)));
    }
    let mut checked = Map::new();
    for field in &form.fields {
        let given = values.remove(&field.name).filter(|value| !value.is_null() && value.as_str() != Some(""));
        match given.or_else(|| field.default.clone()) {
            Some(value) => {
                let value = value_of(field, value).map_err(|why| format!("{}: {why}.", field.name))?;
                checked.insert(field.name.clone(), value);
            }
            None if field.required => return Err(format!("The field {} needs a value.", field.name)),
            None => {}
        }
    }
    if json_bytes(&checked) > 2 * MAX_ANSWER {
        return Err(format!("The answer is too long: at most {MAX_ANSWER} bytes."));
    }
    Ok(checked)
}

fn value_of(field: &FormField, value: Value) -> Result<Value, String> {
    match (&field.kind, value) {
        (FieldKind::Text { min, max, format }, Value::String(text)) => text_of(text, (*min, *max), *format),
        (FieldKind::Number { whole, min, max }, value) => number(&value, *whole, min.as_ref(), max.as_ref()),
        (FieldKind::YesNo, Value::Bool(value)) => Ok(value.into()),
        (FieldKind::YesNo, Value::String(text)) => {
            match text.trim().trim_end_matches(['.', '!']).to_lowercase().as_str() {
                "yes" | "y" | "true" | "on" => Ok(true.into()),
                "no" | "n" | "false" | "off" => Ok(false.into()),
                _ => Err("it must be yes or no".into()),
            }
        }
        (FieldKind::Choice { options }, Value::String(text)) => option(options, &text),
        (FieldKind::Choices { options, min, max }, value) => choices(options, value, (*min, *max)),
        _ => Err("its value is of a wrong kind".into()),
    }
}

fn text_of(text: String, (min, max): (u32, u32), format: Option<FieldFormat>) -> Result<Value, String> {
    let length = text.chars().count();
    if length < min as usize || length > max as usize {
        return Err(format!("it has {length} characters, and must have {min} to {max}"));
    }
    match format {
        Some(FieldFormat::Email) if !is_email(&text) => Err("it must be an e-mail address".into()),
        Some(FieldFormat::Uri) if !is_uri(&text) => {
            Err("it must be an address with a scheme, such as https://…".into())
        }
        Some(FieldFormat::Date) if !is_date(&text) => Err("it must be a day such as 2026-07-28".into()),
        Some(FieldFormat::DateTime) if !is_time(&text) => Err("it must be a time such as 2026-07-28T12:00:00Z".into()),
        _ => Ok(text.into()),
    }
}

fn number(value: &Value, whole: bool, min: Option<&Number>, max: Option<&Number>) -> Result<Value, String> {
    let number: Number = match value {
        Value::Number(number) => number.clone(),
        Value::String(text) => text.trim().parse().map_err(|_| "it must be a number".to_owned())?,
        _ => return Err("it must be a number".into()),
    };
    let of = |number: &Number| number.as_f64().unwrap_or(f64::NAN);
    if whole && of(&number).fract() != 0.0 {
        return Err("it must be a whole number".into());
    }
    if min.is_some_and(|min| of(&number) < of(min)) || max.is_some_and(|max| of(&number) > of(max)) {
        let shown = |limit: Option<&Number>| limit.map_or("any".to_owned(), Number::to_string);
        return Err(format!("it must be from {} to {}", shown(min), shown(max)));
    }
    // Programs with whole numbers do not read 3.0.
    let exact = number.as_f64().filter(|value| whole && number.is_f64() && value.abs() < 9e15);
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and far from the limits")]
    Ok(exact.map_or(Value::Number(number.clone()), |value| (value as i64).into()))
}

fn option(options: &[FormOption], text: &str) -> Result<Value, String> {
    let find = |text: &str| {
        let wanted = text.to_lowercase();
        let exact = options.iter().find(|option| option.value == text);
        let alike = || options.iter().find(|o| o.value.to_lowercase() == wanted || o.title.to_lowercase() == wanted);
        // An option without a title has an empty one, which is no name.
        if text.is_empty() { None } else { exact.or_else(alike) }
    };
    let text = text.trim();
    let found = find(text).or_else(|| find(text.trim_end_matches(['.', '!'])));
    let all = || options.iter().map(|option| option.value.as_str()).collect::<Vec<_>>().join(", ");
    found.map(|option| option.value.clone().into()).ok_or_else(|| format!("it must be one of {}", all()))
}

fn choices(options: &[FormOption], value: Value, (min, max): (u32, u32)) -> Result<Value, String> {
    let texts: Vec<String> = match value {
        Value::Array(items) => {
            let texts: Option<_> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            texts.ok_or("it must be a list of texts")?
        }
        Value::String(text) => text.split([',', ';', '\n']).map(str::to_owned).collect(),
        _ => return Err("it must be a list".into()),
    };
    let mut chosen = Vec::new();
    for text in texts.iter().filter(|text| !text.trim().is_empty()) {
        let value = option(options, text)?;
        if !chosen.contains(&value) {
            chosen.push(value);
        }
    }
    if chosen.len() < min as usize || chosen.len() > max as usize {
        return Err(format!("it must be {min} to {max} of the options"));
    }
    Ok(chosen.into())
}

#[cfg(test)]
mod tests;
