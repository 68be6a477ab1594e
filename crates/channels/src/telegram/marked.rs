//! Writes the text of a message as Markdown where the model must know whose words or what they are: quotes, code and
//! dates. Bold and the like stay plain. Pure.

use std::ops::Range;

use belay_protocol::UnixMillis;

/// What is to be done with a range of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It is left out, with one of the two spaces around it.
    Omitted,
    /// Its time follows it, in seconds since 1970.
    Time(i64),
    /// Code in a line.
    Code,
    /// A code block in this language.
    Block(String),
    /// The words of somebody else, or what the sender shows as such.
    Quote,
}

/// The text as Markdown. Marks that do not fit the text, or that overlap one before without being inside of it, are
/// ignored.
pub(super) fn markdown(text: &str, mut marks: Vec<(Range<usize>, Mark)>) -> String {
    marks.retain(|(range, _)| text.get(range.clone()).is_some_and(|part| !part.is_empty()));
    // A command that is written as code is still a command.
    marks.retain(|(range, mark)| *mark != Mark::Code || text[range.clone()].trim() != text.trim());
    marks.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    part(text, 0..text.len(), &marks)
}

/// A part of the text, with the marks that begin in it.
fn part(text: &str, range: Range<usize>, marks: &[(Range<usize>, Mark)]) -> String {
    let (mut written, mut at, mut next) = (Written::default(), range.start, 0);
    while let Some((marked, mark)) = marks.get(next) {
        let inside = marks[next + 1..].iter().take_while(|(inner, _)| inner.start < marked.end).count();
        let inner = &marks[next + 1..=next + inside];
        if marked.start < at || marked.end > range.end {
            next += 1; // it overlaps the one before, or leaves the one around it
            continue;
        }
        written.text(&text[at..marked.start]);
        at = marked.end;
        let own = &text[marked.clone()];
        match mark {
            Mark::Omitted => {
                if written.0.ends_with(' ') && text[at..range.end].starts_with(' ') {
                    at += 1;
                }
            }
            Mark::Time(seconds) => written.text(&format!("{own}{}", time_of(Some(*seconds)))),
            Mark::Code => written.text(&in_ticks(own)),
            Mark::Block(language) => {
                let fence = fence(own);
                let code = own.trim_end_matches('\n');
                written.block(&format!("{fence}{language}\n{code}\n{fence}"), 1);
            }
            Mark::Quote => {
                let quoted = part(text, marked.clone(), inner);
                let lines: Vec<String> = quoted.lines().map(|line| format!("> {line}")).collect();
                // Without an empty line, what follows would be a part of the quote.
                written.block(&lines.join("\n"), 2);
            }
        }
        next += 1 + inside;
    }
    written.text(&text[at..range.end]);
    written.0
}

/// Markdown, and the number of line ends that are due before what follows.
#[derive(Default)]
struct Written(String, usize);

impl Written {
    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let own = text.len() - text.trim_start_matches('\n').len();
        let due = std::mem::take(&mut self.1);
        self.0.extend(std::iter::repeat_n('\n', due.saturating_sub(own)));
        self.0.push_str(text);
    }

    /// Writes lines of their own, after which so many line ends are due.
    fn block(&mut self, lines: &str, due: usize) {
        let before = std::mem::take(&mut self.1).max(usize::from(!self.0.is_empty()));
        let own = self.0.len() - self.0.trim_end_matches('\n').len();
        self.0.extend(std::iter::repeat_n('\n', before.saturating_sub(own)));
        self.0.push_str(lines);
        self.1 = due;
    }
}

/// A fence that is longer than each row of backticks in the code.
pub(super) fn fence(code: &str) -> String {
    "`".repeat(longest_row(code).max(2) + 1)
}

/// Code in a line, between more backticks than it has in a row.
fn in_ticks(code: &str) -> String {
    match longest_row(code) {
        0 => format!("`{code}`"),
        row => format!("{ticks} {code} {ticks}", ticks = "`".repeat(row + 1)),
    }
}

fn longest_row(code: &str) -> usize {
    code.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

/// A time in parentheses, to follow the words for it; empty if it is none.
pub(super) fn time_of(seconds: Option<i64>) -> String {
    // Up to the year 9999.
    let seconds = seconds.filter(|seconds| (0..253_402_300_800).contains(seconds));
    seconds.map_or_else(String::new, |seconds| format!(" ({})", UnixMillis(seconds * 1_000).to_rfc3339()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks the first occurrence of each part.
    fn shown(text: &str, marks: &[(&str, Mark)]) -> String {
        let found = |(part, mark): &(&str, Mark)| {
            let start = text.find(part).expect("a part");
            (start..start + part.len(), mark.clone())
        };
        markdown(text, marks.iter().map(found).collect())
    }

    #[test]
    fn quotes_code_and_dates_are_markdown() {
        use Mark::{Block, Code, Omitted, Quote, Time};
        let rust = || Block("rust".into());
        let plain = || Block(String::new());
        for (text, marks, expected) in [
            ("a b", &[][..], "a b"),
            ("run ls now", &[("ls", Code)], "run `ls` now"),
            ("run a`b", &[("a`b", Code)], "run `` a`b ``"),
            ("/stop", &[("/stop", Code)], "/stop"),
            ("fn a() {}", &[("fn a() {}", rust())], "```rust\nfn a() {}\n```"),
            ("see:\nfn a() {}\nok?", &[("fn a() {}", rust())], "see:\n```rust\nfn a() {}\n```\nok?"),
            ("see fn a() {} ok?", &[("fn a() {}", plain())], "see \n```\nfn a() {}\n```\n ok?"),
            ("```", &[("```", plain())], "````\n```\n````"),
            ("he said\nno\nbut why?", &[("he said\nno", Quote)], "> he said\n> no\n\nbut why?"),
            ("he said\n\nwhy?", &[("he said", Quote)], "> he said\n\nwhy?"),
            ("why? no", &[("no", Quote)], "why? \n> no"),
            ("a\nb", &[("a", Quote), ("b", Quote)], "> a\n\n> b"),
            ("a\nb", &[("a", plain()), ("b", plain())], "```\na\n```\n```\nb\n```"),
            ("x fn a() {}", &[("x fn a() {}", Quote), ("fn a() {}", rust())], "> x \n> ```rust\n> fn a() {}\n> ```"),
            ("come tomorrow!", &[("tomorrow", Time(1_764_417_600))], "come tomorrow (2025-11-29T12:00:00.000Z)!"),
            ("come tomorrow!", &[("tomorrow", Time(i64::MAX))], "come tomorrow!"),
            ("hey @bot look", &[("@bot", Omitted)], "hey look"),
            ("@bot hi", &[("@bot", Omitted), ("@bot", Omitted)], " hi"),
            ("a@bot b", &[("a@bot", Quote), ("@bot", Omitted)], "> a\n\n b"),
        ] {
            assert_eq!(shown(text, marks), expected, "{text:?} {marks:?}");
        }
        let marks = vec![(0..2, Quote), (1..3, Code), (2..2, Code), (1..9, Code), (3..4, Code)];
        assert_eq!(markdown("aböc", marks), "> ab\n\nöc", "what does not fit, or overlaps, is ignored");
    }
}
