//! What a question shows of a call: everything that runs, whatever the model writes. Pure.

use belay_text::escaped_line;
use belay_text::question::{MAX_SHOWN_CHARS, is_content, is_shown, visible};
use serde::de::IgnoredAny;
use serde_json::Value;

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

/// The length of the question in characters, if it is too long to be shown whole. The content of files does not count.
pub fn too_long(summary: &str, bound: &[(String, String)]) -> Option<usize> {
    let counted = bound.iter().filter(|(name, _)| is_shown(name) && !is_content(name));
    let parts = counted.map(|(name, value)| escaped_line(name).chars().count() + escaped_line(value).chars().count());
    let whole = visible(summary).chars().count() + parts.sum::<usize>();
    (whole > MAX_SHOWN_CHARS).then_some(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
