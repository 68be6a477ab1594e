//! Determines the kind of a line from its first characters.
//!
//! [`kind`] is called with the part of the line that was read and the character that follows. It is pure. It knows
//! neither the lines before nor how the text was cut into pieces.

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing but blanks.
    Blank,
    /// Text, and every line of no other kind.
    Prose,
    /// `# ` to `###### `.
    Heading,
    /// An entry of a list: a bullet or a number.
    Item,
    /// A quote: `>`.
    Quote,
    /// A row or a border of a table.
    Table,
    /// Nothing but marks: a rule, an underline, padding.
    Rule,
    /// Fenced or indented code.
    Code,
    /// The line that opens or closes fenced code.
    Fence,
}

/// Most characters of a line that are held back until its kind is known. 16: the longest number of a list entry, with
/// its point and blank, has 11 characters. A line that begins with more marks than this is a rule.
const HELD: usize = 16;

/// Longest run of backticks or tildes that opens a fence. Longer ones are padding.
const LONGEST_FENCE: u32 = 64;

/// The first characters of a line without its indentation. Each run of blanks is one blank.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(super) struct Head {
    held: [char; HELD],
    total: u32,
    run: u32,
}

impl Head {
    /// Adds one more character, which must not be a newline.
    pub(super) fn push(&mut self, c: char) {
        let c = if c.is_whitespace() { ' ' } else { c };
        if c == ' ' && self.total > 0 && self.held().last() == Some(&' ') {
            return;
        }
        if let Some(free) = self.held.get_mut(self.total as usize) {
            *free = c;
        }
        if self.run == self.total && (self.total == 0 || c == self.held[0]) {
            self.run = self.run.saturating_add(1);
        }
        self.total = self.total.saturating_add(1);
    }

    /// Whether only indentation was read.
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The stored part of the characters that were read.
    fn held(&self) -> &[char] {
        &self.held[..(self.total as usize).min(HELD)]
    }

    /// Whether a line of marks contains a `|`, which divides the columns of a table.
    pub(super) fn has_pipe(&self) -> bool {
        self.held().contains(&'|')
    }

    /// The number of times that the first character is repeated at the beginning of the line.
    pub(super) fn run(&self) -> u32 {
        self.run
    }

    /// The line's first character.
    pub(super) fn first(&self) -> Option<char> {
        self.held().first().copied()
    }

    /// The stored characters that are text of a line of this kind, without its mark.
    pub(super) fn text(&self, kind: Kind) -> &[char] {
        match kind {
            Kind::Prose | Kind::Code => self.held(),
            Kind::Item if self.is_bulleted() => &self.held()[2..],
            _ => &[],
        }
    }

    /// Whether it begins with a bullet and a blank.
    fn is_bulleted(&self) -> bool {
        matches!(self.held(), ['-' | '*' | '+', ' ', ..])
    }

    /// Whether it consists of its first character only.
    fn is_uniform(&self) -> bool {
        self.run == self.total
    }
}

/// The kind of a line that begins with this head. `None`: it depends on the following characters. A newline as `next`
/// always decides.
///
/// `may_fence` is false if the line is indented too far for a fence.
pub(super) fn kind(head: &Head, next: char, may_fence: bool) -> Option<Kind> {
    let Some(first) = head.first() else {
        return if next.is_ascii_digit() || is_mark(next) { None } else { Some(Kind::Prose) };
    };
    match first {
        '>' => Some(Kind::Quote),
        '•' | '◦' | '▪' | '‣' => Some(Kind::Item),
        '|' | '\u{2500}'..='\u{257F}' => Some(Kind::Table),
        '0'..='9' => number(head.held(), next),
        '#' if head.is_uniform() && head.run <= 6 && next.is_whitespace() => Some(Kind::Heading),
        '`' | '~' if may_fence && (3..LONGEST_FENCE).contains(&head.run) && head.total <= head.run + 1 => {
            fence(head, first, next)
        }
        '+' if matches!(head.held(), ['+', '-' | '=']) && matches!(next, '-' | '=') => Some(Kind::Table),
        _ => marks(head, next),
    }
}

/// The kind of a line of fenced code that begins with this head: code, or the closing fence of at least `length` marks.
/// `None` as above.
pub(super) fn kind_in_fence(head: &Head, next: char, mark: char, length: u32) -> Option<Kind> {
    let blanks_follow = head.total == head.run + 1 && head.held().last().is_none_or(|c| *c == ' ');
    match next {
        _ if head.is_empty() => {
            if next == mark {
                None
            } else {
                Some(Kind::Code)
            }
        }
        _ if head.run < length => {
            if next == mark && head.is_uniform() {
                None
            } else {
                Some(Kind::Code)
            }
        }
        '\n' => Some(Kind::Fence),
        _ if next.is_whitespace() => None,
        _ if head.run >= LONGEST_FENCE => Some(Kind::Code),
        _ if next == mark && !blanks_follow => None,
        _ => Some(Kind::Code),
    }
}

/// The kind of a line that begins with digits.
fn number(held: &[char], next: char) -> Option<Kind> {
    let digits = held.iter().take_while(|c| c.is_ascii_digit()).count();
    match next {
        // In CommonMark, the number of a list entry has at most nine digits.
        '0'..='9' if digits == held.len() && digits < 9 => None,
        '.' | ')' if digits == held.len() => None,
        _ if digits < held.len() && next.is_whitespace() => Some(Kind::Item),
        _ => Some(Kind::Prose),
    }
}

/// The kind of a line that begins with at least three backticks or tildes. A line of tildes alone is a fence if it has
/// three, and a rule if it has more. The caller makes sure that no backtick follows the opening ones in the same line.
fn fence(head: &Head, first: char, next: char) -> Option<Kind> {
    let blanks_follow = !head.is_uniform();
    match next {
        _ if next == first => {
            if blanks_follow {
                marks(head, next)
            } else {
                None
            }
        }
        _ if first == '`' => Some(Kind::Fence),
        '\n' => Some(if head.run == 3 { Kind::Fence } else { Kind::Rule }),
        '=' | '-' | '*' | '_' | '+' => marks(head, next),
        _ if next.is_whitespace() => None,
        _ => Some(Kind::Fence),
    }
}

/// The kind of a line that has only marks so far.
fn marks(head: &Head, next: char) -> Option<Kind> {
    match next {
        '\n' => Some(Kind::Rule),
        _ if next.is_whitespace() || is_mark(next) => (head.total as usize >= HELD).then_some(Kind::Rule),
        _ if head.is_bulleted() => Some(Kind::Item),
        _ => Some(Kind::Prose),
    }
}

/// Whether rules, borders, underlines and padding are made of this character.
pub(super) fn is_mark(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(c, '\u{2500}'..='\u{259F}' | '‐'..='―' | '•' | '◦' | '▪' | '‣' | '…' | '·' | '‾')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind of a line, and how many of its characters were needed to determine it, including the newline.
    fn kind_of(line: &str, in_fence: Option<(char, u32)>) -> (Kind, usize) {
        let mut head = Head::default();
        for (at, next) in line.chars().chain(['\n']).enumerate() {
            let kind = match in_fence {
                Some((mark, length)) => kind_in_fence(&head, next, mark, length),
                None => kind(&head, next, true),
            };
            if let Some(kind) = kind {
                return (kind, at + 1);
            }
            head.push(next);
        }
        panic!("a newline decides: {line:?}");
    }

    #[test]
    fn the_first_characters_give_the_kind_of_a_line() {
        for (line, expected, seen) in [
            ("Words", Kind::Prose, 1),
            ("שלום", Kind::Prose, 1),
            ("\"words\"", Kind::Prose, 2),
            ("**words**", Kind::Prose, 3),
            ("# ", Kind::Heading, 2),
            ("###### words", Kind::Heading, 7),
            ("######", Kind::Heading, 7),
            ("####### words", Kind::Prose, 9),
            ("#words", Kind::Prose, 2),
            ("########################", Kind::Rule, 17),
            ("- words", Kind::Item, 3),
            ("-\twords", Kind::Item, 3),
            ("-  words", Kind::Item, 4),
            ("- **words**", Kind::Item, 5),
            ("- - words", Kind::Item, 5),
            ("-words", Kind::Prose, 2),
            ("+ words", Kind::Item, 3),
            ("* words", Kind::Item, 3),
            ("•words", Kind::Item, 2),
            ("- - -", Kind::Rule, 6),
            ("***", Kind::Rule, 4),
            ("---------------------------", Kind::Rule, 17),
            ("1. words", Kind::Item, 3),
            ("123456789) words", Kind::Item, 11),
            ("1234567890) words", Kind::Prose, 10),
            ("3.14 words", Kind::Prose, 3),
            ("2026-03-14", Kind::Prose, 5),
            ("17", Kind::Prose, 3),
            ("> words", Kind::Quote, 2),
            ("| words |", Kind::Table, 2),
            ("┌───┐", Kind::Table, 2),
            ("+---+", Kind::Table, 3),
            ("+-5 words", Kind::Prose, 3),
            ("```", Kind::Fence, 4),
            ("```rust", Kind::Fence, 4),
            ("``words``", Kind::Prose, 3),
            ("``", Kind::Rule, 3),
            ("~~~", Kind::Fence, 4),
            ("~~~ ", Kind::Fence, 5),
            ("~~~~", Kind::Rule, 5),
            ("~~~~ rust", Kind::Fence, 6),
            ("~~~-~~~", Kind::Rule, 8),
            ("~~words~~", Kind::Prose, 3),
            ("{", Kind::Rule, 2),
            ("{ \"a\"", Kind::Prose, 4),
        ] {
            assert_eq!(kind_of(line, None), (expected, seen), "{line:?}");
        }
    }

    #[test]
    fn a_fence_is_closed_by_its_own_mark_alone() {
        for (line, expected, seen) in [
            ("words", Kind::Code, 1),
            ("```", Kind::Code, 4),
            ("````", Kind::Fence, 5),
            ("`````  ", Kind::Fence, 8),
            ("```` words", Kind::Code, 6),
            ("```` ````", Kind::Code, 6),
            ("~~~~", Kind::Code, 1),
        ] {
            assert_eq!(kind_of(line, Some(('`', 4))), (expected, seen), "{line:?}");
        }
    }

    #[test]
    fn the_text_of_a_line_is_what_is_not_its_mark() {
        for (line, kind, text) in [
            ("17", Kind::Prose, "17"),
            ("**", Kind::Prose, "**"),
            ("- **", Kind::Item, "**"),
            ("17.", Kind::Item, ""),
            ("##", Kind::Heading, ""),
            ("``", Kind::Code, "``"),
        ] {
            let mut head = Head::default();
            line.chars().for_each(|c| head.push(c));
            assert_eq!(head.text(kind).iter().collect::<String>(), text, "{line:?}");
        }
    }
}
