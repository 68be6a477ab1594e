//! Text of a model as a block or in a line of a question.

use crate::{escaped, escaped_line, markdown};

/// Maximum length of a question, in characters. Only the content of files may be longer: it shows its beginning and end.
/// 16 000: a command of the usual maximum length is shown whole, and a platform splits it into a few messages.
pub const MAX_SHOWN_CHARS: usize = 16_000;

/// Puts text of the model into a code block that the text cannot close.
pub fn fence(text: &str) -> String {
    markdown::block(&bounded(visible(text), "\n"))
}

/// Puts text of the model into a line of prose. Nothing of it acts as markup: of a link, a person reads the address.
pub fn shown_line(text: &str) -> String {
    markdown::inline(&bounded(escaped_line(text), " "))
}

/// Replaces hidden and reordering characters by visible escapes, and each carriage return.
pub fn visible(text: &str) -> String {
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
}
