//! Text within a line of Markdown that would act at the start of a line: a heading, an item of a list, a quote, a rule.

use super::Layout;

impl Layout {
    /// The place at which a piece from `start` on needs a backslash, so that its first line acts no more than in the text.
    /// `None`: it needs none, or the text is no Markdown.
    pub(super) fn escape_at(&self, start: usize) -> Option<usize> {
        let is_within_line = !self.is_border(start) && !self.line_before(start).trim().is_empty();
        if !self.is_markdown() || !is_within_line || self.code_at(start).is_some() {
            return None;
        }
        let end = self.codes_after(start).first().map_or(self.text().len(), |code| code.range.start);
        let line = self.text()[start..end].lines().next().unwrap_or_default();
        let follows_word = self.text()[..start].ends_with(char::is_alphanumeric);
        let is_styled = self.starts_span(start);
        acting(line, follows_word).filter(|_| !is_styled).map(|at| start + at)
    }
}

/// The place in a line at which a backslash keeps it from acting, wherever the piece ends.
fn acting(line: &str, follows_word: bool) -> Option<usize> {
    let first = line.chars().next()?;
    let ends_word = |rest: &str| rest.is_empty() || rest.starts_with(char::is_whitespace);
    let behind = line.trim_start_matches(first);
    let acts = match first {
        '>' => true,
        '#' => ends_word(behind),
        '+' => ends_word(&line[1..]),
        '-' | '*' | '_' => ends_word(&line[1..]) || line[1..].starts_with(first) || first == '_' && follows_word,
        _ => return numbered(line),
    };
    acts.then_some(0)
}

/// The place of the mark behind the number of an item, which has one to nine digits (CommonMark, "List items").
fn numbered(line: &str) -> Option<usize> {
    let behind = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = line.len() - behind.len();
    let after = behind.strip_prefix(['.', ')']).filter(|_| (1..=9).contains(&digits))?;
    (after.is_empty() || after.starts_with(char::is_whitespace)).then_some(digits)
}
