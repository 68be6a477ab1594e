//! The newest calls of a run, and the calls whose results have not arrived yet.

use std::collections::VecDeque;

use super::call::{CallAnalysis, ECHO_WORDS, Echo, VolatileParts};
use super::gain::Question;
use super::pack::{Bytes, Packed, Text};
use super::words::Kind;
use super::writes::Effect;

/// Most calls that are stored. 40: eight cycles of five calls, or twenty idle calls with as many
/// thoughts between them.
pub(super) const HISTORY: usize = 40;

/// Most calls without a result that are stored. With more in one batch, the further calls are counted, but their
/// results are not examined. 20: more than run side by side.
const OPEN: usize = 20;

/// A call that has no result after this many later calls is assumed never to get one.
const OPEN_AGE: u32 = 2 * HISTORY as u32;

/// One call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Entry {
    /// The masked key.
    pub(super) key: u64,
    /// Digest of its result; 0 until the result is known.
    pub(super) result: u32,
    /// Digest of its target.
    pub(super) target: u32,
    /// The words of its prose.
    pub(super) sketch: u64,
    /// The index of its name in the table of names.
    pub(super) name: u8,
    /// Its kind.
    pub(super) kind: Kind,
    /// Digest of the numbers under keys without a known meaning, which may be items or a counter; 0: none.
    pub(super) numbers: u8,
    /// Whether its target is a web address.
    pub(super) web: bool,
    /// Whether it polls.
    pub(super) polls: bool,
    /// Whether it was not run, for a reason that is not its fault.
    pub(super) void: bool,
    /// Whether it polls while time passes.
    pub(super) fully_tolerant: bool,
    /// Whether it lets time pass, or its result said that something is in progress.
    pub(super) waits: bool,
}

impl Packed for Entry {
    const SIZE: usize = 27;

    fn put(&self, out: &mut Text) {
        out.extend_from_slice(&self.key.to_le_bytes());
        self.result.put(out);
        self.target.put(out);
        out.extend_from_slice(&self.sketch.to_le_bytes());
        out.extend_from_slice(&[self.name, self.numbers]);
        let flags = [self.web, self.polls, self.void, self.fully_tolerant, self.waits];
        let bits = flags.iter().enumerate().map(|(place, flag)| u8::from(*flag) << (3 + place)).sum::<u8>();
        out.push(self.kind as u8 | bits);
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        let (key, result, target, sketch) = (bytes.u64(), bytes.u32(), bytes.u32(), bytes.u64());
        let [name, numbers, bits] = bytes.next();
        let kind = Kind::ALL.get(usize::from(bits & 7)).copied().unwrap_or_default();
        let [web, polls, void, fully_tolerant, waits] = std::array::from_fn(|place| bits >> (3 + place) & 1 == 1);
        Self { key, result, target, sketch, name, kind, numbers, web, polls, void, fully_tolerant, waits }
    }
}

/// A call without a result yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Open {
    /// The number of the call, counted from the first of the run.
    pub(super) call: u32,
    /// Digest of its name.
    pub(super) name: u32,
    /// Whether it searches for words.
    pub(super) searches: bool,
    /// Whether a path, an id or a name identifies its target.
    pub(super) aimed: bool,
    /// The parts of its result that are no news.
    pub(super) volatile: VolatileParts,
    /// Whether its target is a file.
    pub(super) local: bool,
    /// The change that it makes.
    pub(super) effect: Effect,
    /// The words of its arguments.
    pub(super) echo: Echo,
    /// The question that it asks.
    pub(super) question: Question,
}

impl Packed for Open {
    const SIZE: usize = 32 + 3 * ECHO_WORDS;

    fn put(&self, out: &mut Text) {
        for number in [self.call, self.name, self.effect.place, self.effect.state, self.effect.back] {
            number.put(out);
        }
        out.push(self.echo.len as u8 | u8::from(self.searches) << 6 | u8::from(self.aimed) << 7);
        out.push(self.volatile as u8 | u8::from(self.local) << 7);
        for word in &self.echo.words {
            out.extend_from_slice(&word.to_le_bytes()[..3]);
        }
        self.question.program.put(out);
        self.question.asked.put(out);
        (self.question.written & 0xfffe | u16::from(self.question.rewrites)).put(out);
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        let (call, name) = (bytes.u32(), bytes.u32());
        let effect = Effect { place: bytes.u32(), state: bytes.u32(), back: bytes.u32() };
        let [bits, volatile] = bytes.next();
        let local = volatile & 128 != 0;
        let volatile = match volatile & 127 {
            0 => VolatileParts::None,
            1 => VolatileParts::Receipts,
            _ => VolatileParts::AllNumbers,
        };
        let words = std::array::from_fn(|_| {
            let [a, b, c] = bytes.next();
            u32::from_le_bytes([a, b, c, 0])
        });
        let echo = Echo { words, len: usize::from(bits & 63).min(ECHO_WORDS) };
        let (program, asked) = (bytes.u32(), bytes.u32());
        let line = bytes.u16();
        let question = Question { program, asked, written: line & 0xfffe, rewrites: line & 1 == 1 };
        Self { call, name, searches: bits & 64 != 0, aimed: bits & 128 != 0, volatile, local, effect, echo, question }
    }
}

impl Open {
    /// Stores a call until its result arrives.
    pub(super) fn push(open: &mut VecDeque<Self>, number: u32, call: &CallAnalysis, question: Question) {
        while open.front().is_some_and(|oldest| oldest.call + OPEN_AGE < number) {
            open.pop_front();
        }
        if open.len() < OPEN {
            let CallAnalysis { name, searches, aimed, volatile, effect, echo, .. } = *call;
            open.push_back(Self {
                call: number,
                name,
                searches,
                aimed,
                volatile,
                local: call.has_path,
                effect,
                echo,
                question,
            });
        }
    }

    /// Takes the oldest call of this name.
    pub(super) fn pop(open: &mut VecDeque<Self>, name: u32) -> Option<Self> {
        let at = open.iter().position(|call| call.name == name)?;
        open.remove(at)
    }
}

/// Stores one more call.
pub(super) fn push(history: &mut VecDeque<Entry>, entry: Entry) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(entry);
}
