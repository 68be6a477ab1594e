//! Colours code and diffs.

use crate::language::{Language, Token};
use crate::span::{Colour, Span, Style};

/// The columns of a tab in code.
const TAB: usize = 4;

/// Longest code that is coloured, in bytes. Longer code is shown as it is: an unfinished block is coloured anew for each
/// picture.
const COLOURED_MAX_BYTES: usize = 32 * 1024;

/// The lines of a code block in that language, coloured as far as the language is known.
pub(crate) fn lines(code: &str, language: &str) -> Vec<Vec<Span>> {
    let lines: Vec<String> =
        code.lines().map(|line| belay_text::escaped(line).replace('\t', &" ".repeat(TAB))).collect();
    if matches!(language, "diff" | "patch") {
        return lines.into_iter().map(|line| vec![diff_line(line)]).collect();
    }
    if code.len() > COLOURED_MAX_BYTES {
        return lines.into_iter().map(|line| vec![Span::plain(line)]).collect();
    }
    let Some(language) = Language::named(language) else {
        return lines.into_iter().map(|line| vec![Span::plain(line)]).collect();
    };
    let mut in_comment = false;
    let line = |line: &String| {
        let tokens = language.tokens(line, &mut in_comment).into_iter();
        tokens.map(|(token, text)| Span::new(text, style(token))).collect()
    };
    lines.iter().map(line).collect()
}

fn style(token: Token) -> Style {
    let colour = match token {
        Token::Comment => return Style { dim: true, ..Style::default() },
        Token::Text => return Style::default(),
        Token::String => Colour::Green,
        Token::Keyword => Colour::Magenta,
        Token::Number => Colour::Yellow,
        Token::Function => Colour::Blue,
    };
    Style { colour: Some(colour), ..Style::default() }
}

/// A line of a unified diff.
fn diff_line(line: String) -> Span {
    let style = match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Style { bold: true, ..Style::default() },
        [b'+', ..] => Style { colour: Some(Colour::Green), ..Style::default() },
        [b'-', ..] => Style { colour: Some(Colour::Red), ..Style::default() },
        [b'@', b'@', ..] => Style { colour: Some(Colour::Cyan), ..Style::default() },
        _ => Style::default(),
    };
    Span::new(line, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[Vec<Span>]) -> String {
        lines.iter().map(|line| line.iter().map(|span| span.text.as_str()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn known_languages_are_coloured_and_others_are_shown_as_they_are() {
        let is_coloured =
            |code, language| lines(code, language).concat().iter().any(|span| span.style.colour.is_some());
        for (code, language, expected) in [
            ("fn main() { let s = \"x\"; }", "rust", true),
            ("x = 'a'", "python", true),
            ("echo \"x\"", "bash", true),
            ("{\"a\": \"b\"}", "json", true),
            ("fn main() {}", "", false),
            ("fn main() {}", "klingon", false),
            ("-a\n+b", "diff", true),
        ] {
            assert_eq!(is_coloured(code, language), expected, "{language} {code}");
        }
    }

    #[test]
    fn a_diff_shows_what_is_added_and_removed() {
        let lines = lines("--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same", "diff");
        let colours: Vec<_> = lines.iter().map(|line| line[0].style.colour).collect();
        assert_eq!(colours, [None, None, Some(Colour::Cyan), Some(Colour::Red), Some(Colour::Green), None]);
    }

    #[test]
    fn control_characters_in_code_are_escaped() {
        assert_eq!(text(&lines("a\x1b[2J\tb", "sh")), "a\\u{1b}[2J    b\n");
    }

    proptest::proptest! {
        #[test]
        fn colours_change_no_character(code in "[a-z\"'/*#{}()<>=\\\\ 漢é\n0-9]{0,120}", at in 0usize..8) {
            let language = ["rust", "python", "bash", "js", "html", "json", "c", "toml"][at];
            let plain: String = code.lines().map(|line| format!("{line}\n")).collect();
            assert_eq!(text(&lines(&code, language)), plain);
        }
    }
}
