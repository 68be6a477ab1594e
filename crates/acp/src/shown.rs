//! Texts of a model as an editor shows them: everything is shown, and nothing of it acts or hides. Pure.

use belay_text::{escaped, escaped_line, markdown};

/// Longest title in characters: about two lines of an editor's panel.
const TITLE_MAX_CHARS: usize = 120;

/// Most characters of one value. 16 000: the daemon's own questions show as much. Of a longer one, which is the content of a file,
/// the beginning and the end are shown.
const VALUE_MAX_CHARS: usize = 16_000;

/// A title, which editors show as plain text in one line: hidden and reordering characters and line ends are escapes.
pub(crate) fn title(text: &str) -> String {
    let line = escaped_line(text);
    match line.char_indices().nth(TITLE_MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A part of a line of Markdown.
pub(crate) fn line(text: &str) -> String {
    markdown::inline(&bounded(escaped_line(text), " "))
}

/// A block of Markdown, which the text cannot close.
pub(crate) fn block(text: &str) -> String {
    markdown::block(&bounded(escaped(&text.replace('\r', r"\u{d}")).into_owned(), "\n"))
}

/// A value with its name. A value of several lines is a block.
pub(crate) fn pair(name: &str, value: &str) -> String {
    if value.contains('\n') {
        format!("- {}:\n\n{}", line(name), block(value))
    } else {
        format!("- {}: {}", line(name), line(value))
    }
}

/// `space`: around the note about the missing part.
fn bounded(text: String, space: &str) -> String {
    let whole = text.chars().count();
    if whole <= VALUE_MAX_CHARS {
        return text;
    }
    let head: String = text.chars().take(VALUE_MAX_CHARS / 2).collect();
    let tail: String = text.chars().skip(whole - VALUE_MAX_CHARS / 2).collect();
    format!("{head}{space}[… {} characters are NOT SHOWN here …]{space}{tail}", whole - VALUE_MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_without_hidden_characters() {
        assert_eq!(title("run_command ls"), "run_command ls");
        assert_eq!(title("ls\nrm \u{202e}x\u{200b}"), r"ls\nrm \u{202e}x\u{200b}");
        assert_eq!(title("a <b> *c*"), "a <b> *c*", "editors show no Markdown there");
        assert_eq!(title(&"é".repeat(500)).chars().count(), TITLE_MAX_CHARS + 1);
    }

    #[test]
    fn a_value_neither_acts_nor_hides_nor_looks_like_another_one() {
        for (name, value, expected) in [
            ("directory", ".", "- directory: ."),
            ("argv", "ls <!-- -->", "- argv: `ls <!-- -->`"),
            ("a\nb", "[x](https://example.com)", "- `a\\nb`: `[x](https://example.com)`"),
            ("stdin", "\u{202e}x\u{200b}", "- stdin: `\\u{202e}x\\u{200b}`"),
            ("stdin", "x\n- directory: /\n```", "- stdin:\n\n````\nx\n- directory: /\n```\n````\n"),
            ("stdin", "x\r\n\u{1b}", "- stdin:\n\n```\nx\\u{d}\n\\u{1b}\n```\n"),
        ] {
            assert_eq!(pair(name, value), expected);
        }
        assert!(block(&"x".repeat(20_000)).contains("x\n[… 4000 characters are NOT SHOWN here …]\nx"));
    }
}
