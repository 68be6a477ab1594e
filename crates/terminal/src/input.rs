//! Whether typed text is complete, or continues on the next line.

/// Typed text at a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It can be sent.
    Complete,
    /// It continues: a code fence is open, or its last line ends with a backslash.
    Continues,
}

impl Input {
    /// The state of this text.
    pub fn of(text: &str) -> Self {
        let mut fence: Option<(char, usize)> = None;
        for line in text.lines().map(str::trim) {
            let marks = ['`', '~'].map(|mark| (mark, line.len() - line.trim_start_matches(mark).len()));
            match fence {
                Some((mark, length)) if marks.contains(&(mark, line.len())) && line.len() >= length => fence = None,
                // With a further mark behind it, it would be code within a line.
                None => {
                    let opens = |(mark, length): &(char, usize)| *length >= 3 && !line[*length..].contains(*mark);
                    fence = marks.into_iter().find(opens);
                }
                Some(_) => {}
            }
        }
        let continued = text.len() - text.trim_end_matches('\\').len();
        if fence.is_some() || continued % 2 == 1 { Self::Continues } else { Self::Complete }
    }

    /// The text as it is sent: without the backslashes that continue its lines.
    pub fn joined(text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let body = line.trim_end_matches('\n');
            let marks = body.len() - body.trim_end_matches('\\').len();
            match line.strip_suffix("\\\n").filter(|_| marks % 2 == 1) {
                Some(kept) => {
                    out.push_str(kept);
                    out.push('\n');
                }
                None => out.push_str(line),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_fence_or_a_backslash_continues_a_text() {
        for (text, expected) in [
            ("hello", Input::Complete),
            ("", Input::Complete),
            ("hello \\", Input::Continues),
            ("hello \\\\", Input::Complete),
            ("hello \\\nmore", Input::Complete),
            ("```rust", Input::Continues),
            ("look:\n```\nfn main() {}", Input::Continues),
            ("look:\n```\nfn main() {}\n```", Input::Complete),
            ("````\n```\n````", Input::Complete),
            ("~~~\n```", Input::Continues),
            ("```ls``` is a command", Input::Complete),
        ] {
            assert_eq!(Input::of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_backslashes_that_continue_lines_are_not_sent() {
        for (text, expected) in [("a \\\nb", "a \nb"), ("a\\\\\nb", "a\\\\\nb"), ("a\nb", "a\nb"), ("a\\", "a\\")] {
            assert_eq!(Input::joined(text), expected, "{text:?}");
        }
    }
}
