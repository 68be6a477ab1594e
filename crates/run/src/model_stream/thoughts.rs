//! Separates reasoning from text, for models that write it into their text as `<think>…</think>`. Works while the text
//! streams. Pure.
//!
//! A tag in code is a quotation and stays. Text after a start tag without an end tag is reasoning, never an answer.

/// Names of the tags, in lower case.
const NAMES: [&str; 5] = ["think", "thinking", "thought", "reasoning", "antthinking"];
/// Maximum length of a tag, in bytes: a name and a few blanks. Anything longer is text.
const TAG_MAX_BYTES: usize = 24;

/// Kind of a piece of a model's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of the answer.
    Text,
    /// Reasoning.
    Thought,
}

/// Splits a text into answer and reasoning. The result does not depend on the fragments that the text arrives in.
#[derive(Debug, Default)]
pub(crate) struct Thoughts {
    thinking: bool,
    /// A possible beginning of a tag, starting with `<`.
    tag: String,
    code: Code,
}

impl Thoughts {
    /// Adds a fragment, and passes on the parts whose kind is certain, in order.
    pub(crate) fn push(&mut self, piece: &str, out: &mut impl FnMut(Kind, &str)) {
        let mut from = 0;
        for (at, c) in piece.char_indices() {
            if !self.tag.is_empty() {
                self.tag.push(c);
                from = at + c.len_utf8();
                match read_tag(&self.tag) {
                    Tag::Open if !self.thinking => self.thinking = true,
                    Tag::Open => {}
                    Tag::Close => self.thinking = false,
                    Tag::Unfinished => continue,
                    Tag::No => {
                        self.tag.pop();
                        self.release(out);
                        from = at;
                        self.begin(c, at, piece, &mut from, out);
                        continue;
                    }
                }
                self.tag.clear();
                continue;
            }
            self.begin(c, at, piece, &mut from, out);
        }
        self.hand_on(&piece[from..], out);
    }

    /// Ends the text: an unfinished tag is text.
    pub(crate) fn finish(&mut self, out: &mut impl FnMut(Kind, &str)) {
        self.release(out);
        *self = Self::default();
    }

    /// Handles one character outside of a tag.
    fn begin(&mut self, c: char, at: usize, piece: &str, from: &mut usize, out: &mut impl FnMut(Kind, &str)) {
        if c == '<' && (self.thinking || !self.code.is_open()) {
            self.hand_on(&piece[*from..at], out);
            self.code.see('<');
            self.tag.push('<');
            *from = at + 1;
        } else if !self.thinking {
            self.code.see(c);
        }
    }

    fn release(&mut self, out: &mut impl FnMut(Kind, &str)) {
        let tag = std::mem::take(&mut self.tag);
        self.hand_on(&tag, out);
    }

    fn hand_on(&self, text: &str, out: &mut impl FnMut(Kind, &str)) {
        if !text.is_empty() {
            out(if self.thinking { Kind::Thought } else { Kind::Text }, text);
        }
    }
}

/// Removes the reasoning from a whole text.
pub(crate) fn without(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut keep = |kind, piece: &str| {
        if kind == Kind::Text {
            kept.push_str(piece);
        }
    };
    let mut thoughts = Thoughts::default();
    thoughts.push(text, &mut keep);
    thoughts.finish(&mut keep);
    kept
}

enum Tag {
    Open,
    Close,
    /// It may become a tag.
    Unfinished,
    No,
}

/// Parses `<think>` and similar tags: in any case, with blanks around the name.
fn read_tag(tag: &str) -> Tag {
    let Some(inner) = tag.strip_prefix('<').filter(|_| tag.len() <= TAG_MAX_BYTES) else { return Tag::No };
    let (inner, whole) = match inner.strip_suffix('>') {
        Some(inner) => (inner, true),
        None => (inner, false),
    };
    let blank = [' ', '\t'];
    let inner = inner.trim_start_matches(blank);
    let (inner, closes) = match inner.strip_prefix('/') {
        Some(inner) => (inner.trim_start_matches(blank), true),
        None => (inner, false),
    };
    let name = inner.trim_end_matches(blank).to_ascii_lowercase();
    if whole {
        return match NAMES.contains(&&*name) {
            true if closes => Tag::Close,
            true => Tag::Open,
            false => Tag::No,
        };
    }
    // A blank after the name ends it.
    let ended = !name.is_empty() && inner.ends_with(blank);
    let fits = |known: &&str| if ended { **known == name } else { known.starts_with(&name) };
    if NAMES.iter().any(fits) { Tag::Unfinished } else { Tag::No }
}

/// Tracks whether a text is within code: a fenced block, or a span on one line.
#[derive(Debug)]
struct Code {
    open: Option<Marks>,
    /// The run of fence characters at the current end.
    run: Option<Marks>,
    /// Whether only blanks precede the current position in its line, apart from `run`.
    line_start: bool,
}

/// A run of equal fence characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    mark: char,
    length: usize,
    /// Whether it begins its line.
    at_start: bool,
}

impl Marks {
    fn fences(self) -> bool {
        self.at_start && self.length >= 3
    }
}

impl Default for Code {
    fn default() -> Self {
        Self { open: None, run: None, line_start: true }
    }
}

impl Code {
    fn is_open(&self) -> bool {
        let opening = self.run.is_some_and(|run| self.open.is_none() && (run.fences() || run.mark == '`'));
        // A run of fence characters ends an inline span before any character, but a block only before white space, so
        // never before a tag.
        let ending = self.run.is_some_and(|run| self.open.is_some_and(|open| !open.fences() && ends(open, run)));
        opening || self.open.is_some() && !ending
    }

    fn see(&mut self, c: char) {
        match &mut self.run {
            Some(run) if run.mark == c => {
                run.length += 1;
                return;
            }
            Some(_) => self.settle(c),
            None => {}
        }
        match c {
            '`' | '~' => self.run = Some(Marks { mark: c, length: 1, at_start: self.line_start }),
            '\n' => {
                self.open = self.open.filter(|open| open.fences());
                self.line_start = true;
                return;
            }
            _ => {}
        }
        self.line_start &= c == ' ';
    }

    /// Ends the current run of fence characters.
    fn settle(&mut self, next: char) {
        let Some(run) = self.run.take() else { return };
        self.open = match self.open {
            Some(open) if ends(open, run) && (!open.fences() || next.is_whitespace()) => None,
            None if run.fences() || run.mark == '`' => Some(run),
            other => other,
        };
    }
}

/// Whether `run` closes what `open` has opened.
fn ends(open: Marks, run: Marks) -> bool {
    match open.fences() {
        true => run.mark == open.mark && run.fences() && run.length >= open.length,
        false => run.mark == open.mark && run.length == open.length,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text and the reasoning of these fragments.
    fn read<'p>(pieces: impl IntoIterator<Item = &'p str>) -> (String, String) {
        let (mut text, mut thought) = (String::new(), String::new());
        let mut out = |kind, piece: &str| match kind {
            Kind::Text => text.push_str(piece),
            Kind::Thought => thought.push_str(piece),
        };
        let mut thoughts = Thoughts::default();
        pieces.into_iter().for_each(|piece| thoughts.push(piece, &mut out));
        thoughts.finish(&mut out);
        (text, thought)
    }

    #[test]
    fn reasoning_is_taken_out_of_the_text_but_not_out_of_code() {
        for (whole, text, thought) in [
            ("plain", "plain", ""),
            ("<think>hm</think>yes", "yes", "hm"),
            ("<THINKING>hm</Thinking>yes", "yes", "hm"),
            ("< think >hm</ think >yes", "yes", "hm"),
            ("a<thought>b</thought>c<reasoning>d</reasoning>e", "ace", "bd"),
            ("<think>never closed", "", "never closed"),
            ("<think>half closed</thi", "", "half closed</thi"),
            ("no opening</think>yes", "no openingyes", ""),
            ("<think>a<think>b</think>c", "c", "ab"),
            ("a <b> c", "a <b> c", ""),
            ("1 < 2 <think", "1 < 2 <think", ""),
            ("<thinker>x", "<thinker>x", ""),
            ("<think of it>x", "<think of it>x", ""),
            ("<<think>a</think>b", "<b", "a"),
            ("`<think>` is a tag", "`<think>` is a tag", ""),
            ("``a ` <think>`` <think>x", "``a ` <think>`` ", "x"),
            ("```\n<think>\n```\n<think>x</think>y", "```\n<think>\n```\ny", "x"),
            ("~~~html\n<think>\n~~~\ny", "~~~html\n<think>\n~~~\ny", ""),
            ("it's a ` mark\n<think>x</think>y", "it's a ` mark\ny", "x"),
            ("<think>`</think>y", "y", "`"),
            ("```\n~~~\n<think>", "```\n~~~\n<think>", ""),
        ] {
            assert_eq!(read([whole]), (text.to_owned(), thought.to_owned()), "{whole:?}");
            assert_eq!(without(whole), text, "{whole:?}");
        }
    }

    proptest! {
        #[test]
        fn every_slicing_gives_the_same(
            parts in prop::collection::vec(
                prop::sample::select(vec!["<", "think", ">", "</", "THINKING", " ", "\n", "`", "```", "~~~", "é", "x"]),
                0..24,
            ),
            every in 1_usize..5,
        ) {
            let whole = parts.concat();
            let chars: Vec<String> = whole.chars().map(String::from).collect();
            let pieces: Vec<String> = chars.chunks(every).map(|chunk| chunk.concat()).collect();
            prop_assert_eq!(read(pieces.iter().map(String::as_str)), read([whole.as_str()]));
        }
    }
}
