//! What a question shows of a call: everything that runs, whatever the model writes. Pure.
//!
//! All questions are made of [`fence`] and [`shown_line`]. Both show hidden characters as escapes, and the text can
//! neither act as markup nor leave its place.

use belay_text::{escaped, escaped_line, markdown};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Maximum length of a question, in characters. Only the content of files may be longer: it shows its beginning and end.
/// 16 000: a command of the usual maximum length is shown whole, and a platform splits it into a few messages.
pub(crate) const MAX_SHOWN_CHARS: usize = 16_000;

/// Names of bound values that the question omits: argument vector and script are in the summary, and the environment is
/// a digest.
const UNSHOWN: [&str; 3] = ["argv", "script", "environment"];

/// Names of bound values that contain the content of a file. The digest of the file is bound too, so the question may
/// show the beginning and the end of these values.
const CONTENT: [&str; 3] = ["content", "old", "new"];

/// The name of a bound value that shows an argument begins with this word. So no argument passes for another fact.
const ARGUMENT: &str = "argument";

/// The arguments that the preview of a call does not show, as further facts of the question. A text is shown as it is,
/// unless that could be mistaken for another JSON value.
pub(crate) fn unshown_arguments(arguments: &Value, shows: &[&str]) -> Vec<(String, String)> {
    let arguments = arguments.as_object().into_iter().flatten();
    let fact = |(name, value): (&String, &Value)| {
        let shown = match value {
            Value::String(text) if serde_json::from_str::<IgnoredAny>(text).is_err() => text.clone(),
            value => value.to_string(),
        };
        (format!("{ARGUMENT} {name}"), shown)
    };
    arguments.filter(|(name, _)| !shows.contains(&name.as_str())).map(fact).collect()
}

/// The bound values that the question shows.
pub(super) fn shown_of(bound: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    bound.iter().filter(|(name, _)| !UNSHOWN.contains(&name.as_str()))
}

/// The length of the question in characters, if it is too long to be shown whole. The content of files does not count.
pub fn too_long(summary: &str, bound: &[(String, String)]) -> Option<usize> {
    let counted = shown_of(bound).filter(|(name, _)| !CONTENT.contains(&name.as_str()));
    let parts = counted.map(|(name, value)| escaped_line(name).chars().count() + escaped_line(value).chars().count());
    let whole = visible(summary).chars().count() + parts.sum::<usize>();
    (whole > MAX_SHOWN_CHARS).then_some(whole)
}

/// Puts text of the model into a code block that the text cannot close.
pub(super) fn fence(text: &str) -> String {
    markdown::block(&bounded(visible(text), "\n"))
}

/// Puts text of the model into a line of prose. Nothing of it acts as markup: of a link, a person reads the address.
pub fn shown_line(text: &str) -> String {
    markdown::inline(&bounded(escaped_line(text), " "))
}

/// Replaces hidden and reordering characters by visible escapes, and each carriage return.
fn visible(text: &str) -> String {
    escaped(&text.replace('\r', r"\u{d}")).into_owned()
}

/// Bounds a text to [`MAX_SHOWN_CHARS`]. `space`: around the note about the missing part.
fn bounded(visible: String, space: &str) -> String {
    let whole = visible.chars().count();
    if whole <= MAX_SHOWN_CHARS {
        return visible;
    }
    let head: String = visible.chars().take(MAX_SHOWN_CHARS / 2).collect();
    let tail: String = visible.chars().skip(whole - MAX_SHOWN_CHARS / 2).collect();
    let missing = whole - MAX_SHOWN_CHARS;
    format!("{head}{space}[… {missing} characters are NOT SHOWN here …]{space}{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_model_writes_cannot_leave_its_block_or_hide() {
        assert_eq!(fence("a ``` b"), "````\na ``` b\n````\n");
        assert_eq!(
            fence("rm \u{202e}txt.exe\u{200b}\r\n\u{1b}[2K\u{ad}"),
            "```\nrm \\u{202e}txt.exe\\u{200b}\\u{d}\n\\u{1b}[2K\\u{ad}\n```\n"
        );
        assert!(fence(&"x".repeat(20_000)).contains("x\n[… 4000 characters are NOT SHOWN here …]\nx"));
        assert!(shown_line(&"x".repeat(20_000)).contains("x [… 4000 characters are NOT SHOWN here …] x"));
        assert_eq!(shown_line(&"x".repeat(MAX_SHOWN_CHARS)).len(), MAX_SHOWN_CHARS);
        for (text, shown) in [
            ("[my bank](https://example.com)", "`[my bank](https://example.com)`"),
            ("two\nlines *and* `ticks`", r"`` two\nlines *and* `ticks` ``"),
            (r"a literal \n", r"`a literal \\n`"),
            ("ok\u{e0041}\u{200b}", r"`ok\u{e0041}\u{200b}`"),
        ] {
            assert_eq!(shown_line(text), shown);
        }
    }

    #[test]
    fn arguments_that_a_preview_does_not_show_are_facts_of_the_question() {
        let arguments =
            json!({"caution": "", "five": "5", "list": ["a", {"b": null}], "n": 5, "path": "a", "text": "x\ny"});
        let facts = unshown_arguments(&arguments, &["path"]);
        let expected = [
            ("argument caution", ""),
            ("argument five", "\"5\""),
            ("argument list", r#"["a",{"b":null}]"#),
            ("argument n", "5"),
            ("argument text", "x\ny"),
        ];
        assert_eq!(facts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_question_is_too_long_when_any_of_it_would_be_left_out() {
        let bound = |name: &str, chars: usize| vec![(name.to_owned(), "x".repeat(chars))];
        assert_eq!(too_long("ls", &bound("stdin", 1000)), None);
        assert_eq!(too_long("ls", &bound("argv", 20_000)), None, "it is in the summary");
        assert_eq!(too_long("write a.txt", &bound("content", 20_000)), None, "both ends and the digest are shown");
        assert_eq!(too_long("t", &bound("argument content", 20_000)), Some(20_017));
        assert_eq!(too_long(&"x".repeat(10_000), &bound("stdin", 6000)), Some(16_005));
        assert_eq!(too_long(&"\u{202e}".repeat(2001), &[]), Some(16_008), "as it is shown");
    }
}
