//! Measures what each result adds to what the run knows, and finds stretches of calls that add nothing.
//!
//! A result is **news** if one of its lines was neither in an earlier result nor in the arguments of a call. Numbers do
//! not count in this comparison: a program that prints other ports, sizes or nonces each time tells nothing. What the
//! model wrote itself is no news either, so that the window that an editor shows after an edit is none.
//!
//! A call that was not made before, and whose short result nothing else had, is news too: the numbers of the items of a
//! batch count.
//!
//! Without news, an answer **repeats** one of the stretch since the last news:
//!
//! | answer | counts |
//! |---|---|
//! | the same call, the same answer, nothing changed in between | 1 |
//! | the same text written again to the same target, which nothing has changed since | 1 |
//! | a write that returns its target to an earlier state, if nothing new was written since | 1, from the second for a target; of several targets, the one with the most counts (`writes`) |
//! | the same call, only numbers differ, and none of them goes on rising or falling | ½ |
//! | another call of the same tool and program, and the refusal of the call before, word for word | 1 |
//! | another call that writes five lines or more, all of them known, with an answer that is known too | ½ |
//!
//! Everything else counts nothing: any other call that says "done" or nothing at all is work; refusals that take turns
//! ("too high", "too low") tell a bit each; numbered items that are all refused are a batch, unless the calls fail. A
//! number that an editor shows because the model has just written more lines is no progress.
//!
//! News halves the count, because a glance at something else between two guesses does not make the guesses better. For
//! the same reason a refusal is remembered over what a read shows: the very same call, refused again, repeats. Another
//! guess after such a glance may come from it, and begins anew. A message of a person, or a compaction, begins anew too;
//! a message that was there before ("go on") halves.

mod lines;

use std::cmp::Ordering;
use std::collections::VecDeque;

use belay_protocol::Arguments;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::digest;
use super::keys::{self, Class};
use super::pack::{self, Bytes, Packed, Text};

/// Lines that are stored as seen. 192: a loop repeats what the last results have said.
const LINES: usize = 192;

/// Answers of a stretch that are stored. A cycle of more calls is none.
const STRETCH: usize = 16;

/// Numbers of a result that are compared with those of the result before.
const NUMBERS: usize = 6;

/// The weight of a repeated answer. Weaker evidence has [`NEARLY`].
const REPEATED: u32 = 2;
const NEARLY: u32 = 1;

/// Lines from which the arguments of a call are a text.
const TEXT: usize = 5;

/// Messages of a person that are recognised when they come again.
const MESSAGES: usize = 4;

/// The information that the calls of a run have brought.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub(super) struct Gain {
    /// Digests of the lines that were seen, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    lines: VecDeque<u16>,
    /// The answers since the last news, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    stretch: VecDeque<Answer>,
    /// Twice the number of repeated answers.
    repeated: u32,
    /// Twice the most returns of one location to an earlier state that count since the last write of something new.
    #[serde(skip_serializing_if = "is_zero")]
    returned: u32,
    /// Digests of the newest messages of a person.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    messages: VecDeque<u32>,
}

/// One answer of a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Answer {
    /// Digest of the call.
    key: u32,
    /// Digest of the tool and of the program that it runs.
    program: u32,
    /// Digest of the arguments without their numbers; of a failed call with them.
    asked: u32,
    /// Digest of the result.
    exact: u32,
    /// Digest of the lines of the result without their numbers.
    lines: u32,
    /// The first numbers of the result.
    numbers: [u32; NUMBERS],
    /// The numbers that have never fallen, and those that have never risen, since the first answer to this call.
    rising: u8,
    falling: u8,
    /// Whether the call has changed something.
    changes: bool,
    /// Whether the call was refused.
    refused: bool,
    /// Whether there was news since.
    before_news: bool,
}

impl Packed for Answer {
    const SIZE: usize = 23 + 4 * NUMBERS;

    fn put(&self, out: &mut Text) {
        for number in [self.key, self.program, self.asked, self.exact, self.lines].iter().chain(&self.numbers) {
            number.put(out);
        }
        let flags = [self.changes, self.refused, self.before_news];
        let bits = flags.iter().enumerate().map(|(place, flag)| u8::from(*flag) << place).sum();
        out.extend_from_slice(&[self.rising, self.falling, bits]);
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        let [key, program, asked, exact, lines] = std::array::from_fn(|_| bytes.u32());
        let numbers = std::array::from_fn(|_| bytes.u32());
        let [rising, falling, bits] = bytes.next();
        let [changes, refused, before_news] = std::array::from_fn(|place| bits >> place & 1 == 1);
        Self { key, program, asked, exact, lines, numbers, rising, falling, changes, refused, before_news }
    }
}

impl Packed for u16 {
    const SIZE: usize = 2;

    fn put(&self, out: &mut Text) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(bytes: &mut Bytes<'_>) -> Self {
        bytes.u16()
    }
}

/// The question of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Question {
    /// Digest of the tool and of the program that it runs.
    pub(super) program: u32,
    /// Digest of the arguments without their numbers.
    pub(super) asked: u32,
    /// A line from the middle of the arguments.
    pub(super) written: u16,
    /// Whether the arguments are a text without a new line.
    pub(super) rewrites: bool,
}

/// A call with its result.
pub(super) struct Answered<'a> {
    /// Digest of the call.
    pub(super) key: u32,
    /// Its question.
    pub(super) question: Question,
    /// Digest of the result.
    pub(super) exact: u32,
    /// The result.
    pub(super) text: &'a str,
    /// Whether the call failed.
    pub(super) failed: bool,
    /// The meaning of the result.
    pub(super) says: Says,
    /// Whether the call has changed something.
    pub(super) changes: bool,
    /// The change that the call has made to a state.
    pub(super) state: Changed,
    /// Whether the call only reads.
    pub(super) reads: bool,
    /// Whether the call was not made before, and nothing had this result.
    pub(super) fresh: bool,
}

/// The change that a call has made to the state of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// None, or none that is known.
    Nothing,
    /// Something that was not written before.
    Anew,
    /// The target has an earlier state again: how many such returns of it count.
    Back(u32),
}

/// The meaning of a result, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// It failed, or says no.
    No,
    /// It says only that the call was done.
    Done,
    /// It is empty.
    Nothing,
    /// Anything else.
    Something,
}

impl Gain {
    /// Whether nothing has been seen.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes the arguments of a call: what the model writes is no news when a result shows it.
    pub(super) fn call(&mut self, tool: &str, arguments: &Arguments) -> Question {
        let mut asked = Vec::new();
        match arguments {
            Arguments::Object(map) => {
                let told = map.iter().filter(|(key, _)| keys::class(key, tool) != Class::Volatile);
                told.for_each(|(_, value)| written(value, &mut asked));
            }
            Arguments::Malformed(raw) => asked = lines::of(raw),
        }
        let news = self.learn(&asked);
        Question {
            program: program(tool, arguments),
            asked: lines::together(&asked),
            written: asked.get(asked.len() / 2).copied().unwrap_or(0) & 0xfffe,
            rewrites: !news && asked.len() >= TEXT,
        }
    }

    /// Takes a result. Returns the repeated answers since the last news, rounded down.
    pub(super) fn result(&mut self, answered: &Answered<'_>) -> u32 {
        let text = lines::of(answered.text);
        let program = answered.question.program;
        let news = self.learn(&text);
        let answer = Answer {
            key: answered.key,
            program,
            asked: if answered.failed { answered.key } else { answered.question.asked },
            exact: answered.exact,
            lines: lines::together(&text),
            numbers: lines::numbers(answered.text),
            rising: u8::MAX,
            falling: u8::MAX,
            changes: answered.changes,
            refused: answered.says == Says::No,
            before_news: false,
        };
        // A picture is not compared.
        let news = news || answered.fresh || answered.text.starts_with("[image");
        let (adds, answer) = if news { (Adds::News, answer) } else { self.adds(answered, &text, answer) };
        if let Adds::News = adds {
            self.begin_stretch(answered.reads);
        }
        match adds {
            Adds::News | Adds::Progress => self.repeated /= 2,
            Adds::Repeats(weight) => self.repeated += weight,
        }
        if self.stretch.len() == STRETCH {
            self.stretch.pop_front();
        }
        self.stretch.push_back(answer);
        match answered.state {
            Changed::Nothing => {}
            Changed::Anew => self.returned = 0,
            Changed::Back(count) => self.returned = self.returned.max(count * REPEATED),
        }
        (self.repeated + self.returned) / REPEATED
    }

    /// Begins a stretch after news. If a read brought the news, the refusals of the stretch before stay, and the changes
    /// since.
    fn begin_stretch(&mut self, by_reading: bool) {
        self.stretch.retain_mut(|before| {
            before.before_news = true;
            by_reading && (before.refused || before.changes)
        });
    }

    /// The addition of an answer without news.
    fn adds(&self, answered: &Answered<'_>, text: &[u16], mut answer: Answer) -> (Adds, Answer) {
        let says = answered.says;
        let Some(newest) = self.stretch.iter().rposition(|before| before.key == answer.key) else {
            return (Adds::Repeats(self.varied(answered, &answer)), answer);
        };
        let changed = self.stretch.range(newest..).any(|since| since.changes);
        // The numbers of an editor's window move because of what the model has written.
        let shows = text.iter().any(|line| line & 0xfffe == answered.question.written);
        let moves = answer.follow(&self.stretch[newest]) && !shows;
        let mut same = self.stretch.iter().filter(|before| before.key == answer.key);
        let adds = match () {
            () if changed || (says == Says::Done && !answered.question.rewrites) => Adds::Repeats(0),
            () if same.clone().any(|before| before.exact == answer.exact) => Adds::Repeats(REPEATED),
            () if moves => Adds::Progress,
            () if same.any(|before| before.lines == answer.lines) => Adds::Repeats(NEARLY),
            () => Adds::Repeats(0),
        };
        (adds, answer)
    }

    /// The weight of the answer to a call that was not made before in this stretch.
    fn varied(&self, answered: &Answered<'_>, answer: &Answer) -> u32 {
        let before = self.stretch.iter().rfind(|before| !before.before_news && before.program == answer.program);
        let refused = |before: &Answer| before.asked != answer.asked && before.exact == answer.exact;
        match answered.says {
            Says::No if before.is_some_and(refused) => REPEATED,
            Says::No | Says::Something if answered.question.rewrites => NEARLY,
            _ => 0,
        }
    }

    /// Stores these lines as seen. Returns whether one of them is new.
    fn learn(&mut self, lines: &[u16]) -> bool {
        let mut news = false;
        for line in lines {
            let (front, back) = self.lines.as_slices();
            if front.contains(line) || back.contains(line) {
                continue;
            }
            news = true;
            if self.lines.len() == LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(*line);
        }
        news
    }

    /// The answers since the last news, and the refusals before it that still count, as far as they are stored.
    pub(super) fn answers(&self) -> usize {
        self.stretch.len()
    }

    /// Takes a message of a person, which begins anew. The same message again does not. Returns whether it does.
    pub(super) fn message(&mut self, text: &str) -> bool {
        let message = digest::short(digest::of(text.trim().as_bytes()));
        if self.messages.contains(&message) {
            self.repeated /= 2;
            return false;
        }
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
        self.stretch.clear();
        (self.repeated, self.returned) = (0, 0);
        true
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Adds the lines of the texts in a value.
fn written(value: &Value, lines: &mut Vec<u16>) {
    match value {
        Value::String(text) => lines.append(&mut lines::of(text)),
        Value::Array(items) => items.iter().for_each(|value| written(value, lines)),
        Value::Object(map) => map.values().for_each(|value| written(value, lines)),
        _ => {}
    }
}

/// The addition of an answer.
enum Adds {
    /// Something that was not seen.
    News,
    /// A number that goes on rising or falling.
    Progress,
    /// A repetition, with its weight.
    Repeats(u32),
}

impl Answer {
    /// Compares the numbers with those of the answer before to the same call. Returns whether one has moved, and has
    /// never moved in the other direction.
    fn follow(&mut self, before: &Self) -> bool {
        (self.rising, self.falling) = (before.rising, before.falling);
        let mut moved = 0u8;
        for (place, (old, new)) in before.numbers.iter().zip(&self.numbers).enumerate() {
            let bit = 1 << place;
            match new.cmp(old) {
                Ordering::Greater => (self.falling, moved) = (self.falling & !bit, moved | bit),
                Ordering::Less => (self.rising, moved) = (self.rising & !bit, moved | bit),
                Ordering::Equal => {}
            }
        }
        moved & (self.rising | self.falling) != 0
    }
}

/// Digest of a tool and of the first word of the command that it runs.
fn program(tool: &str, arguments: &Arguments) -> u32 {
    let first = match arguments {
        Arguments::Object(map) => {
            ["command", "cmd"].iter().find_map(|key| map.get(*key)?.as_str()?.split_whitespace().next())
        }
        Arguments::Malformed(_) => None,
    };
    digest::short(digest::pair(digest::of(tool.as_bytes()), digest::of(first.unwrap_or_default().as_bytes())))
}
