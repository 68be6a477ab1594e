//! Detects loops of tool calls: the same calls, repeated without new information.
//!
//! Each call becomes a **key** without the parts that change by themselves (`call`, `keys`, `mask`). Each result
//! becomes a digest of its content (`result`). A call is **progress** if it brings new information, which the code
//! calls *news*: a read with a result that was not seen before, or a change that was not made before. Every other call
//! counts towards one of four kinds of loop:
//!
//! | kind | pattern | file |
//! |---|---|---|
//! | [`CONSECUTIVE_IDENTICAL_TOOL_CALLS`] | a cycle of one to five calls, five times; found at the call that completes it | `cycles` |
//! | [`REPEATED_CALLS_WITHOUT_PROGRESS`] | one call with one result, five times, with any calls between them; or four answers that repeat earlier ones since the last line that was not seen before; or twenty calls in a row without news | `repeats`, `gain` |
//! | [`SAME_RESULT_FOR_VARIED_ARGUMENTS`] | different calls with the same result | `varied` |
//! | [`POLLING_WITHOUT_PROGRESS`] | a question about the state of something, with the same answer 24 times | `repeats` |
//!
//! News makes a pattern healthy that would otherwise be a loop: failing tests are run again after each edit, a status is
//! polled until it changes, pages follow each other. Different targets do the same: a batch that answers "ok" or "no
//! matches" for each of forty files is work.

//!
//! These principles decide which calls are the same, what is news, and which calls wait. Each has its rows in
//! `tests/table`:
//!
//! - **Values that every call gets anew are no news**: receipts and revisions of a change, the numbers of a clock or of
//!   processes, remaining credits (`result`, `shapes`). A parameter that only defeats a cache does not make another
//!   address (`values`).
//! - **Time decides what is polling**: a tool with the name of a poll counts as polling if the run has no clock, if the
//!   calls are ten seconds apart, or if a call waits. If it is called as fast as possible, half as many repetitions are
//!   allowed (`repeats`).
//! - **Several different calls are a poll** only if one of them waits, if a result says that something is in progress,
//!   or if time passes between the calls of each (`cycles`). In a file, "pending" is content, not a state.
//! - **Wording is not a target**: the target of a glob is a folder, that of a query its tables, its values and the
//!   columns of its conditions, that of a program its files and numbers, that of a prompt the other arguments
//!   (`reader`). Different questions about one target that get the same sentence are the same question (`varied`).
//! - **Notes are not work**. The same note again is a repetition.

mod call;
mod command;
mod config;
mod cycles;
mod digest;
mod gain;
mod history;
mod keys;
mod lexicon;
mod mask;
mod outline;
mod pack;
mod parts;
mod quote;
mod reader;
mod repeats;
mod result;
mod shapes;
mod values;
mod varied;
mod words;
mod writes;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use belay_protocol::{Arguments, Finding, StopReason, ToolSpec};
use serde::{Deserialize, Serialize};

pub use self::config::ToolLoopConfig;
pub use self::outline::{Outline, Role};
pub use self::parts::Part;

use self::call::{CallAnalysis, Echo, VolatileParts};
use self::cycles::{Newest, View};
use self::gain::{Answered, Changed, Gain, Question, Says};
use self::history::{Entry, Open};
use self::repeats::{NewCall, Outcome, PollTolerance, Repeated, Repeats};
use self::result::ResultAnalysis;
use self::words::Kind;
use self::writes::{Effect, States};
use super::observation::{CallOutcome, Observation};

/// The wire name of this kind of loop: a cycle of one to five calls.
pub const CONSECUTIVE_IDENTICAL_TOOL_CALLS: &str = "CONSECUTIVE_IDENTICAL_TOOL_CALLS";

/// The wire name of this kind of loop: a call with the same result each time, or many calls without news.
pub const REPEATED_CALLS_WITHOUT_PROGRESS: &str = "REPEATED_CALLS_WITHOUT_PROGRESS";

/// The wire name of this kind of loop: different arguments, same result.
pub const SAME_RESULT_FOR_VARIED_ARGUMENTS: &str = "SAME_RESULT_FOR_VARIED_ARGUMENTS";

/// The wire name of this kind of loop: polling a state that does not change.
pub const POLLING_WITHOUT_PROGRESS: &str = "POLLING_WITHOUT_PROGRESS";

/// Results that are stored as seen. 256: a file that was read longer ago may be read again.
const RESULTS: usize = 256;

/// Times [`ToolLoopConfig::repeats`], the calls in a row without news that are a loop. 4: twenty calls with the defaults.
const IDLE_FACTOR: u32 = 4;

/// Calls and targets that are stored as seen.
const CALLS: usize = 128;

/// Tool names that are stored for the evidence, and the stored length of each, in bytes.
const NAMES: usize = 16;
const NAME_BYTES: usize = 24;

/// The state of loop detection for the calls of a run: digests, at most about 6 KiB when stored, and one short quote.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct ToolLoops {
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Finding>,
    /// The newest calls, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    history: VecDeque<Entry>,
    /// Calls without a result yet, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    open: VecDeque<Open>,
    /// The repetitions of calls.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    repeats: VecDeque<Repeats>,
    /// Digests of the results that were seen, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    told: VecDeque<u32>,
    /// Digests of the calls and of their targets, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    asked: VecDeque<u32>,
    /// The recent states of each written target.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    states: VecDeque<States>,
    /// The information that the results have brought.
    #[serde(skip_serializing_if = "Gain::is_empty")]
    gain: Gain,
    /// Tool names, for the evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// The newest call that is not harmless: its name and the beginning of its arguments.
    #[serde(skip_serializing_if = "String::is_empty")]
    quote: String,
    /// Calls so far.
    calls: u32,
    /// The number of the call with the last news.
    news: u32,
    /// The number of the newest call that let time pass.
    waited: u32,
    /// Calls in a row without news. Harmless calls and polls do not count.
    idle: u32,
    /// Harmless calls since the last news.
    harmless: u32,
    /// Seconds of the run's clock; 0 if there is no clock.
    now: u32,
    /// The number of the newest call that is not harmless, and the seconds of the run's clock at that call; 0 without a
    /// clock.
    called: u32,
    called_at: u32,
    /// The number of the newest call that followed a long pause.
    paused: u32,
}

/// The progress that a call brought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No news.
    None,
    /// No news, but from a target that was not asked before. Counts neither as progress nor as an idle call.
    NewTarget,
    /// The next item of a batch: work, although its result equals earlier ones.
    Next,
    /// New information.
    News,
}

/// A call whose result has arrived.
struct Asked {
    entry: Entry,
    question: Question,
    /// Whether the call was not made before.
    is_new: bool,
    /// Whether that is so, and nothing had its short result.
    fresh: bool,
    /// The change that it has made to the state of its target.
    state: Changed,
}

impl ToolLoops {
    /// Processes an observation. It uses only calls, results, the clock, compactions and resets, and nothing after a
    /// loop is found.
    pub fn observe(&mut self, config: &ToolLoopConfig, seen: &Observation<'_>) {
        if matches!(seen, Observation::Reset) {
            self.clear();
        }
        if self.found.is_some() {
            return;
        }
        let found = match seen {
            Observation::ToolCall { name, arguments, spec } => self.call(config, name, arguments, *spec),
            Observation::ToolResult { name, outcome, text } => self.result(config, name, *outcome, text),
            Observation::User(text) => {
                if self.gain.message(text) {
                    writes::renew(&mut self.states);
                }
                None
            }
            Observation::Clock(millis) if config.has(Part::Pace) => {
                let seconds = u32::try_from(millis / 1000).unwrap_or(u32::MAX / 2);
                self.now = self.now.max(seconds.saturating_add(1));
                None
            }
            // After compaction, the model no longer has the earlier results. Reading them again is news.
            Observation::Compacted { .. } => {
                self.told.clear();
                self.gain = Gain::default();
                writes::renew(&mut self.states);
                None
            }
            _ => None,
        };
        if let Some(finding) = found {
            // The finding remains until everything is reset. Nothing else is counted.
            *self = Self { found: Some(finding), ..Self::default() };
        }
    }

    /// The loop that was found, until everything is reset.
    pub fn found(&self) -> Option<&Finding> {
        self.found.as_ref()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn call(
        &mut self,
        config: &ToolLoopConfig,
        name: &str,
        arguments: &Arguments,
        spec: Option<&ToolSpec>,
    ) -> Option<Finding> {
        let call = CallAnalysis::of(config, name, arguments, spec);
        let question = if config.has(Part::Gain) { self.gain.call(name, arguments) } else { Question::default() };
        self.calls += 1;
        if call.kind == Kind::Wait {
            self.waited = self.calls;
        }
        if !call.kind.is_harmless() || self.quote.is_empty() {
            quote::write(&mut self.quote, name, arguments);
        }
        // The call before this one, without thoughts and clocks. The time since then is divided among all calls since.
        let before = self.history.iter().rfind(|entry| !entry.kind.is_harmless());
        let again = before.is_some_and(|before| before.key == call.key) && self.called_at != 0;
        let took = self.now.saturating_sub(self.called_at) / (self.calls - self.called).max(1);
        // A pause that really took time. Without a clock, every wait call counts as a pause.
        let slept = before.is_some_and(|before| before.kind == Kind::Wait);
        if slept && (self.called_at == 0 || took >= repeats::POLLING_GAP_SECS) {
            self.paused = self.calls;
        }
        if !call.kind.is_harmless() {
            (self.called_at, self.called) = (self.now, self.calls);
        }
        let new_call = NewCall {
            key: digest::short(call.key),
            kind: call.kind,
            has_path: call.has_path,
            call: self.calls,
            waited: self.waited,
            paused: self.paused,
            waits: call.waits,
            idle: if again || call.kind == Kind::Poll { took } else { 0 },
            timed: self.now != 0,
        };
        let (tolerance, polled) = Repeats::call(&mut self.repeats, config, &new_call);
        let entry = Entry {
            key: call.key,
            target: call.target,
            sketch: call.sketch,
            name: self.name(name),
            kind: call.kind,
            numbers: call.numbers,
            web: call.web,
            polls: tolerance != PollTolerance::None,
            fully_tolerant: tolerance == PollTolerance::Full,
            waits: call.waits,
            ..Entry::default()
        };
        history::push(&mut self.history, entry);
        Open::push(&mut self.open, self.calls, &call, question);
        let polled = polled.filter(|_| config.has(Part::Repeats));
        self.cycle(config, call.kind).or_else(|| polled.map(|polled| self.repeated(&polled, call.key)))
    }

    /// Finds a cycle that the newest call completes.
    fn cycle(&self, config: &ToolLoopConfig, kind: Kind) -> Option<Finding> {
        let (repeats, longest) = (config.repeats as usize, config.max_period as usize);
        let views: &[View] = if kind.is_harmless() { &[View::Whole] } else { &[View::Whole, View::Telling] };
        views.iter().filter(|_| config.has(Part::Cycles)).find_map(|view| {
            let newest = Newest::of(&self.history, *view, repeats * longest);
            let mut cycle = cycles::cycle(&newest, repeats, longest)?.to_vec();
            cycle.reverse();
            Some(self.finding(CONSECUTIVE_IDENTICAL_TOOL_CALLS, config.repeats, config.repeats, &cycle))
        })
    }

    fn result(&mut self, config: &ToolLoopConfig, name: &str, outcome: CallOutcome, text: &str) -> Option<Finding> {
        let open = Open::pop(&mut self.open, digest::short(digest::of(name.as_bytes())))?;
        // The history no longer holds the call if forty others were made before its result arrived.
        let age = (self.calls - open.call) as usize;
        let at = self.history.len().checked_sub(1 + age)?;
        let entry = self.history[at];
        let key = digest::short(entry.key);
        if outcome == CallOutcome::NotExecuted {
            self.history[at].void = true;
            Repeats::withdraw(&mut self.repeats, key);
            return None;
        }
        let failed = outcome.is_failure();
        let result = ResultAnalysis::of(config, text, failed, &open.echo, open.searches, open.volatile);
        self.history[at].result = result.digest;
        let before = at.checked_sub(1).map(|before| self.history[before].kind);
        let again = before.is_some_and(Kind::is_harmless) && self.asked.contains(&key);
        let new_call = !self.asked.contains(&key);
        let fresh = new_call && !result.long && !self.told.contains(&result.digest);
        let progress = self.progress(&entry, open.aimed, &result, failed);
        let effect = if failed { Effect::default() } else { open.effect };
        let state = writes::record(&mut self.states, effect, progress == Progress::News);
        let asked = Asked { entry, question: open.question, is_new: new_call, fresh, state };
        let repeated_answers = self.gained(config, &asked, &result, failed, text);
        if progress == Progress::News {
            self.news = self.news.max(open.call);
        }
        if matches!(progress, Progress::Next | Progress::News) {
            (self.idle, self.harmless) = (0, 0);
            Repeats::renew(&mut self.repeats);
        } else if entry.kind.is_harmless() {
            // A new thought counts once. A repeated one, directly after another harmless call, counts twice.
            self.harmless += if again { 2 } else { 1 };
        } else if progress == Progress::None && !entry.polls {
            self.idle += 1;
        }
        let ended = result.ended && !failed;
        // In the content of a file, such words are not a state.
        let pending = result.pending && !failed && !(entry.kind == Kind::Read && open.local);
        self.history[at].waits |= pending;
        let outcome = Outcome { result: result.digest, pending, ended };
        let (tolerance, repeated) = Repeats::result(&mut self.repeats, config, key, outcome);
        self.history[at].polls = tolerance != PollTolerance::None;
        self.history[at].fully_tolerant = tolerance == PollTolerance::Full;
        if repeated_answers >= config.repeated_answers && config.has(Part::Gain) {
            return Some(self.stale(config, repeated_answers, matches!(state, Changed::Back(_))));
        }
        if progress == Progress::News {
            return None;
        }
        if let Some(repeated) = repeated.filter(|_| entry.kind != Kind::Harmless && config.has(Part::Repeats)) {
            return Some(self.repeated(&repeated, entry.key));
        }
        self.varied(config, at, &result, failed).or_else(|| self.idle(config, at))
    }

    /// Determines the progress of a call. Records its result, the call and its target as seen.
    fn progress(&mut self, entry: &Entry, aimed: bool, result: &ResultAnalysis, failed: bool) -> Progress {
        let news = is_new(&mut self.told, result.digest, RESULTS);
        let new_call = is_new(&mut self.asked, digest::short(entry.key), CALLS);
        let target = digest::short(digest::pair(17, u64::from(entry.target)));
        let new_target =
            (entry.target != 0 && is_new(&mut self.asked, target, CALLS)) || (entry.numbers != 0 && new_call);
        if entry.kind.is_harmless() || entry.kind == Kind::Wait {
            return Progress::None;
        }
        // A change after which the page looks the same as before has changed nothing visible.
        let changed = entry.kind == Kind::Write && new_call && !failed && (!result.long || result.positive);
        // A short answer that other calls have had too is the answer for one more item. A failure is not.
        let next = new_target && !result.long && (!failed || result.empty);
        let does = entry.kind == Kind::Run || (entry.kind == Kind::Other && aimed);
        let passed = new_call && result.positive && !failed && does;
        match () {
            () if news || changed => Progress::News,
            () if passed || (next && matches!(entry.kind, Kind::Read | Kind::Run)) => Progress::Next,
            () if next => Progress::NewTarget,
            () => Progress::None,
        }
    }

    /// The repeated answers since the last news.
    fn gained(
        &mut self,
        config: &ToolLoopConfig,
        &Asked { entry, question, is_new, fresh, state }: &Asked,
        result: &ResultAnalysis,
        failed: bool,
        text: &str,
    ) -> u32 {
        let polls = entry.polls && !is_new;
        if polls || (entry.kind.is_harmless() && !failed) || entry.kind == Kind::Wait || !config.has(Part::Gain) {
            return 0;
        }
        self.gain.result(&Answered {
            key: digest::short(entry.key),
            question,
            exact: result.digest,
            text,
            failed,
            fresh,
            says: match () {
                () if !failed && result.positive && !result.long => Says::Done,
                () if result.empty => Says::Nothing,
                () if failed || (result.negative && entry.kind != Kind::Read) => Says::No,
                () => Says::Something,
            },
            reads: entry.kind == Kind::Read,
            state,
            changes: is_new && !failed && (entry.kind == Kind::Write || (entry.kind == Kind::Run && result.empty)),
        })
    }

    /// Makes the finding about repeated answers. It shows the different calls of the stretch: one that is repeated, a cycle,
    /// or the newest of a row of guesses.
    fn stale(&self, config: &ToolLoopConfig, count: u32, returns: bool) -> Finding {
        let mut calls: Vec<Entry> = Vec::with_capacity(5);
        let newest = self.history.iter().rev().filter(|entry| !entry.kind.is_harmless() && !entry.void);
        for entry in newest.take(self.gain.answers()) {
            if calls.len() < 5 && calls.iter().all(|known| known.key != entry.key) {
                calls.insert(0, *entry);
            }
        }
        let finding = self.finding(REPEATED_CALLS_WITHOUT_PROGRESS, count, config.repeated_answers, &calls);
        let finding = finding.with("repeated_answers", true);
        if returns { finding.with("returned", true) } else { finding }
    }

    fn varied(&self, config: &ToolLoopConfig, at: usize, result: &ResultAnalysis, failed: bool) -> Option<Finding> {
        if !config.has(Part::Varied) {
            return None;
        }
        let since = self.history.len().saturating_sub((self.calls - self.news) as usize + 1);
        let found = varied::varied(&self.history, since, at, result, failed, config)?;
        let mut sample: Vec<Entry> = Vec::with_capacity(5);
        for entry in self.history.iter().skip(since).filter(|entry| entry.result == result.digest) {
            if sample.len() < 5 && sample.iter().all(|known| known.key != entry.key) {
                sample.push(*entry);
            }
        }
        let finding = self.finding(SAME_RESULT_FOR_VARIED_ARGUMENTS, found.count, found.threshold, &sample);
        Some(finding.with("period", 1))
    }

    /// Many calls in a row without news, whatever they are: the weakest of repetitions, so it takes the most of them.
    fn idle(&self, config: &ToolLoopConfig, at: usize) -> Option<Finding> {
        // Thoughts and clocks are not work, but they do not prove that work stands still either. Four of them count as
        // one call, and two if they are repetitions with nothing between them.
        let (count, most) = (self.idle.max(self.harmless / 4), config.repeats.saturating_mul(IDLE_FACTOR));
        if count < most || !config.has(Part::Repeats) {
            return None;
        }
        let entry = [self.history[at]];
        Some(self.finding(REPEATED_CALLS_WITHOUT_PROGRESS, count, most, &entry).with("idle", true))
    }

    fn repeated(&self, repeated: &Repeated, key: u64) -> Finding {
        let kind = if repeated.polls { POLLING_WITHOUT_PROGRESS } else { REPEATED_CALLS_WITHOUT_PROGRESS };
        let entry = self.history.iter().rfind(|entry| entry.key == key);
        self.finding(kind, u32::from(repeated.count), repeated.threshold, entry.map_or(&[], std::slice::from_ref))
    }

    /// Makes the finding about these calls, oldest first.
    fn finding(&self, kind: &str, count: u32, threshold: u32, calls: &[Entry]) -> Finding {
        let mut finding = Finding::new(StopReason::ToolLoop, kind, count.into(), threshold.into()).quoting(&self.quote);
        finding.fingerprints = calls.iter().map(|entry| format!("{:016x}", entry.key)).collect();
        let mut tools: Vec<&str> = Vec::with_capacity(calls.len());
        for entry in calls {
            let name = self.names.get(usize::from(entry.name)).map_or("…", String::as_str);
            if !tools.contains(&name) {
                tools.push(name);
            }
        }
        finding.with("period", calls.len()).with("tools", tools)
    }

    /// The index of a name in the table. A full table replaces a name that no stored call uses.
    fn name(&mut self, name: &str) -> u8 {
        let name = &name[..name.floor_char_boundary(NAME_BYTES)];
        if let Some(at) = self.names.iter().position(|known| known == name) {
            return at as u8;
        }
        if self.names.len() < NAMES {
            self.names.push(name.to_owned());
            return self.names.len() as u8 - 1;
        }
        let free = (0..NAMES as u8).find(|at| self.history.iter().all(|entry| entry.name != *at));
        if let Some(at) = free {
            name.clone_into(&mut self.names[usize::from(at)]);
        }
        free.unwrap_or(u8::MAX)
    }
}

/// Whether a result says that something is still in progress, and contains no error.
pub(super) fn is_pending(text: &str) -> bool {
    // A text longer than this is a report, not a state.
    if text.len() > 2048 {
        return false;
    }
    let result =
        ResultAnalysis::of(&ToolLoopConfig::default(), text, false, &Echo::default(), false, VolatileParts::None);
    result.pending && !result.negative
}

/// The words of an error as a bit set, without numbers and paths' digits.
pub(super) fn words_of_error(text: &str) -> u64 {
    let words = text.split(|letter: char| !letter.is_alphabetic()).filter(|word| word.len() > 1).take(WORDS_OF_ERROR);
    words.fold(0, |set, word| set | 1 << (digest::of(word.as_bytes()) % 64))
}

/// Words of an error that are compared.
const WORDS_OF_ERROR: usize = 48;

/// Whether two errors have three quarters of their words in common.
pub(super) fn is_same_error(one: u64, other: u64) -> bool {
    4 * (one & other).count_ones() >= 3 * one.count_ones().max(other.count_ones())
}

/// Whether a digest is new. Stores it.
fn is_new(known: &mut VecDeque<u32>, digest: u32, bound: usize) -> bool {
    let (front, back) = known.as_slices();
    if front.contains(&digest) || back.contains(&digest) {
        return false;
    }
    if known.len() == bound {
        known.pop_front();
    }
    known.push_back(digest);
    true
}
