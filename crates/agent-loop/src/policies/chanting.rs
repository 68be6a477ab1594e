//! Chanting: the same words, again and again, in streamed text.
//!
//! A model that is stuck says one sentence until its limit of tokens ends it. This layer sees it while it streams, in
//! two ways, and the same way however the text was cut into pieces.
//!
//! # Windows of prose
//!
//! **The rule.** Take the last 50 characters of prose. Look backwards for where they stood before, counting an
//! occurrence only when it lies at least 50 characters before the one that was counted last, so that none overlap. When
//! ten are counted, the last one included, and the first lies at most 9 × 250 = 2250 characters before the last, and the
//! nine texts from each to the next are at most five different ones, then the text chants, at that character.
//!
//! A unit of `p` characters that is repeated without gaps is seen after `9 × p × ⌈50 / p⌉ + 50` characters, for p up to
//! 250: 500 characters for 1, 2, 5, 10, 25 and 50, 932 for 49 and 2300 for 250. One of more than 250 is never seen. So a
//! short unit, a laugh, 😀 or "no", needs 500 characters and more, and a hundred are healthy. Paragraphs that begin
//! alike and go on differently have more than five periods; a refrain has more than 250 characters between.
//!
//! Characters are Unicode scalar values as they come, not lower-cased; each run of white space is one blank.
//!
//! **Prose** is what is not code (fenced, or indented by four after a blank line), a row of a table, an entry of a list
//! (`-`, `*`, `+`, `•`, `1.`, `1)`), a heading, a quote, or a rule: a line of nothing but marks. A heading, an entry or a
//! quote begins a new run of prose, which repeats nothing from before it; code, tables and rules are left out. What looks
//! like JSON or a log is prose unless it is fenced. Of lines that are too long for what they seem to be, the rest is
//! prose: after 4096 characters, of a rule after 256.
//!
//! # Whole lines
//!
//! For what windows leave out: lines of at least 12 characters, without their bullet or number. The last sixteen are
//! equal, or the last sixteen pairs, triples or groups of four. Entries of lists and prose alone: code, tables, headings and
//! quotes legitimately repeat their lines.
//!
//! # What one text is
//!
//! Everything since the last tool call. The answers of several steps without a call between are one text, each a
//! document of its own: a fence that one of them left open is closed at its end.

mod head;
mod lines;
mod plain;
mod structure;
mod window;

use belay_protocol::{Finding, StopReason};

use self::head::Kind;
use self::lines::Lines;
use self::plain::Plain;
use self::structure::{Part, Structure};
use self::window::Window;
use super::observation::Observation;

/// The wire name of this kind of loop.
pub const CHANTING_IDENTICAL_SENTENCES: &str = "CHANTING_IDENTICAL_SENTENCES";

/// How far a repetition reaches back from its verdict at most, in characters, as far as it is looked for: more than the 2300
/// of prose, and sixteen groups of four long lines.
const LONGEST: usize = 16 * 1024;

/// Characters behind a verdict within which it is certain. 64: more than the head of a line, which is held back until its kind
/// is known.
const MORE_MAX_CHARS: usize = 64;

/// Characters at the beginning of a repetition that may be the end of the sentence before it. 3: a letter, a full stop, a blank.
const SHARED_MAX_CHARS: usize = 3;

/// What is remembered of the text of a run: at most 16 KiB, and next to nothing until there is prose.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Chanting {
    found: Option<Finding>,
    /// Characters read since the text began, up to the verdict.
    position: u64,
    /// Text has come since the last whole answer or step: the whole answer is going to repeat it.
    streamed: bool,
    structure: Structure,
    /// Something but a blank came last in the line.
    after_word: bool,
    lines: Lines,
    window: Option<Box<Window>>,
}

const _: () = assert!(size_of::<Chanting>() + size_of::<Window>() <= 16 * 1024, "the state of a run stays small");

/// A verdict, in numbers.
#[derive(Debug, PartialEq)]
struct Chant {
    /// Occurrences, or repetitions of a cycle of lines.
    count: u64,
    /// Characters from one to the next, on average.
    spacing: u64,
    /// Different texts between them.
    periods: u64,
    /// Lines in the cycle, where lines were compared.
    lines: Option<u64>,
    /// The beginning of what is repeated.
    quote: String,
}

impl Chanting {
    /// Takes what was seen: pieces of text, and whole answers that were not streamed; a tool call ends a text.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Text(piece) => {
                self.text(piece);
            }
            Observation::Assistant { text, .. } => {
                if !self.streamed {
                    self.text(text);
                }
                self.end_answer();
            }
            Observation::Step => self.end_answer(),
            Observation::ToolCall { .. } => self.clear(),
            Observation::Reset => *self = Self::default(),
            _ => {}
        }
    }

    /// Takes a piece of streamed text and tells whether the text chants by now.
    pub fn text(&mut self, piece: &str) -> bool {
        self.streamed |= !piece.is_empty();
        if self.found.is_none() {
            let read = self.read(piece);
            self.position += piece[..read].chars().count() as u64;
        }
        self.found.is_some()
    }

    /// The chanting that was found and stands.
    pub fn found(&self) -> Option<&Finding> {
        self.found.as_ref()
    }

    /// Characters that were read since the text began: up to the verdict where there is one.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The part of a text that comes before it begins to repeat itself, up to the end of its last sentence or line. `None`:
    /// it does not repeat itself.
    pub fn before_repetition(text: &str) -> Option<&str> {
        let read = Self::chants_at(text)?;
        // A blank is read with the character behind it, so that the verdict may need a little more than was read.
        let ends = text[read..].char_indices().map(|(at, c)| read + at + c.len_utf8()).take(MORE_MAX_CHARS);
        let verdict = std::iter::once(read).chain(ends).find(|end| Self::chants_at(&text[..*end]).is_some())?;
        // The verdict comes with the last of the repetitions that it counts. So the repetition begins at the latest place
        // from which there is a verdict at the same character, and from each earlier place there is one as well.
        let places: Vec<usize> = text[..verdict].char_indices().map(|(at, _)| at).rev().take(LONGEST).collect();
        let behind = places.partition_point(|at| Self::chants_at(&text[*at..verdict]).is_none());
        let start = places.get(behind).copied().unwrap_or(0);
        let is_end = |c: char| matches!(c, '.' | '!' | '?' | '…' | '。' | '\n');
        // The sentence before may end like the one that is repeated: its end then counts as repeated as well.
        let shared = text[start..].char_indices().take(SHARED_MAX_CHARS).find(|(_, c)| is_end(*c));
        let last = || text[..start].char_indices().rev().find(|(_, c)| is_end(*c));
        let end = shared.map(|(at, c)| start + at + c.len_utf8()).or_else(|| last().map(|(at, c)| at + c.len_utf8()));
        Some(text[..end.unwrap_or(0)].trim_end())
    }

    /// Where the text chants, in bytes.
    fn chants_at(text: &str) -> Option<usize> {
        let mut tracker = Self::default();
        let read = tracker.read(text);
        tracker.found.is_some().then_some(read)
    }

    /// Forgets everything, so that the text that follows is judged by itself. Only whether the answer under way was
    /// streamed is kept: a repetition of it as a whole is no new text.
    pub fn clear(&mut self) {
        *self = Self { streamed: self.streamed, ..Self::default() };
    }

    /// Ends an answer's last line and whatever it left open.
    fn end_answer(&mut self) {
        if std::mem::take(&mut self.streamed) && self.found.is_none() {
            self.read("\n\n");
            self.structure = Structure::default();
        }
    }

    /// Reads until there is a verdict, and tells how far, in bytes.
    fn read(&mut self, text: &str) -> usize {
        let mut rest = text;
        loop {
            let before = text.len() - rest.len();
            let (read, chant) = match self.structure.next(&mut rest) {
                None => return text.len(),
                Some(Part::Text(kind, part)) => {
                    self.take(kind, part).map_or((0, None), |(read, chant)| (before + read, Some(chant)))
                }
                Some(Part::Begin(kind, head)) => (text.len() - rest.len(), self.begin(kind, head.text(kind))),
                Some(Part::Spill) => continue,
                Some(Part::End(kind)) => {
                    let blank = if kind == Kind::Prose { self.window().blank() } else { None };
                    (text.len() - rest.len(), self.lines.end().or(blank))
                }
            };
            if let Some(chant) = chant {
                self.settle(chant);
                return read;
            }
        }
    }

    /// Begins a line with the first characters of its text, and ends the run of prose before it where it has to.
    fn begin(&mut self, kind: Kind, held: &[char]) -> Option<Chant> {
        self.after_word = false;
        self.lines.begin(kind);
        if let (Kind::Heading | Kind::Item | Kind::Quote, Some(window)) = (kind, &mut self.window) {
            window.restart();
        }
        held.iter().find_map(|c| self.take(kind, c.encode_utf8(&mut [0; 4])).map(|(_, chant)| chant))
    }

    /// Takes more of a line, and stops where it chants: how far that is, in bytes.
    fn take(&mut self, kind: Kind, text: &str) -> Option<(usize, Chant)> {
        if matches!(kind, Kind::Table | Kind::Rule | Kind::Fence) {
            return None;
        }
        let mut rest = text;
        while !rest.is_empty() {
            let (before, after_word) = (rest, self.after_word);
            let plain = Plain::read(&mut rest, &mut self.after_word);
            self.lines.take(plain.chars());
            if kind == Kind::Prose
                && let Some((at, chant)) = self.window().take(plain.chars())
            {
                let read = text.len() - before.len() + plain::end_of(before, after_word, at);
                return Some((read, chant));
            }
        }
        None
    }

    fn window(&mut self) -> &mut Window {
        self.window.get_or_insert_default()
    }

    /// Keeps the verdict and lets go of everything else.
    fn settle(&mut self, chant: Chant) {
        let mut finding = Finding::new(StopReason::Chanting, CHANTING_IDENTICAL_SENTENCES, chant.count, chant.count)
            .quoting(&chant.quote)
            .with("spacing", chant.spacing)
            .with("periods", chant.periods)
            .with("layer", if chant.lines.is_some() { "lines" } else { "window" });
        if let Some(lines) = chant.lines {
            finding = finding.with("lines", lines);
        }
        *self = Self { found: Some(finding), position: self.position, streamed: self.streamed, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::Chanting;

    #[test]
    fn what_comes_before_a_repetition_ends_with_its_last_sentence() {
        let long = "The rope holds as long as someone holds the rope, and so it goes on. ";
        for (before, unit, kept) in [
            ("I found three rooms. ", long, Some("I found three rooms.")),
            ("I found three rooms. Then ", "no ", Some("I found three rooms.")),
            ("Rooms:\n\n", "and again and again, ", Some("Rooms:")),
            ("", "the same words once more ", Some("")),
            ("I found three rooms. ", "", None),
        ] {
            let text = format!("{before}{}", unit.repeat(2000));
            assert_eq!(Chanting::before_repetition(&text), kept, "{before}{unit}");
        }
    }
}
