//! Shows an approval request: exactly as it is written, but for the change of a file, which is shown as a diff.

use belay_text::markdown::inlined;

use crate::Look;
use crate::span::{Colour, Span, Style, painted};

/// The lines of an approval request. It is not rendered as Markdown: a person decides by each character of it. The facts
/// `old` and `new` of a change are shown line by line, with `-` and `+`. The code block before the facts stays as it is.
pub fn question(text: &str, look: Look) -> Vec<String> {
    let text = belay_text::escaped(text);
    let (mut lines, mut fence) = (Vec::new(), None);
    for line in text.lines() {
        let is_ticks = line.len() > 2 && line.bytes().all(|byte| byte == b'`');
        match fence {
            None if is_ticks => fence = Some(line),
            Some(begin) if line == begin => fence = None,
            _ => {}
        }
        let change = [("- old: ", '-', Colour::Red), ("- new: ", '+', Colour::Green)];
        let is_fact = fence.is_none() && !is_ticks;
        let change = change.iter().filter(|_| is_fact);
        match change.into_iter().find_map(|(name, mark, colour)| Some((line.strip_prefix(name)?, mark, *colour))) {
            Some((value, mark, colour)) => {
                lines.extend(unescaped(inlined(value)).into_iter().map(|part| (format!("{mark} {part}"), colour)));
            }
            None => lines.push((line.to_owned(), Colour::Yellow)),
        }
    }
    let painted = |(text, colour)| {
        let style = Style { colour: Some(colour), ..Style::default() };
        painted(&[Span::new(text, style)], look.colour)
    };
    lines.into_iter().map(painted).collect()
}

/// The lines of a text that was written on one line, as [`belay_text::escaped_line`] does. Other escapes stay.
fn unescaped(line: &str) -> Vec<String> {
    let (mut lines, mut chars) = (vec![String::new()], line.chars());
    while let Some(c) = chars.next() {
        let next = if c == '\\' { chars.next() } else { None };
        if next == Some('n') {
            lines.push(String::new());
        } else if let Some(last) = lines.last_mut() {
            last.push(c);
            last.extend(next);
        }
    }
    if lines.len() > 1 && lines.last().is_some_and(String::is_empty) {
        lines.pop(); // the last line ends with a line feed
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Vec<String> {
        question(text, Look { width: 80, colour: false })
    }

    #[test]
    fn a_change_of_a_file_is_a_diff_and_the_rest_is_shown_as_it_is() {
        for (text, expected) in [
            (
                "May I do this? **edit_file**\n\n- path: a_b_\\*",
                vec!["May I do this? **edit_file**", "", "- path: a_b_\\*"],
            ),
            ("- old: one\\ntwo\\n\n- new: three", vec!["- one", "- two", "+ three"]),
            ("- old: a\\\\nb\\u{1b}", vec!["- a\\\\nb\\u{1b}"]),
            ("- new: ", vec!["+"]),
            (r"- new: `a\n*b*`", vec!["+ a", "+ *b*"]),
            ("````\n```\n- old: a\\nb\n````\n- old: c", vec!["````", "```", "- old: a\\nb", "````", "- c"]),
            ("a\x1b[2Jb", vec!["a\\u{1b}[2Jb"]),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
        let written = belay_text::escaped_line("x = \"\\n\"\n\ty\n");
        assert_eq!(plain(&format!("- old: {written}")), ["- x = \"\\\\n\"", "- \\ty"]);
    }

    #[test]
    fn it_stands_out_where_there_are_colours() {
        let lines = question("May I?\n- old: a\n- new: b", Look { width: 80, colour: true });
        assert_eq!(lines, ["\x1b[33mMay I?\x1b[0m", "\x1b[31m- a\x1b[0m", "\x1b[32m+ b\x1b[0m"]);
    }
}
