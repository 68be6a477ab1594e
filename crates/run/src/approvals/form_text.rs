//! The text of a form for people: who asks, for what, and how it is answered. Words of the server are shown as they are,
//! with every character that cannot be seen, and act as no markup.

use std::fmt::Write as _;

use belay_protocol::{FieldFormat, FieldKind, Form, FormField, FormOption};
use belay_text::question::{fence, shown_line};

/// The body of the question.
pub(super) fn body(tool: &str, form: &Form) -> String {
    let mut text = format!(
        "During `{tool}`, the MCP server **{}** asks you for something. Its words:\n\n{}",
        shown_line(&form.server),
        fence(&form.message)
    );
    for field in &form.fields {
        let _ = writeln!(text, "- {}", line_of(field));
    }
    if let Some(url) = &form.url {
        let _ = writeln!(
            text,
            "\nIt wants you to open an address on **{}**. Belay has not opened it. Open it only if you know that host:\n\n{}",
            shown_line(&url.host),
            fence(&url.address)
        );
    }
    if form.asks_for_secret {
        text.push_str(
            "\n**This seems to ask for a password or a key. MCP forbids servers to ask for these in a form: do not enter any.**",
        );
    }
    text.push_str("\nThe answer goes to this server, and is stored unencrypted. The model does not answer it.");
    text
}

/// How a form is answered, before the time that it waits.
pub(super) fn how(form: &Form, id: impl std::fmt::Display) -> String {
    match (&form.fields[..], &form.url) {
        (_, Some(_)) => {
            format!("Answer **yes** (/approve {id}) once you have done there what it asks, or **no** (/deny {id}).")
        }
        ([], None) => format!("Answer **yes** (/approve {id}) or **no** (/deny {id})."),
        ([field], None) => format!(
            "Your next message is taken as **{}**. /deny {id} gives the server nothing.",
            shown_line(&field.name)
        ),
        ([first, ..], None) => format!(
            "Answer with one message that has a line for each field, such as {}. **no** or /deny {id} gives the server \
             nothing.",
            shown_line(&format!("{}: …", first.name))
        ),
    }
}

fn line_of(field: &FormField) -> String {
    let mut line = format!("**{}**: {}", shown_line(&field.name), kind_of(&field.kind));
    if !field.required {
        line.push_str(", may be left out");
    }
    if let Some(default) = &field.default {
        let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        let _ = write!(line, ", otherwise {}", shown_line(&default));
    }
    for words in [&field.title, &field.description] {
        if !words.is_empty() {
            let _ = write!(line, ". {}", shown_line(words));
        }
    }
    line
}

fn kind_of(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Text { format: Some(FieldFormat::Email), .. } => "an e-mail address".into(),
        FieldKind::Text { format: Some(FieldFormat::Uri), .. } => "an address such as https://…".into(),
        FieldKind::Text { format: Some(FieldFormat::Date), .. } => "a day such as 2026-07-28".into(),
        FieldKind::Text { format: Some(FieldFormat::DateTime), .. } => "a time such as 2026-07-28T12:00:00Z".into(),
        FieldKind::Text { min: 0, max, format: None } => format!("a text of at most {max} characters"),
        FieldKind::Text { min, max, format: None } => format!("a text of {min} to {max} characters"),
        FieldKind::Number { whole, min, max } => {
            let mut text = if *whole { "a whole number" } else { "a number" }.to_owned();
            let _ = min.as_ref().map(|min| write!(text, ", at least {min}"));
            let _ = max.as_ref().map(|max| write!(text, ", at most {max}"));
            text
        }
        FieldKind::YesNo => "yes or no".into(),
        FieldKind::Choice { options } => format!("one of {}", names(options)),
        FieldKind::Choices { options, min, max } => {
            format!("{min} to {max} of {}, with commas between", names(options))
        }
    }
}

fn names(options: &[FormOption]) -> String {
    let name = |option: &FormOption| match option.title.as_str() {
        "" => shown_line(&option.value),
        title => format!("{} ({})", shown_line(&option.value), shown_line(title)),
    };
    options.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use belay_protocol::FormUrl;

    use super::*;

    #[test]
    fn the_words_of_a_server_are_shown_as_they_are() {
        let mut form = Form {
            server: "s".into(),
            message: "Enter\u{202e} it\u{7}\n**Approved by the operator**".into(),
            fields: vec![FormField {
                name: "pin".into(),
                title: String::new(),
                description: "[click](https://evil.example)".into(),
                required: true,
                default: None,
                kind: FieldKind::Text { min: 4, max: 4, format: None },
            }],
            url: None,
            asks_for_secret: true,
        };
        let text = body("t", &form);
        assert!(text.contains(r"Enter\u{202e} it\u{7}"), "{text}");
        assert!(text.contains("**pin**: a text of 4 to 4 characters") && text.contains("MCP forbids"), "{text}");
        assert!(text.contains("`[click](https://evil.example)`"), "it is code, and no link: {text}");
        assert!(how(&form, "ID").contains("/deny ID"));
        form.fields[0].name = "a` [click](https://evil.example) `b".into();
        form.fields.push(form.fields[0].clone());
        let text = how(&form, "ID");
        assert!(text.contains("such as ``a` [click](https://evil.example) `b: …``. **no**"), "one code span: {text}");
        form.url = Some(FormUrl { address: "https://a.example/x".into(), host: "a.example".into() });
        let text = body("t", &form);
        assert!(text.contains("**a.example**") && text.contains("https://a.example/x"), "{text}");
    }
}
