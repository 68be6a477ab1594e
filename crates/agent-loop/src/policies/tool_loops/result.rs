//! The fingerprint of a result: its content without the parts that change by themselves, and without the words of its
//! own call.

use super::Part;
use std::collections::HashMap;
use std::sync::LazyLock;

use super::ToolLoopConfig;
use super::call::{Echo, VolatileParts};
use super::digest::{self, Digest};
use super::lexicon::lexicon;
use super::mask::{Piece, Place, pieces};

/// Letters and digits from which a result has enough content to be distinguished by it. 80: a line of text. A shorter
/// result is usually a verdict ("no results", "ok") that many different calls share.
const LONG: usize = 80;

/// Letters and digits from which a result is a sentence and not only a verdict.
const SENTENCE: usize = 40;

/// The length that is read of a longer result, from its beginning and from its end, in bytes.
const PART: usize = 8 * 1024;

/// The tone is determined within this many bytes from the beginning.
const TONE_WITHIN: usize = 512;

/// The beginning of a long result, in bytes, which reports success or failure if the result does so at all. Behind it,
/// "error" and "not" are ordinary words.
const OPENING: usize = 48;

/// The analysed form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResultAnalysis {
    /// Results with equal digests have the same content. Never 0.
    pub(super) digest: u32,
    /// Whether it has enough content of its own.
    pub(super) long: bool,
    /// Whether it is at least a sentence.
    pub(super) sentence: bool,
    /// Whether it is empty, or says that there is nothing.
    pub(super) empty: bool,
    /// Whether it says that something does not exist.
    pub(super) missing: bool,
    /// Whether it says no, nothing, or failed: anywhere in a short text, at the beginning of a long one.
    pub(super) negative: bool,
    /// Whether it says yes, done, or passed, and nothing else: anywhere in a short text, at the beginning of a long
    /// one.
    pub(super) positive: bool,
    /// Whether it says that something is in progress.
    pub(super) pending: bool,
    /// Whether it says that something has ended.
    pub(super) ended: bool,
}

impl ResultAnalysis {
    /// Analyses a result. `searches`: the call searched for words, which a long result may repeat.
    pub(super) fn of(
        config: &ToolLoopConfig,
        text: &str,
        failed: bool,
        echo: &Echo,
        searches: bool,
        volatile: VolatileParts,
    ) -> Self {
        let place = if config.has(Part::Masks) { Place::Result } else { Place::Plain };
        let bytes = text.as_bytes();
        let mut reader = Reader::new(echo, failed || searches, volatile);
        if bytes.len() <= 2 * PART {
            pieces(bytes, place, |piece| reader.take(piece));
        } else {
            pieces(&bytes[..PART], place, |piece| reader.take(piece));
            // The end part begins at a line, so that a longer time of day before it does not shift its words.
            let tail = &bytes[bytes.len() - PART..];
            let line = tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            pieces(&tail[line..], place, |piece| reader.take(piece));
            reader.whole.word(bytes.len() as u64 / 256);
            reader.news.word(bytes.len() as u64 / 256);
        }
        let analysis = reader.finish(failed);
        if config.has(Part::Tone) {
            return analysis;
        }
        let Self { digest, long, sentence, .. } = analysis;
        Self { digest, long, sentence, ..Self::default() }
    }
}

struct Reader<'a> {
    echo: &'a Echo,
    /// Whether the words of the call are recognised in a result of any length.
    listens: bool,
    /// Further parts that are no news.
    volatile: VolatileParts,
    /// The number of following words that may belong to a receipt.
    receipt: u8,
    /// Everything except volatile pieces.
    whole: Digest,
    /// Everything except volatile pieces and the words of the call.
    news: Digest,
    marks: u64,
    hidden: bool,
    echoed: bool,
    substance: usize,
    read: usize,
    tone: Tone,
    /// The tone of the beginning.
    opening: Tone,
}

impl<'a> Reader<'a> {
    fn new(echo: &'a Echo, listens: bool, volatile: VolatileParts) -> Self {
        Self {
            echo,
            listens,
            volatile,
            receipt: 0,
            whole: Digest::new(15),
            news: Digest::new(15),
            marks: 0,
            hidden: false,
            echoed: false,
            substance: 0,
            read: 0,
            tone: Tone::default(),
            opening: Tone::default(),
        }
    }

    fn take(&mut self, piece: Piece<'_>) {
        let piece = if self.volatile == VolatileParts::None { piece } else { self.without_receipts(piece) };
        match piece {
            Piece::Word(word) => {
                let digest = digest::of(word);
                self.whole.word(digest ^ self.marks);
                self.hidden = false;
                if self.read < TONE_WITHIN {
                    self.tone.word(word);
                }
                if !self.listens && self.substance >= LONG {
                    self.substance += word.len();
                } else if self.echo.has(digest) {
                    // A run of such words counts as one, whatever its length.
                    if !self.echoed {
                        self.news.word(1);
                    }
                    self.echoed = true;
                } else {
                    self.news.word(digest ^ self.marks);
                    self.echoed = false;
                    self.substance += word.len();
                }
                self.marks = 0;
                self.read += word.len() + 1;
                if self.read < OPENING {
                    self.opening = self.tone;
                }
            }
            Piece::Mark(mark) => {
                self.tone.mark(mark);
                self.marks = (self.marks ^ u64::from(mark)).wrapping_mul(0x100_0000_01b3);
                self.read += 1;
            }
            Piece::Volatile => {
                if !self.hidden {
                    self.whole.word(2);
                    self.news.word(2);
                }
                self.tone.break_off();
                (self.hidden, self.echoed, self.marks) = (true, false, 0);
            }
        }
    }

    /// Masks values that each change gets anew ("messageId": "48121", "revision": 3), and every number of a clock.
    fn without_receipts<'t>(&mut self, piece: Piece<'t>) -> Piece<'t> {
        match piece {
            Piece::Word(word) => {
                let number = word.iter().any(u8::is_ascii_digit);
                let hidden = number && (self.volatile == VolatileParts::AllNumbers || self.receipt > 0);
                self.receipt = if gives_receipt(word) { RECEIPT_WORDS } else { self.receipt.saturating_sub(1) };
                if hidden { Piece::Volatile } else { piece }
            }
            Piece::Mark(mark) => {
                if !matches!(mark, b':' | b'=' | b'#' | b'-') {
                    self.receipt = 0;
                }
                piece
            }
            Piece::Volatile => piece,
        }
    }

    fn finish(mut self, failed: bool) -> ResultAnalysis {
        self.whole.word(self.marks);
        if !self.echoed {
            self.news.word(self.marks);
        }
        let long = self.substance >= LONG;
        let tone = if long { self.opening.finish() } else { self.tone.finish() };
        // "Nothing found for …" is the same for every query. "Page 3" is not: it identifies the page.
        let denies = failed || tone.negative || tone.empty || tone.missing;
        let digest = if denies && (!long || self.listens) { self.news.finish() } else { self.whole.finish() };
        ResultAnalysis {
            digest: digest::short(digest::pair(digest, u64::from(failed))),
            long,
            sentence: self.substance >= SENTENCE,
            empty: self.substance == 0 || (!long && (tone.empty || (failed && tone.exit && self.substance <= 40))),
            missing: tone.missing,
            negative: tone.negative,
            positive: tone.positive && !tone.negative && !tone.empty && !tone.missing && !tone.pending,
            pending: self.substance < 3 * LONG && (tone.pending || (tone.running && self.substance <= 10)),
            ended: !long && tone.ended && !tone.pending && !tone.running,
        }
    }
}

/// Words after the name of a receipt that may be its value: `id: INV-2031` has two.
const RECEIPT_WORDS: u8 = 2;

/// Whether a word names a value that each change gets anew.
fn gives_receipt(word: &[u8]) -> bool {
    let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    let ends = word.ends_with(b"Id") || word.ends_with(b"_id") || word.ends_with(b"ID");
    ends || ["id", "receipt", "serial", "revision", "version", "rev", "seq", "sequence", "etag", "uid"]
        .iter()
        .any(|name| is(name))
}

/// The tone of the words so far.
#[derive(Clone, Copy, Default)]
struct Tone {
    positive: bool,
    negative: bool,
    empty: bool,
    missing: bool,
    pending: bool,
    running: bool,
    ended: bool,
    exit: bool,
    before: Before,
    bracket: u8,
    /// Whether the word before says that something is in progress. It does not count if it is the name of a value
    /// ("waiting": 3).
    under_way: bool,
}

/// The meaning of a single word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordMeaning {
    /// Trouble, unless a negation precedes it.
    Trouble,
    Failed,
    /// A problem that is not a failure. With a negation before it, the result is positive.
    Warning,
    No,
    Zero,
    /// The name of a value that tells trouble, unless the value is "false".
    Flag,
    Not,
    In,
    State,
    Found,
    Missing,
    Such,
    Empty,
    Things,
    Bad,
    Good,
    Done,
    Ended,
    UnderWay,
    Progress,
    Ready,
    Yet,
    Running,
    Exit,
    Nothing,
}

#[rustfmt::skip]
static TONES: LazyLock<HashMap<&'static str, WordMeaning>> = LazyLock::new(|| {
    lexicon(&[
        (WordMeaning::Trouble, "error errors problem problems failure failures fail vulnerabilities"),
        (WordMeaning::Failed, "failed"),
        (WordMeaning::Warning, "issue issues warning warnings"),
        (WordMeaning::No, "no"),
        (WordMeaning::Flag, "timed_out timedout truncated interrupted is_error iserror"),
        (WordMeaning::Zero, "0"),
        (WordMeaning::Not, "not cannot isn wasn doesn didn couldn"),
        (WordMeaning::In, "in"),
        (WordMeaning::State, "status state phase is still conclusion"),
        (WordMeaning::Found, "found exist exists"),
        (WordMeaning::Missing, "enoent 404 nonexistent"),
        (WordMeaning::Such, "such"),
        (WordMeaning::Empty, "none null nothing empty nil"),
        (WordMeaning::Things, "results result matches match hits items entries rows records"),
        (WordMeaning::Bad, "denied wrong incorrect timed invalid missing unable refused timeout exception traceback unauthorized forbidden false \
            failing unavailable blocked captcha robot login limit 429 403 401 500 503"),
        (WordMeaning::Good, "ok okay success successful successfully passed passes pass written wrote created updated saved deleted \
            removed added sent applied valid clean uploaded copied moved renamed installed accepted inserted modified \
            edited formatted committed pushed generated yes approved confirmed true healthy green 200 201 204 \
            available up"),
        (WordMeaning::Done, "done complete completed succeeded finished"),
        (WordMeaning::Ended, "cancelled canceled terminated"),
        (WordMeaning::UnderWay, "pending queued processing provisioning waiting initializing in_progress inprogress awaiting \
            awaiting_approval deploying building scheduled starting containercreating"),
        (WordMeaning::Progress, "progress"),
        (WordMeaning::Ready, "ready"),
        (WordMeaning::Yet, "yet"),
        (WordMeaning::Running, "running"),
        (WordMeaning::Exit, "exit"),
    ])
});

/// The meaning of the word before.
#[derive(Clone, Copy, Default, PartialEq)]
enum Before {
    #[default]
    Nothing,
    No,
    Zero,
    Flag,
    Not,
    In,
    State,
}

impl Tone {
    fn word(&mut self, word: &[u8]) {
        self.pending |= std::mem::take(&mut self.under_way);
        self.bracket = 0;
        let before = std::mem::take(&mut self.before);
        let mut lower = [0; 20];
        if word.len() > lower.len() {
            self.no_then(before);
            return;
        }
        let lower = &mut lower[..word.len()];
        lower.copy_from_slice(word);
        lower.make_ascii_lowercase();
        let says = TONES.get(str::from_utf8(lower).unwrap_or_default()).copied().unwrap_or(WordMeaning::Nothing);
        match says {
            WordMeaning::Trouble | WordMeaning::Failed | WordMeaning::Warning => {
                match before {
                    Before::No | Before::Zero => self.positive = true,
                    _ => self.negative |= says != WordMeaning::Warning,
                }
                self.ended |= says == WordMeaning::Failed && before == Before::State;
                return;
            }
            WordMeaning::No => self.before = Before::No,
            WordMeaning::Zero => self.before = Before::Zero,
            WordMeaning::Flag => self.before = Before::Flag,
            WordMeaning::Bad if before == Before::Flag && lower == b"false" => {}
            WordMeaning::Not => (self.negative, self.before) = (true, Before::Not),
            WordMeaning::In => self.before = Before::In,
            WordMeaning::State => self.before = Before::State,
            WordMeaning::Found => self.missing |= before == Before::Not,
            WordMeaning::Missing => (self.negative, self.missing) = (true, true),
            WordMeaning::Such => self.missing |= before == Before::No,
            WordMeaning::Empty => self.empty = true,
            WordMeaning::Things => self.empty |= matches!(before, Before::No | Before::Zero),
            WordMeaning::Bad => self.negative = true,
            WordMeaning::Good => self.positive |= before != Before::Not,
            WordMeaning::Done if before == Before::Not => self.pending = true,
            WordMeaning::Done => (self.positive, self.ended) = (true, true),
            WordMeaning::Ended => self.ended = true,
            WordMeaning::UnderWay => self.under_way = true,
            WordMeaning::Progress => self.pending |= before == Before::In,
            WordMeaning::Ready => self.pending |= before == Before::Not,
            WordMeaning::Yet => self.pending = true,
            WordMeaning::Running => {
                self.running = true;
                self.pending |= before == Before::State;
            }
            WordMeaning::Exit => self.exit = true,
            WordMeaning::Nothing => {}
        }
        if self.before == Before::Nothing {
            self.no_then(before);
        }
    }

    /// "no" before a word that is not trouble makes the result negative.
    fn no_then(&mut self, before: Before) {
        self.negative |= before == Before::No;
    }

    fn mark(&mut self, mark: u8) {
        self.empty |= matches!((self.bracket, mark), (b'[', b']') | (b'{', b'}'));
        self.bracket = mark;
        self.pending |= std::mem::take(&mut self.under_way) && mark != b':';
    }

    fn break_off(&mut self) {
        (self.before, self.bracket) = (Before::Nothing, 0);
    }

    fn finish(mut self) -> Self {
        self.pending |= self.under_way;
        self.no_then(self.before);
        self
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;

    use super::super::call::CallAnalysis;
    use super::*;

    fn analysis(call: &str, text: &str) -> ResultAnalysis {
        let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
        let call = CallAnalysis::of(&ToolLoopConfig::default(), name, &Arguments::parse(arguments), None);
        ResultAnalysis::of(&ToolLoopConfig::default(), text, false, &call.echo, call.searches, call.volatile)
    }

    #[test]
    fn results_tell_the_same_whatever_changes_by_itself_and_repeats_the_call() {
        let page =
            |name: &str| format!("{name} {}", "is a member of the team and has been so for a long while ".repeat(3));
        for (one, other, same) in [
            (("f", "ok at 12:03:44".to_owned()), ("f", "ok at 12:09:01".to_owned()), true),
            (("f", "12 failed".into()), ("f", "11 failed".into()), false),
            (("f", r#"{"a": [1, 2]}"#.into()), ("f", r#"{"a":[1,2]}"#.into()), true),
            (("f", "[]".into()), ("f", "{}".into()), false),
            (
                (r#"s {"query":"fix foo"}"#, "No results for 'fix foo'.".into()),
                (r#"s {"query":"how to mend foo now"}"#, "No results for 'how to mend foo now'.".into()),
                true,
            ),
            ((r#"g {"id":5}"#, "no order 5".into()), (r#"g {"id":61}"#, "no order 61".into()), true),
            ((r#"g {"id":5}"#, "3 of order 5".into()), (r#"g {"id":61}"#, "4 of order 61".into()), false),
            ((r#"g {"page":5}"#, "page 5".into()), (r#"g {"page":6}"#, "page 6".into()), false),
            ((r#"g {"name":"ann"}"#, page("ann")), (r#"g {"name":"bob"}"#, page("bob")), false),
            // Each change gets a new receipt. A list of existing things has ids that identify them.
            (
                (r#"send {"text":"hi"}"#, r#"{"messageId": "481"}"#.into()),
                (r#"send {"text":"hi"}"#, r#"{"messageId": "497"}"#.into()),
                true,
            ),
            (
                ("create_invoice", "created, id: INV-2031".into()),
                ("create_invoice", "created, id: INV-2032".into()),
                true,
            ),
            (("create_invoice", "created for 2031".into()), ("create_invoice", "created for 2032".into()), false),
            (
                ("next_message", r#"{"messageId": "481"}"#.into()),
                ("next_message", r#"{"messageId": "497"}"#.into()),
                false,
            ),
            // The seconds of a clock, the ids of processes.
            ((r#"bash {"command":"date +%S"}"#, "13".into()), (r#"bash {"command":"date +%S"}"#, "15".into()), true),
            (
                (r#"bash {"command":"pgrep make"}"#, "4711".into()),
                (r#"bash {"command":"pgrep make"}"#, "4823".into()),
                true,
            ),
            ((r#"bash {"command":"wc -l a"}"#, "4711".into()), (r#"bash {"command":"wc -l a"}"#, "4823".into()), false),
            (("f", "x".repeat(40_000)), ("f", "x".repeat(50_000)), false),
        ] {
            assert_eq!(analysis(one.0, &one.1).digest == analysis(other.0, &other.1).digest, same, "{one:?} {other:?}");
        }
    }

    #[test]
    fn the_tone_of_a_result_is_heard() {
        for (text, tones) in [
            ("", "empty"),
            ("[]", "empty"),
            (r#"{"status":"ok","results":[]}"#, "empty"),
            ("No results found.", "empty negative"),
            ("0 matches", "empty"),
            ("File not found", "missing negative"),
            ("No such file or directory", "missing negative"),
            ("12 failed, 3 passed", "negative"),
            ("written", "positive"),
            ("All checks passed, 0 errors", "positive"),
            ("no issues", "positive"),
            ("not ready", "negative pending"),
            (r#"{"status":"running"}"#, "pending"),
            ("in progress", "pending"),
            ("running 3 tests", ""),
            (r#"{"waiting":null}"#, "empty"),
            (r#"{"state":"awaiting_approval"}"#, "pending"),
            ("job completed", "positive ended"),
            (r#"{"state":"failed"}"#, "negative ended"),
            ("weather: 21 degrees", ""),
        ] {
            let analysis = analysis("f", text);
            let heard: Vec<&str> = [
                (analysis.empty, "empty"),
                (analysis.missing, "missing"),
                (analysis.negative, "negative"),
                (analysis.positive, "positive"),
                (analysis.pending, "pending"),
                (analysis.ended, "ended"),
            ]
            .into_iter()
            .filter_map(|(heard, word)| heard.then_some(word))
            .collect();
            assert_eq!(heard.join(" "), tones, "{text}");
        }
    }
}
