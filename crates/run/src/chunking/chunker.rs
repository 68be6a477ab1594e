//! Cuts a streamed answer into messages. Pure. The result does not depend on the fragments that the answer arrives in.
//!
//! A piece ends at the first wanted break after `min_chars`. If there is none before `max_chars`, it ends after the
//! last line, sentence or word, or else between two graphemes. A code block that is cut is closed with its own fence.
//! The next piece opens it again with the original opening line.

use std::ops::Range;

use unicode_segmentation::GraphemeCursor;

use super::config::{Break, MAX_CHARS_LEAST, StreamingConfig};

/// Maximum length of a line that opens or closes a code block, in characters. A longer line is text.
const FENCE_MAX_CHARS: usize = 60;

/// Lengths and break positions of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    min_chars: usize,
    max_chars: usize,
    break_at: Break,
}

impl Limits {
    /// Limits from the settings, for a channel that accepts messages of at most `channel_max` characters.
    pub(crate) fn new(config: &StreamingConfig, channel_max: usize) -> Self {
        let max_chars = config.max_chars.min(channel_max).max(MAX_CHARS_LEAST);
        Self { min_chars: config.min_chars.min(max_chars), max_chars, break_at: config.break_at }
    }

    /// Whether two pieces fit into one message.
    pub(crate) fn take_both(&self, one: &str, other: &str) -> bool {
        one.chars().count() + other.chars().count() + JOINT.len() <= self.max_chars
    }

    /// Whether a piece is long enough to be a message of its own.
    pub(crate) fn is_long_enough(&self, piece: &str) -> bool {
        piece.chars().count() >= self.min_chars
    }
}

/// Separator between pieces that are sent as one message.
pub(crate) const JOINT: &str = "\n\n";

/// A message cut from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The text to send.
    pub text: String,
    /// Its byte range in the answer.
    pub of: Range<usize>,
}

/// Cuts one answer.
#[derive(Clone, Debug)]
pub(crate) struct Chunker {
    limits: Limits,
    /// Received text that is in no piece yet.
    buffer: String,
    /// Length of the answer before the buffer, in bytes.
    before: usize,
    /// The opening line of the code block that the buffer begins in.
    fence: Option<String>,
    /// White space to drop at the beginning of the buffer.
    space: Space,
}

/// White space to drop before a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// All: this is the beginning of the answer.
    All,
    /// Line breaks only, to keep the indentation of the next line.
    Breaks,
    /// Blanks, then line breaks: the last piece ended within a line.
    Blanks,
    /// None: the last piece ended in code.
    Nothing,
}

/// The end of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Byte offset in the buffer.
    at: usize,
    within_line: bool,
}

impl Chunker {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, buffer: String::new(), before: 0, fence: None, space: Space::All }
    }

    /// Adds a fragment.
    pub(crate) fn push(&mut self, fragment: &str) {
        self.buffer.push_str(fragment);
    }

    /// The next piece, if its end is certain.
    pub(crate) fn next(&mut self) -> Option<Piece> {
        self.skip_space();
        let cut = self.cut()?;
        self.take(cut)
    }

    /// The next piece of an answer that is complete; `None` at its end.
    pub(crate) fn next_of_rest(&mut self) -> Option<Piece> {
        self.next().or_else(|| self.take(Cut { at: self.buffer.len(), within_line: false }))
    }

    /// The rest of the answer as one text of any length, if `behind` replaced the text after the pieces so far.
    pub(crate) fn rest_of(mut self, behind: &str) -> Option<String> {
        behind.clone_into(&mut self.buffer);
        self.skip_space();
        let text = self.buffer.trim_end();
        (!text.is_empty()).then(|| self.opened(text))
    }

    /// Drops the white space before a piece.
    fn skip_space(&mut self) {
        let breaks = ['\n', '\r'];
        let behind = match self.space {
            Space::All => self.buffer.trim_start(),
            Space::Breaks => self.buffer.trim_start_matches(breaks),
            Space::Blanks => {
                let line = self.buffer.trim_start_matches([' ', '\t']);
                if line.starts_with(breaks) {
                    self.space = Space::Breaks;
                }
                line.trim_start_matches(breaks)
            }
            Space::Nothing => &self.buffer,
        };
        let mut skipped = self.buffer.len() - behind.len();
        // A combining mark belongs to the blank before it, and may still come.
        let is_last = skipped == self.buffer.len() && self.buffer.ends_with(' ');
        if self.before > 0 && (is_last || !is_border(&self.buffer, skipped)) {
            skipped -= self.buffer[..skipped].chars().next_back().map_or(0, char::len_utf8);
        }
        self.skip(skipped);
    }

    fn skip(&mut self, bytes: usize) {
        self.buffer.drain(..bytes);
        self.before += bytes;
    }

    fn take(&mut self, cut: Cut) -> Option<Piece> {
        let open = fence_at(self.fence.clone(), &self.buffer[..cut.at]);
        let over = cut.at == self.buffer.len();
        let body = match &open {
            Some(_) => self.buffer[..cut.at].strip_suffix('\n').unwrap_or(&self.buffer[..cut.at]),
            None => self.buffer[..cut.at].trim_end(),
        };
        let of = self.before..self.before + body.len();
        let mut text = self.opened(body);
        if let Some(opening) = open.as_deref().filter(|_| !over) {
            text.push('\n');
            text.push_str(marks_of(opening));
        }
        let said = !body.trim().is_empty();
        self.space = match cut.within_line {
            _ if open.is_some() => Space::Nothing,
            true => Space::Blanks,
            false => Space::Breaks,
        };
        self.fence = open;
        self.skip(cut.at);
        said.then_some(Piece { text, of })
    }

    /// Adds the opening line of the current code block to a part from the beginning of the buffer.
    fn opened(&self, body: &str) -> String {
        match &self.fence {
            Some(opening) => format!("{opening}\n{body}"),
            None => body.to_owned(),
        }
    }

    /// The end of the next piece, if later text cannot change it.
    fn cut(&self) -> Option<Cut> {
        let reopened = self.fence.as_ref().map_or(0, |opening| opening.chars().count() + 1);
        let (min, max) = (self.limits.min_chars, self.limits.max_chars - reopened - (FENCE_MAX_CHARS + 1));
        let min = min.min(max);
        let offset = |chars: usize| self.buffer.char_indices().nth(chars).map(|(at, _)| at);
        let full = offset(max);
        let earliest = offset(min)?;
        let window = &self.buffer[..full.unwrap_or(self.buffer.len())];
        let places = Places::of(self.fence.clone(), window);
        let wanted = places.of_break(self.limits.break_at);
        if let Some(cut) = wanted.iter().find(|cut| cut.at >= earliest) {
            return Some(*cut);
        }
        full?;
        let behind = |cuts: &[Cut], from: usize| cuts.iter().rev().find(|cut| cut.at >= from).copied();
        let half = window.len() / 2;
        behind(&places.lines, earliest)
            .or_else(|| behind(&places.sentences, earliest))
            .or_else(|| behind(&places.words, earliest))
            .or_else(|| behind(&places.code_lines, half.min(earliest)))
            .or_else(|| behind(&places.words, half))
            .or_else(|| Some(hard(&self.buffer, window, places.unfinished_fence)))
    }
}

/// The last grapheme boundary in the window. If a code fence may be incomplete at the end of the window, the position
/// before its line.
fn hard(buffer: &str, window: &str, unfinished_fence: Option<usize>) -> Cut {
    if let Some(at) = unfinished_fence.filter(|at| *at > 0) {
        return Cut { at, within_line: false };
    }
    // A grapheme cluster as long as a message is no real letter, so it is cut.
    let at = (1..=window.len()).rev().find(|at| is_border(buffer, *at)).unwrap_or(window.len());
    Cut { at, within_line: true }
}

/// Whether a position is between two graphemes.
fn is_border(text: &str, at: usize) -> bool {
    text.is_char_boundary(at) && GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(true)
}

/// The positions where a text may be cut, in order.
#[derive(Default)]
struct Places {
    paragraphs: Vec<Cut>,
    /// Ends of lines outside of code.
    lines: Vec<Cut>,
    sentences: Vec<Cut>,
    words: Vec<Cut>,
    /// Ends of lines in code.
    code_lines: Vec<Cut>,
    /// Start of the last line, if it is incomplete and may be a code fence.
    unfinished_fence: Option<usize>,
}

impl Places {
    fn of(mut fence: Option<String>, text: &str) -> Self {
        let mut places = Self::default();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let whole = line.ends_with('\n');
            let end = start + line.trim_end_matches('\n').len();
            let mark = is_mark(line);
            if mark && !whole {
                places.unfinished_fence = Some(start);
                break;
            }
            if !mark && fence.is_none() {
                places.within(text, start..end);
            }
            fence = next_fence(fence, line);
            if whole {
                let cut = Cut { at: end, within_line: false };
                match &fence {
                    // The cut includes the line break, because reopening the block adds one.
                    Some(_) if !mark => places.code_lines.push(Cut { at: end + 1, ..cut }),
                    None if end > 0 => {
                        places.lines.push(cut);
                        if line.trim_end().ends_with(ends_sentence) {
                            places.sentences.push(cut);
                        }
                        if line.trim().is_empty() {
                            places.paragraphs.push(cut);
                        }
                    }
                    _ => {}
                }
            }
            start += line.len();
        }
        places
    }

    /// Collects the ends of sentences and words within the line at `line`, at blanks and after wide punctuation. A
    /// position that splits a grapheme does not count.
    fn within(&mut self, text: &str, line: Range<usize>) {
        let is_border = |at| GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(false);
        let (mut before, mut blanks) = (None, None);
        for (at, c) in text[line.clone()].char_indices().map(|(at, c)| (line.start + at, c)) {
            if [' ', '\t'].contains(&c) {
                blanks.get_or_insert(at);
                continue;
            }
            let wide_end = before.is_some_and(|before| ['。', '！', '？'].contains(&before));
            let end = blanks.take().or(wide_end.then_some(at)).filter(|end| *end > line.start);
            if let Some(end) = end.filter(|end| is_border(*end) && is_border(at)) {
                let cut = Cut { at: end, within_line: true };
                self.words.push(cut);
                if wide_end || before.is_some_and(ends_sentence) {
                    self.sentences.push(cut);
                }
            }
            before = Some(c);
        }
    }

    fn of_break(&self, wanted: Break) -> &[Cut] {
        match wanted {
            Break::Paragraph => &self.paragraphs,
            Break::Newline => &self.lines,
            Break::Sentence => &self.sentences,
        }
    }
}

fn ends_sentence(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '。' | '！' | '？')
}

/// The code block that is open after this text.
fn fence_at(fence: Option<String>, text: &str) -> Option<String> {
    text.split_inclusive('\n').fold(fence, next_fence)
}

/// The code block that is open after this line.
fn next_fence(fence: Option<String>, line: &str) -> Option<String> {
    if !is_mark(line) {
        return fence;
    }
    let line = line.trim_end();
    let marks = marks_of(line);
    match fence {
        None => Some(line.to_owned()),
        Some(opening) => {
            let closes = line.trim_start() == marks && marks.starts_with(marks_of(&opening));
            (!closes).then_some(opening)
        }
    }
}

/// Whether a line, or the beginning of one, is a code fence.
fn is_mark(line: &str) -> bool {
    let marks = marks_of(line);
    let indented = line.len() - line.trim_start_matches(' ').len();
    let fits = line.chars().nth(FENCE_MAX_CHARS).is_none();
    // A line with further backticks is inline code in a sentence.
    marks.len() >= 3
        && indented <= 3
        && fits
        && !(marks.starts_with('`') && line[indented + marks.len()..].contains('`'))
}

/// The fence characters at the beginning of a line.
fn marks_of(line: &str) -> &str {
    let line = line.trim_start_matches(' ');
    let mark = line.chars().next().filter(|c| ['`', '~'].contains(c)).unwrap_or('`');
    &line[..line.len() - line.trim_start_matches(mark).len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    use super::*;

    fn limits(min_chars: usize, max_chars: usize, break_at: Break) -> Limits {
        Limits::new(&StreamingConfig { min_chars, max_chars, break_at, ..StreamingConfig::default() }, usize::MAX)
    }

    fn cut<'f>(limits: Limits, fragments: impl IntoIterator<Item = &'f str>) -> Vec<Piece> {
        let mut chunker = Chunker::new(limits);
        let mut pieces = Vec::new();
        for fragment in fragments {
            chunker.push(fragment);
            pieces.extend(std::iter::from_fn(|| chunker.next()));
        }
        pieces.extend(std::iter::from_fn(|| chunker.next_of_rest()));
        pieces
    }

    fn texts(limits: Limits, text: &str) -> Vec<String> {
        cut(limits, [text]).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn a_piece_ends_where_it_is_wanted_as_soon_as_it_is_long_enough() {
        let text = "One. Two.\nThree.\n\nFour.\n\n  - five";
        let everything = [text];
        for (min, wanted, expected) in [
            (1, Break::Paragraph, vec!["One. Two.\nThree.", "Four.", "  - five"]),
            (1, Break::Newline, vec!["One. Two.", "Three.", "Four.", "  - five"]),
            (1, Break::Sentence, vec!["One.", "Two.", "Three.", "Four.", "  - five"]),
            (6, Break::Sentence, vec!["One. Two.", "Three.", "Four.\n\n  - five"]),
            (18, Break::Paragraph, vec!["One. Two.\nThree.\n\nFour.", "  - five"]),
            (200, Break::Paragraph, everything.to_vec()),
        ] {
            assert_eq!(texts(limits(min, 200, wanted), text), expected, "{min} {wanted:?}");
        }
    }

    #[test]
    fn nothing_is_said_before_it_is_certain_where_it_ends() {
        let mut chunker = Chunker::new(limits(5, 200, Break::Paragraph));
        chunker.push("a paragraph\n");
        assert_eq!(chunker.next(), None);
        chunker.push("\n");
        assert_eq!(chunker.next(), Some(Piece { text: "a paragraph".into(), of: 0..11 }));
        assert_eq!(chunker.next_of_rest(), None);
    }

    #[test]
    fn a_long_text_is_cut_at_a_line_a_sentence_a_word_or_a_letter() {
        // 139 characters fit: 200, minus the space for closing a code block.
        let fits = 139;
        for (text, first) in [
            (format!("{}\n{}. {} x", "a".repeat(110), "b".repeat(15), "c ".repeat(99)), "a".repeat(110)),
            (format!("{}. {}", "a".repeat(120), "c ".repeat(99)), "a".repeat(120) + "."),
            (format!("{} {}", "a".repeat(120), "c".repeat(99)), "a".repeat(120)),
            ("x".repeat(300), "x".repeat(fits)),
            ("👨‍👩‍👧".repeat(100), "👨‍👩‍👧".repeat(fits / 5)),
        ] {
            assert_eq!(texts(limits(100, 200, Break::Paragraph), &text)[0], first, "{text}");
        }
    }

    #[test]
    fn a_code_block_that_is_cut_is_closed_and_opened_again() {
        let lines: Vec<String> = (0..30).map(|n| format!("    line {n};")).collect();
        let text = format!("Look:\n\n```rust\n{}\n```\n\nThat is all.", lines.join("\n"));
        let pieces = texts(limits(50, 200, Break::Paragraph), &text);
        assert!(pieces.len() > 2, "{pieces:#?}");
        let mut code = Vec::new();
        for piece in &pieces {
            assert_eq!(piece.matches("```").count() % 2, 0, "{piece}");
            code.extend(piece.lines().filter(|line| line.starts_with("    line")).map(str::to_owned));
        }
        assert_eq!(code, lines);
        assert!(pieces[1].starts_with("```rust\n    line"), "{}", pieces[1]);
        assert!(pieces.last().is_some_and(|last| last.ends_with("```\n\nThat is all.")), "{pieces:#?}");
        // Blank lines in code are not paragraph breaks.
        let short = "```\na\n\nb\n```";
        assert_eq!(texts(limits(1, 200, Break::Paragraph), short), [short]);
        let tildes = "~~~~ text\n~~~\n```\n~~~~\n\nafter";
        assert_eq!(texts(limits(1, 200, Break::Paragraph), tildes), ["~~~~ text\n~~~\n```\n~~~~", "after"]);
    }

    #[test]
    fn the_rest_goes_on_behind_what_was_said() {
        let mut chunker = Chunker::new(limits(5, 200, Break::Paragraph));
        chunker.push("First of all.\n\nSec");
        let first = chunker.next().expect("a piece");
        let answer = "First of all.\n\nSecond, and more.";
        assert_eq!(chunker.rest_of(&answer[first.of.end..]).as_deref(), Some("Second, and more."));
        let mut chunker = Chunker::new(limits(5, 200, Break::Paragraph));
        chunker.push(&format!("```c\n{}", "x;\n".repeat(100)));
        assert!(chunker.next().is_some());
        assert_eq!(chunker.rest_of("y;\n```\n").as_deref(), Some("```c\ny;\n```"));
    }

    fn answers() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            4 => prop::sample::select(vec![
                "word ", "A sentence. ", "\n", "\n\n", "```\n", "```rust\n", "~~~\n", "    code();\n", "é́", "👨‍👩‍👧", "🇩🇪",
                "日本語。", " ", "``", "`x`", "\r\n",
            ])
            .prop_map(str::to_owned),
            1 => "\\PC{0,40}",
        ];
        prop::collection::vec(part, 0..120).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_answer_however_it_comes(
            answer in answers(),
            every in 1_usize..40,
            min in 1_usize..250,
            wanted in prop::sample::select(vec![Break::Paragraph, Break::Newline, Break::Sentence]),
        ) {
            let limits = limits(min, 200, wanted);
            let chars: Vec<String> = answer.chars().map(String::from).collect();
            let fragments: Vec<String> = chars.chunks(every).map(|chunk| chunk.concat()).collect();
            let pieces = cut(limits, fragments.iter().map(String::as_str));
            prop_assert_eq!(&pieces, &cut(limits, [answer.as_str()]));

            let mut from = 0;
            for piece in &pieces {
                prop_assert!(piece.text.chars().count() <= 200, "{}", piece.text);
                prop_assert!(answer[from..piece.of.start].trim().is_empty(), "{:?}", &answer[from..piece.of.start]);
                // Before the body is at most a line that reopens a block, after it at most a closing fence.
                let body = &answer[piece.of.clone()];
                // `rfind`: a body of fence characters alone also occurs in the line that reopens its block.
                let at = piece.text.rfind(body);
                prop_assert!(at.is_some(), "{:?} in {:?}", body, piece.text);
                let (before, behind) = piece.text.split_at(at.unwrap_or_default());
                let behind = &behind[body.len()..];
                let repaired = |line: &str| line.is_empty() || is_mark(line.trim_end_matches('\n').trim_start_matches('\n'));
                prop_assert!(repaired(before) && repaired(behind), "{:?} {:?}", before, behind);
                from = piece.of.end;
            }
            prop_assert!(answer[from..].trim().is_empty());
            let borders: Vec<usize> = answer.grapheme_indices(true).map(|(at, _)| at).chain([answer.len()]).collect();
            let longest = answer.graphemes(true).map(|cluster| cluster.chars().count()).max().unwrap_or(0);
            if longest < 70 {
                // The white space before the whole answer belongs to no piece, also if it carries combining marks.
                prop_assert!(pieces.iter().skip(1).all(|piece| borders.contains(&piece.of.start)));
            }
        }
    }
}
