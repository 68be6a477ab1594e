//! Extracts the sentences of the prose in a Markdown text.

/// Replaces a piece of code or a quotation in a sentence.
pub(super) const OBJECT: char = '\u{FFFC}';

/// A sentence of prose, in lower case and with straight apostrophes.
pub(super) struct Sentence {
    /// The text, with its end mark if it has one.
    pub(super) text: String,
}

impl Sentence {
    /// Whether it is a question.
    pub(super) fn is_question(&self) -> bool {
        let text = self.text.trim_end_matches(['!', '.', ' ', '…']);
        text.ends_with(['?', '？']) || text.ends_with("か。") || text.ends_with('吗') || text.ends_with("吗。")
    }

    /// Its words. A comma, a colon and [`OBJECT`] are words of their own.
    pub(super) fn words(&self) -> Vec<&str> {
        let mut words = Vec::new();
        for chunk in self.text.split(|c: char| !is_word(c) && !is_mark(c)) {
            let mut rest = chunk;
            while let Some(at) = rest.find(is_mark) {
                let (word, tail) = rest.split_at(at);
                let mark = tail.chars().next().map_or(0, char::len_utf8);
                words.extend([word.trim_matches('\''), &tail[..mark]].into_iter().filter(|word| !word.is_empty()));
                rest = &tail[mark..];
            }
            words.extend(Some(rest.trim_matches('\'')).filter(|word| !word.is_empty()));
        }
        words
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '\''
}

fn is_mark(c: char) -> bool {
    matches!(c, ',' | ':' | OBJECT)
}

/// Returns the sentences of the prose in `text`.
pub(super) fn sentences(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    for paragraph in paragraphs(text) {
        split(&paragraph, &mut sentences);
    }
    sentences
}

/// Joins lines of prose to paragraphs. A fenced block is removed without ending the sentence around it, so a block
/// between two lines changes nothing.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut fence = None;
    for line in text.lines() {
        if let Some(open) = fence {
            if closes(line, open) {
                fence = None;
            }
            continue;
        }
        fence = opens(line);
        if fence.is_some() {
            continue;
        }
        let indented = line.starts_with("    ") || line.starts_with('\t');
        let line = line.trim();
        let quoted = line.starts_with('>');
        if line.is_empty() || indented || quoted || starts_block(line) {
            paragraphs.push(String::new());
        }
        if !indented
            && !quoted
            && let Some(paragraph) = paragraphs.last_mut()
        {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(&without_quotations(line));
            if line.starts_with('#') {
                paragraphs.push(String::new());
            }
        }
    }
    paragraphs
}

/// The character and the length of the fence that a line opens.
pub(super) fn opens(line: &str) -> Option<(char, usize)> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.chars().take_while(|c| *c == mark).count();
    // More backticks behind the opening ones make it inline code on a line of its own.
    (length >= 3 && !(mark == '`' && line[length..].contains('`'))).then_some((mark, length))
}

pub(super) fn closes(line: &str, (mark, length): (char, usize)) -> bool {
    let line = line.trim();
    line.chars().count() >= length && line.chars().all(|c| c == mark)
}

/// Whether a line begins a heading, a list item or a row of a table.
fn starts_block(line: &str) -> bool {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(['#', '|'])
        || ["- ", "* ", "+ ", "• "].iter().any(|bullet| line.starts_with(bullet))
        || (numbered.len() < line.len() && (numbered.starts_with(". ") || numbered.starts_with(") ")))
}

/// Returns a line in lower case with straight apostrophes. [`OBJECT`] replaces each piece of inline code and each
/// quotation.
fn without_quotations(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut before = ' ';
    // Closing marks that were searched for and not found. They are not searched for again, so that a line of opening
    // marks alone takes linear time.
    let mut missing: Vec<Closing> = Vec::new();
    while let Some(c) = rest.chars().next() {
        let after_mark = match closing_of(rest, c, before) {
            Some((opening, closing)) if !missing.contains(&closing) => match closing.end_in(&rest[opening..]) {
                Some(end) => Some(opening + end),
                None => {
                    missing.push(closing);
                    None
                }
            },
            _ => None,
        };
        match after_mark {
            Some(end) => {
                out.extend([' ', OBJECT, ' ']);
                before = OBJECT;
                rest = &rest[end..];
            }
            // Skips an unmatched run of backticks as a whole: a part of it must not match a shorter run.
            None if c == '`' => {
                rest = rest.trim_start_matches('`');
                before = '`';
                out.push(' ');
            }
            None => {
                match c {
                    '’' | 'ʼ' | '＇' => out.push('\''),
                    _ => out.extend(c.to_lowercase()),
                }
                before = c;
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

/// The mark that ends a quotation.
#[derive(Clone, Copy, PartialEq)]
enum Closing {
    /// A run of exactly this many backticks.
    Backticks(usize),
    /// One of two characters.
    Mark(char, char),
    /// This character, if no letter follows. Before a letter it is an apostrophe.
    Apostrophe(char),
}

impl Closing {
    /// The end of the closing mark, in bytes.
    fn end_in(self, text: &str) -> Option<usize> {
        match self {
            Self::Backticks(length) => {
                let mut at = 0;
                while let Some(next) = text[at..].find('`') {
                    let start = at + next;
                    let run = text[start..].bytes().take_while(|b| *b == b'`').count();
                    if run == length {
                        return Some(start + run);
                    }
                    at = start + run;
                }
                None
            }
            Self::Mark(one, other) => {
                text.char_indices().find(|(_, c)| *c == one || *c == other).map(|(at, c)| at + c.len_utf8())
            }
            Self::Apostrophe(mark) => text
                .match_indices(mark)
                .map(|(at, found)| at + found.len())
                .find(|end| !text[*end..].starts_with(char::is_alphanumeric)),
        }
    }
}

/// If `rest`, which begins with `c`, opens a quotation or inline code: the length of the opening mark, and the mark
/// that closes it.
fn closing_of(rest: &str, c: char, before: char) -> Option<(usize, Closing)> {
    let opening = c.len_utf8();
    let closing = match c {
        '`' => {
            let run = rest.bytes().take_while(|b| *b == b'`').count();
            return Some((run, Closing::Backticks(run)));
        }
        '"' | '＂' => Closing::Mark(c, c),
        '“' | '„' | '‟' => Closing::Mark('”', '“'),
        '«' => Closing::Mark('»', '»'),
        '»' => Closing::Mark('«', '«'),
        '‹' => Closing::Mark('›', '›'),
        '「' => Closing::Mark('」', '」'),
        '『' => Closing::Mark('』', '』'),
        '《' => Closing::Mark('》', '》'),
        '‘' | '‚' => Closing::Apostrophe(if c == '‘' { '’' } else { '‘' }),
        '\'' if !before.is_alphanumeric() && !rest[opening..].starts_with(char::is_whitespace) => {
            Closing::Apostrophe(c)
        }
        _ => return None,
    };
    Some((opening, closing))
}

/// Splits a paragraph into sentences. A Western end mark counts only before white space or at the end, so that `a.txt`
/// and `3.5` are not split.
fn split(paragraph: &str, sentences: &mut Vec<Sentence>) {
    let mut start = 0;
    let mut chars = paragraph.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let ends = match c {
            '。' | '！' | '？' | '｡' => true,
            '.' | '!' | '?' | '…' | ';' => chars.peek().is_none_or(|(_, next)| next.is_whitespace() || *next == ')'),
            _ => false,
        };
        if ends {
            let end = at + c.len_utf8();
            sentences.push(Sentence { text: paragraph[start..end].trim().to_owned() });
            start = end;
        }
    }
    let text = paragraph[start..].trim();
    if !text.is_empty() {
        sentences.push(Sentence { text: text.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use belay_testkit::clock::processor_time;

    use super::*;

    #[test]
    fn prose_is_what_remains_without_code_and_quotations() {
        for (text, expected) in [
            ("I’ll GO", vec!["i'll go"]),
            ("a.txt is 3.5 MB. Fine!", vec!["a.txt is 3.5 mb.", "fine!"]),
            ("one\ntwo\n\nthree", vec!["one two", "three"]),
            ("one\n```rust\ncode\n```\ntwo", vec!["one two"]),
            ("one\n~~~~\n~~~\n```\n~~~~\ntwo", vec!["one two"]),
            ("one\n```\nnever closed", vec!["one"]),
            ("```one line``` two", vec!["\u{FFFC}  two"]),
            ("one\n\n    code\n\ttoo\ntwo", vec!["one", "two"]),
            ("> said\nmine", vec!["mine"]),
            ("- a\n- b\n3. c\n# d\ne", vec!["- a", "- b", "3.", "c", "# d", "e"]),
            ("run `a` and ``b`c`` and `d", vec!["run  \u{FFFC}  and  \u{FFFC}  and  d"]),
            (
                "he said \"x\" and “y” and „z“ and «w»",
                vec!["he said  \u{FFFC}  and  \u{FFFC}  and  \u{FFFC}  and  \u{FFFC}"],
            ),
            ("'a b' isn't the users' c", vec!["\u{FFFC}  isn't the users' c"]),
            ("‘I’ll go’ she said", vec!["\u{FFFC}  she said"]),
            ("他说「我来查」。好", vec!["他说 \u{FFFC} 。", "好"]),
        ] {
            let found: Vec<String> = sentences(text).into_iter().map(|sentence| sentence.text).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn words_keep_apostrophes_and_marks() {
        let sentence = Sentence { text: "i'll check: a-b, \u{FFFC}'s \u{FFFC}.".into() };
        assert_eq!(sentence.words(), ["i'll", "check", ":", "a", "b", ",", "\u{FFFC}", "s", "\u{FFFC}"]);
    }

    #[test]
    fn opening_marks_alone_take_linear_time() {
        let text = "« „ ‘ '' \" ( ` `` ```x ".repeat(20_000);
        let before = processor_time();
        sentences(&text);
        let used = processor_time() - before;
        assert!(used < std::time::Duration::from_secs(5), "half a megabyte took {used:?}");
    }
}
