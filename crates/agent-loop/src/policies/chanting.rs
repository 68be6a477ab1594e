//! Detects chanting: the same text, repeated again and again in a stream.
//!
//! A model that is stuck repeats one sentence until its token limit ends the reply. This layer detects it while the
//! text streams, in two ways. The result does not depend on how the text was cut into pieces.
//!
//! # Windows of prose
//!
//! **The rule.** Take the last 50 characters of prose. Search backwards for earlier occurrences of them. Count an
//! occurrence only if it lies at least 50 characters before the one that was counted last, so that counted occurrences
//! do not overlap. The text chants at this character if three conditions hold: ten occurrences are counted, including
//! the last 50 characters themselves; the first lies at most 9 × 250 = 2250 characters before the last; and the nine
//! texts from each occurrence to the next are at most five different ones.
//!
//! A unit of `p` characters that is repeated without gaps is detected after `9 × p × ⌈50 / p⌉ + 50` characters, for p
//! up to 250: 500 characters for 1, 2, 5, 10, 25 and 50, 932 for 49 and 2300 for 250. A unit of more than 250
//! characters is never detected. A short unit, such as a laugh, 😀 or "no", needs at least 500 characters, so a hundred
//! repetitions of it are no finding. Paragraphs that begin alike and continue differently have more than five periods.
//! A refrain has more than 250 characters between its occurrences.
//!
//! Characters are Unicode scalar values, not lower-cased. Each run of white space is one blank.
//!
//! **Prose** is everything except code (fenced, or indented by four after a blank line), rows of tables, entries of
//! lists (`-`, `*`, `+`, `•`, `1.`, `1)`), headings, quotes, and rules, which are lines of nothing but marks. A
//! heading, an entry or a quote begins a new run of prose, which is not compared with the text before it. Code, tables
//! and rules are skipped. Unfenced JSON and logs are prose. If a line is too long for its kind, the rest of it is
//! prose: after 4096 characters, in a rule after 256.
//!
//! # Whole lines
//!
//! This layer covers what the windows do not see: lines of at least 12 characters, without their bullet or number. The
//! text chants if the last sixteen lines are equal, or the last sixteen pairs, triples or groups of four. Only entries
//! of lists and prose count: code, tables, headings and quotes legitimately repeat their lines.
//!
//! # Endless blocks
//!
//! Code, tables, quotes and headings that repeat one cycle of at most four lines for 1024 lines chant, however short
//! the lines are. Below that, and in the arguments of calls, which are not looked at, only the limits of the output
//! apply.
//!
//! # What was asked for
//!
//! A repetition that the person asked for is no chant, as far as it goes. So a finding is held back in three cases,
//! for so many repeated characters since the last tool call:
//!
//! - The repeated text is data (digits, a sequence of a few letters, values, records; never sentences or markup), and
//!   the request has a count: one and a half times the count. The count of cells, which have at most 16 characters, is
//!   the product of the two greatest numbers: "30 rows, 40 columns".
//! - The request has a count and contains the repeated text: the same.
//! - A message of the person or a result of a tool repeats itself and contains the repeated text three times: its
//!   length, and a quarter. The last three such texts are kept.
//!
//! Never more than 256 KiB. A held-back finding is considered again after 1024 characters, or 15 more lines.
//!
//! # Extent of one text
//!
//! One text is everything since the last tool call. The answers of several steps without a call between them are one
//! text. Each answer is a document of its own: a fence that is still open at its end is closed.

mod asked;
mod bulk;
mod counts;
mod cycles;
mod data;
mod head;
mod lines;
mod numerals;
mod plain;
mod read;
mod structure;
mod window;

use belay_protocol::{Finding, StopReason};
use serde::{Deserialize, Serialize};

use self::asked::Asked;
use self::bulk::Bulk;
use self::head::Kind;
use self::lines::Lines;
use self::plain::Plain;
use self::structure::{Part, Structure};
use self::window::Window;
use super::observation::Observation;

/// The wire name of this kind of loop.
pub const CHANTING_IDENTICAL_SENTENCES: &str = "CHANTING_IDENTICAL_SENTENCES";

/// Most characters that a repetition can reach back from its verdict, as far as it is searched for: more than the 2300
/// characters of prose, and more than sixteen groups of four long lines.
const LONGEST: usize = 16 * 1024;

/// Most characters behind a verdict until it is certain. 64: more than the head of a line, which is held back until the
/// kind of the line is known.
const MORE_MAX_CHARS: usize = 64;

/// Most characters at the beginning of a repetition that may belong to the end of the sentence before it. 3: a letter,
/// a full stop, a blank.
const SHARED_MAX_CHARS: usize = 3;

/// The chanting state of a run: at most 16 KiB, almost nothing before the first prose, and what was asked for. Only that
/// is stored, because a stream does not survive a restart.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(from = "Asked", into = "Asked")]
pub struct Chanting {
    found: Option<Finding>,
    /// Characters that were read since the text began, up to the verdict.
    position: u64,
    /// Text was streamed since the last complete answer or step. The complete answer will repeat it.
    streamed: bool,
    structure: Structure,
    /// The last character of the line was not a blank.
    after_word: bool,
    lines: Lines,
    bulk: Bulk,
    window: Option<Box<Window>>,
    patience: Patience,
}

/// The request for a repetition, and how much of it has been written.
#[derive(Clone, Debug, PartialEq, Default)]
struct Patience {
    asked: Asked,
    /// Repeated characters since the last tool call for which a finding was held back: by windows, and by lines.
    repeated: [u64; 2],
}

impl Patience {
    /// The same for the next text.
    fn renewed(&mut self) -> Self {
        Self { asked: std::mem::take(&mut self.asked), repeated: [0; 2] }
    }

    /// Whether this repetition was asked for so far.
    fn grants(&mut self, chant: &Chant) -> bool {
        let repeated = &mut self.repeated[usize::from(chant.lines.is_some())];
        *repeated = repeated.saturating_add(chant.fresh);
        *repeated <= self.asked.granted(chant)
    }
}

impl From<Asked> for Chanting {
    fn from(asked: Asked) -> Self {
        Self { patience: Patience { asked, repeated: [0; 2] }, ..Self::default() }
    }
}

impl From<Chanting> for Asked {
    fn from(chanting: Chanting) -> Self {
        chanting.patience.asked
    }
}

const _: () = assert!(size_of::<Chanting>() + size_of::<Window>() <= 16 * 1024, "the state of a run stays small");

/// The figures of a verdict.
#[derive(Debug, PartialEq)]
struct Chant {
    /// Occurrences of the window, or repetitions of a cycle of lines.
    count: u64,
    /// Characters from one to the next, on average.
    spacing: u64,
    /// Number of different texts between them.
    periods: u64,
    /// Lines in the cycle, if lines were compared.
    lines: Option<u64>,
    /// The beginning of the repeated text.
    quote: String,
    /// The shortest text that is repeated, or its beginning.
    unit: String,
    /// The length of the whole unit, in characters.
    size: u64,
    /// Characters that this finding covers and the one before did not.
    fresh: u64,
}

impl Chanting {
    /// Reads pieces of text, and complete answers that were not streamed. A tool call ends a text.
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
            Observation::User(text) => self.request(text),
            Observation::ToolResult { text, .. } => self.patience.asked.read_by_model(text),
            Observation::ToolCall { .. } => self.clear(),
            Observation::Reset => *self = Self::default(),
            _ => {}
        }
    }

    /// Whether nothing was asked for that would have to be stored.
    pub fn asks_nothing(&self) -> bool {
        self.patience.asked.is_empty()
    }

    /// Reads a message of the person. A recording has the request of a run as an event; a live run tells it here.
    pub fn request(&mut self, text: &str) {
        self.patience.asked.message(text);
    }

    /// Reads a piece of streamed text. Returns whether the text chants now.
    pub fn text(&mut self, piece: &str) -> bool {
        self.streamed |= !piece.is_empty();
        if self.found.is_none() {
            let read = self.read(piece);
            self.position += piece[..read].chars().count() as u64;
        }
        self.found.is_some()
    }

    /// The chanting that was found since the last tool call, if any.
    pub fn found(&self) -> Option<&Finding> {
        self.found.as_ref()
    }

    /// Characters that were read since the text began, up to the verdict if there is one.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the part of a text before its repetition, up to the end of the last sentence or line. `None`: the text
    /// does not repeat itself more than was asked for.
    pub fn before_repetition<'t>(&self, text: &'t str) -> Option<&'t str> {
        let chants_at = |text: &str| self.for_another_text().chants_at(text);
        let read = chants_at(text)?;
        // A blank is read together with the character behind it. So the verdict may need a few characters more than
        // were read.
        let ends = text[read..].char_indices().map(|(at, c)| read + at + c.len_utf8()).take(MORE_MAX_CHARS);
        let verdict = std::iter::once(read).chain(ends).find(|end| chants_at(&text[..*end]).is_some())?;
        // The verdict comes with the last repetition that it counts. So the repetition begins at the latest position
        // from which the same character gets a verdict. Every earlier position gives that verdict too. What was asked
        // for is kept: here each repetition counts.
        let places: Vec<usize> = text[..verdict].char_indices().map(|(at, _)| at).rev().take(LONGEST).collect();
        let behind = places.partition_point(|at| Self::default().chants_at(&text[*at..verdict]).is_none());
        let start = places.get(behind).copied().unwrap_or(0);
        let is_end = |c: char| matches!(c, '.' | '!' | '?' | '…' | '。' | '\n');
        // The sentence before may have the same end as the repeated sentence. Then that end counts as repeated too.
        let shared = text[start..].char_indices().take(SHARED_MAX_CHARS).find(|(_, c)| is_end(*c));
        let last = || text[..start].char_indices().rev().find(|(_, c)| is_end(*c));
        let end = shared.map(|(at, c)| start + at + c.len_utf8()).or_else(|| last().map(|(at, c)| at + c.len_utf8()));
        Some(text[..end.unwrap_or(0)].trim_end())
    }

    /// The position at which the text chants, in bytes.
    fn chants_at(mut self, text: &str) -> Option<usize> {
        let read = self.read(text);
        self.found.is_some().then_some(read)
    }

    /// Forgets the text, so that the text that follows is judged alone. `streamed` is kept, because the complete answer
    /// that repeats a streamed one is no new text, and what was asked for.
    pub fn clear(&mut self) {
        let patience = self.patience.renewed();
        *self = Self { streamed: self.streamed, patience, ..Self::default() };
    }

    /// A state for another text of the same request.
    pub fn for_another_text(&self) -> Self {
        Self { patience: self.patience.clone().renewed(), ..Self::default() }
    }

    /// Ends the last line of an answer and all blocks that are still open.
    fn end_answer(&mut self) {
        if std::mem::take(&mut self.streamed) && self.found.is_none() {
            self.read("\n\n");
            self.structure = Structure::default();
        }
    }

    /// Reads until there is a verdict. Returns how many bytes were read.
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
                    let window = (kind == Kind::Prose).then(|| self.window.get_or_insert_default());
                    let blank = window.and_then(|window| window.blank(&mut self.patience));
                    let lines = self.lines.end(&mut self.patience).or_else(|| self.bulk.end(&mut self.patience));
                    (text.len() - rest.len(), lines.or(blank))
                }
            };
            if let Some(chant) = chant {
                self.settle(chant);
                return read;
            }
        }
    }

    /// Begins a line with the first characters of its text. Ends the run of prose before it if the kind of line
    /// requires it.
    fn begin(&mut self, kind: Kind, held: &[char]) -> Option<Chant> {
        self.after_word = false;
        self.lines.begin(kind);
        self.bulk.begin(kind);
        if let (Kind::Heading | Kind::Item | Kind::Quote, Some(window)) = (kind, &mut self.window) {
            window.restart();
        }
        held.iter().find_map(|c| self.take(kind, c.encode_utf8(&mut [0; 4])).map(|(_, chant)| chant))
    }

    /// Reads more of a line and stops at the character where it chants. Returns that position in bytes, and the
    /// verdict.
    fn take(&mut self, kind: Kind, text: &str) -> Option<(usize, Chant)> {
        self.bulk.take(text);
        if matches!(kind, Kind::Table | Kind::Rule | Kind::Fence) {
            return None;
        }
        let mut rest = text;
        while !rest.is_empty() {
            let (before, after_word) = (rest, self.after_word);
            let plain = Plain::read(&mut rest, &mut self.after_word);
            self.lines.take(plain.chars());
            if kind == Kind::Prose
                && let Some((at, chant)) = self.window.get_or_insert_default().take(plain.chars(), &mut self.patience)
            {
                let read = text.len() - before.len() + plain::end_of(before, after_word, at);
                return Some((read, chant));
            }
        }
        None
    }

    /// Stores the verdict and drops all other state.
    fn settle(&mut self, chant: Chant) {
        let mut finding = Finding::new(StopReason::Chanting, CHANTING_IDENTICAL_SENTENCES, chant.count, chant.count)
            .quoting(&chant.quote)
            .with("spacing", chant.spacing)
            .with("periods", chant.periods)
            .with("layer", if chant.lines.is_some() { "lines" } else { "window" });
        if let Some(lines) = chant.lines {
            finding = finding.with("lines", lines);
        }
        let patience = self.patience.renewed();
        *self = Self {
            found: Some(finding),
            position: self.position,
            streamed: self.streamed,
            patience,
            ..Self::default()
        };
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
            assert_eq!(Chanting::default().before_repetition(&text), kept, "{before}{unit}");
        }
    }
}
