//! Tool cycles: the same calls, again and again, without anything new.
//!
//! Each call becomes a **key** that hides what changes by itself (`call`, `keys`, `mask`), each result a digest of what
//! it tells (`result`). A call is **progress** when it brings news: a look whose result was not seen before, a change
//! that was not made before. Everything else counts towards one of five kinds of loop:
//!
//! | kind | what is seen | file |
//! |---|---|---|
//! | [`CONSECUTIVE_IDENTICAL_TOOL_CALLS`] | a cycle of one to five calls, five times, at the call that completes it | `cycles` |
//! | [`REPEATED_CALLS_WITHOUT_PROGRESS`] | one call with one result, five times, whatever stands between; or twenty calls in a row without news | `repeats` |
//! | [`SAME_RESULT_FOR_VARIED_ARGUMENTS`] | different calls that tell the same | `varied` |
//! | [`POLLING_WITHOUT_PROGRESS`] | a question how far something is, with the same answer 24 times | `repeats` |
//! | [`OSCILLATING_WRITES`] | a place that returns to an earlier state four times | `writes` |
//!
//! News make healthy what would else be a loop: tests that fail alike are run again after each edit, a status is asked
//! for until it changes, pages follow each other. So do different targets: a batch that answers "ok" or "no matches" for
//! each of forty files is work.

//!
//! What is the same, what is news, and who waits is decided by these principles, each with its rows in `tests/table`:
//!
//! - **What is given out anew is no news**: receipts and revisions of a change, the numbers of a clock or of processes,
//!   what is left to pay with (`result`, `shapes`); nor is an address another one for what only defeats a cache (`values`).
//! - **Waiting is told by time**: a name that promises a poll is believed where the run has no clock, where the calls come
//!   ten seconds apart, or where something waits; called as quickly as possible it has half the patience (`repeats`).
//! - **Several different calls are a poll** only if one of them waits, is told that something is under way, or if each
//!   asks as time passes (`cycles`). In a file, "pending" is content, and no state.
//! - **Wordings are no targets**: globs differ in wording and are about a folder, queries about tables, values and the
//!   columns of their conditions, programs about the files and numbers in them, prompts about what they come with
//!   (`reader`). One thing, asked in any words and answered by one sentence, is the same question (`varied`).
//! - **Notes are no work**, and the same note once more is a repetition.

mod call;
mod command;
mod config;
mod cycles;
mod digest;
mod history;
mod keys;
mod lexicon;
mod mask;
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
pub use self::parts::Part;

use self::call::{Asked, Echo, Gives};
use self::cycles::{Newest, View};
use self::history::{Entry, Open};
use self::repeats::{Made, Outcome, PollTolerance, Repeated, Repeats};
use self::result::Told;
use self::words::Kind;
use self::writes::Writes;
use super::observation::{CallOutcome, Observation};

/// The wire name of this kind of loop: a cycle of one to five calls.
pub const CONSECUTIVE_IDENTICAL_TOOL_CALLS: &str = "CONSECUTIVE_IDENTICAL_TOOL_CALLS";

/// The wire name of this kind of loop: a call that tells the same each time, or nothing new at all for long.
pub const REPEATED_CALLS_WITHOUT_PROGRESS: &str = "REPEATED_CALLS_WITHOUT_PROGRESS";

/// The wire name of this kind of loop: other arguments, same result.
pub const SAME_RESULT_FOR_VARIED_ARGUMENTS: &str = "SAME_RESULT_FOR_VARIED_ARGUMENTS";

/// The wire name of this kind of loop: asking how far something is that does not move.
pub const POLLING_WITHOUT_PROGRESS: &str = "POLLING_WITHOUT_PROGRESS";

/// The wire name of this kind of loop: writing and taking back.
pub const OSCILLATING_WRITES: &str = "OSCILLATING_WRITES";

/// Results that are remembered as seen. 256: a file that was read so long ago may be read again.
const RESULTS: usize = 256;

/// Calls and targets that are remembered as seen.
const CALLS: usize = 128;

/// Names of tools that are remembered for the evidence, and how much of each, in bytes.
const NAMES: usize = 16;
const NAME_BYTES: usize = 24;

/// What is remembered of the calls of a run: digests, at most about 6 KiB when stored, and one short quote.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(default)]
pub struct ToolLoops {
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Finding>,
    /// The newest calls, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    history: VecDeque<Entry>,
    /// Calls whose results have not come, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    open: VecDeque<Open>,
    /// How often calls were repeated.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    repeats: VecDeque<Repeats>,
    /// What was told, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    told: VecDeque<u32>,
    /// What was asked and about what, oldest first.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    asked: VecDeque<u32>,
    /// What was written where.
    #[serde(with = "pack", skip_serializing_if = "VecDeque::is_empty")]
    writes: VecDeque<Writes>,
    /// Names of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// The newest call that is not harmless: its name and the beginning of its arguments.
    #[serde(skip_serializing_if = "String::is_empty")]
    quote: String,
    /// Calls so far.
    calls: u32,
    /// The call that brought the last news.
    news: u32,
    /// The newest call that let time pass.
    waited: u32,
    /// Calls without news since the last ones, harmless calls and polls left out.
    idle: u32,
    /// Harmless calls since the last news.
    harmless: u32,
    /// Seconds of the run's clock; 0 without one.
    now: u32,
    /// The newest call that is not harmless, and the seconds of the run's clock at it; 0 without one.
    called: u32,
    called_at: u32,
    /// The newest call before which a pause was made that was long.
    paused: u32,
}

/// What a call brought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing new.
    None,
    /// Nothing new, from something that was not asked before: neither for nor against it.
    Aside,
    /// The next item of a batch: work, though its result is the same as the ones before.
    Next,
    /// News.
    News,
}

impl ToolLoops {
    /// Takes what was seen; looks at calls, results, the clock and resets alone, and at nothing once a loop is found.
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
            Observation::Clock(millis) if config.has(Part::Pace) => {
                let seconds = u32::try_from(millis / 1000).unwrap_or(u32::MAX / 2);
                self.now = self.now.max(seconds.saturating_add(1));
                None
            }
            // What the model was told is no longer before it: told again, it is news.
            Observation::Compacted { .. } => {
                self.told.clear();
                None
            }
            _ => None,
        };
        if let Some(finding) = found {
            // Whatever follows, nothing is counted on: the loop stands until all is forgotten.
            *self = Self { found: Some(finding), ..Self::default() };
        }
    }

    /// The loop that was found and stands.
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
        let asked = Asked::of(config, name, arguments, spec);
        self.calls += 1;
        if asked.kind == Kind::Wait {
            self.waited = self.calls;
        }
        if !asked.kind.is_harmless() || self.quote.is_empty() {
            quote::write(&mut self.quote, name, arguments);
        }
        // The call before, thoughts and clocks left out, though they take their share of the time.
        let before = self.history.iter().rfind(|entry| !entry.kind.is_harmless());
        let again = before.is_some_and(|before| before.key == asked.key) && self.called_at != 0;
        let took = self.now.saturating_sub(self.called_at) / (self.calls - self.called).max(1);
        // A pause that was a pause: without a clock, whatever says that it was one.
        let slept = before.is_some_and(|before| before.kind == Kind::Wait);
        if slept && (self.called_at == 0 || took >= repeats::POLLING_GAP_SECS) {
            self.paused = self.calls;
        }
        if !asked.kind.is_harmless() {
            (self.called_at, self.called) = (self.now, self.calls);
        }
        let made = Made {
            key: digest::short(asked.key),
            kind: asked.kind,
            has_path: asked.has_path,
            call: self.calls,
            waited: self.waited,
            paused: self.paused,
            waits: asked.waits,
            idle: if again || asked.kind == Kind::Poll { took } else { 0 },
            timed: self.now != 0,
        };
        let (patience, polled) = Repeats::call(&mut self.repeats, config, &made);
        let entry = Entry {
            key: asked.key,
            target: asked.target,
            sketch: asked.sketch,
            name: self.name(name),
            kind: asked.kind,
            numbers: asked.numbers,
            web: asked.web,
            polls: patience != PollTolerance::None,
            patient: patience == PollTolerance::Full,
            waits: asked.waits,
            ..Entry::default()
        };
        history::push(&mut self.history, entry);
        Open::push(&mut self.open, self.calls, &asked);
        let polled = polled.filter(|_| config.has(Part::Repeats));
        self.cycle(config, asked.kind).or_else(|| polled.map(|polled| self.repeated(&polled, asked.key)))
    }

    /// A cycle that the newest call completes.
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
        // The call is gone from the history when forty others were made before its result came.
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
        let told = Told::of(config, text, failed, &open.echo, open.searches, open.gives);
        self.history[at].result = told.digest;
        let before = at.checked_sub(1).map(|before| self.history[before].kind);
        let again = before.is_some_and(Kind::is_harmless) && self.asked.contains(&key);
        let progress = self.progress(&entry, open.aimed, &told, failed);
        let mut returns = 0;
        if progress == Progress::News {
            self.news = self.news.max(open.call);
            if open.effect.place != 0 && !failed {
                writes::forgive(&mut self.writes);
            }
        }
        if !failed {
            returns = writes::record(&mut self.writes, open.effect);
        }
        if matches!(progress, Progress::Next | Progress::News) {
            (self.idle, self.harmless) = (0, 0);
            Repeats::renew(&mut self.repeats);
        } else if entry.kind.is_harmless() {
            // A new thought is one; the same once more, after nothing else, is less than that.
            self.harmless += if again { 2 } else { 1 };
        } else if progress == Progress::None && !entry.polls {
            self.idle += 1;
        }
        let ended = told.ended && !failed;
        // In a file, or among the lines of one, such words are its content.
        let pending = told.pending && !failed && !(entry.kind == Kind::Read && open.local);
        self.history[at].waits |= pending;
        let outcome = Outcome { result: told.digest, pending, ended };
        let (patience, repeated) = Repeats::result(&mut self.repeats, config, key, outcome);
        self.history[at].polls = patience != PollTolerance::None;
        self.history[at].patient = patience == PollTolerance::Full;
        if u32::from(returns) >= config.oscillations && config.has(Part::Writes) {
            return Some(self.finding(OSCILLATING_WRITES, u32::from(returns), config.oscillations, &[entry]));
        }
        if progress == Progress::News {
            return None;
        }
        if let Some(repeated) = repeated.filter(|_| entry.kind != Kind::Harmless && config.has(Part::Repeats)) {
            return Some(self.repeated(&repeated, entry.key));
        }
        self.varied(config, at, &told, failed).or_else(|| self.stagnation(config, at))
    }

    /// What a call brought. Remembers what was told and asked.
    fn progress(&mut self, entry: &Entry, aimed: bool, told: &Told, failed: bool) -> Progress {
        let news = is_new(&mut self.told, told.digest, RESULTS);
        let new_call = is_new(&mut self.asked, digest::short(entry.key), CALLS);
        let target = digest::short(digest::pair(17, u64::from(entry.target)));
        let new_target =
            (entry.target != 0 && is_new(&mut self.asked, target, CALLS)) || (entry.numbers != 0 && new_call);
        if entry.kind.is_harmless() || entry.kind == Kind::Wait {
            return Progress::None;
        }
        // A change that shows the same page as before has changed nothing that can be seen.
        let changed = entry.kind == Kind::Write && new_call && !failed && (!told.long || told.positive);
        // A short answer that others have had as well is the answer for one more item; a failure is a failure.
        let next = new_target && !told.long && (!failed || told.empty);
        let does = entry.kind == Kind::Run || (entry.kind == Kind::Other && aimed);
        let passed = new_call && told.positive && !failed && does;
        match () {
            () if news || changed => Progress::News,
            () if passed || (next && matches!(entry.kind, Kind::Read | Kind::Run)) => Progress::Next,
            () if next => Progress::Aside,
            () => Progress::None,
        }
    }

    fn varied(&self, config: &ToolLoopConfig, at: usize, told: &Told, failed: bool) -> Option<Finding> {
        if !config.has(Part::Varied) {
            return None;
        }
        let since = self.history.len().saturating_sub((self.calls - self.news) as usize + 1);
        let found = varied::varied(&self.history, since, at, told, failed, config)?;
        let mut sample: Vec<Entry> = Vec::with_capacity(5);
        for entry in self.history.iter().skip(since).filter(|entry| entry.result == told.digest) {
            if sample.len() < 5 && sample.iter().all(|known| known.key != entry.key) {
                sample.push(*entry);
            }
        }
        let finding = self.finding(SAME_RESULT_FOR_VARIED_ARGUMENTS, found.count, found.threshold, &sample);
        Some(finding.with("period", 1))
    }

    fn stagnation(&self, config: &ToolLoopConfig, at: usize) -> Option<Finding> {
        // Thoughts and clocks are no work, but neither do they tell that work stands still: four for one, and two of
        // those that were made before, where nothing else is done between.
        let count = self.idle.max(self.harmless / 4);
        if count < config.stagnation || !config.has(Part::Stagnation) {
            return None;
        }
        let entry = [self.history[at]];
        let finding = self.finding(REPEATED_CALLS_WITHOUT_PROGRESS, count, config.stagnation, &entry);
        Some(finding.with("stagnation", true))
    }

    fn repeated(&self, repeated: &Repeated, key: u64) -> Finding {
        let kind = if repeated.polls { POLLING_WITHOUT_PROGRESS } else { REPEATED_CALLS_WITHOUT_PROGRESS };
        let entry = self.history.iter().rfind(|entry| entry.key == key);
        self.finding(kind, u32::from(repeated.count), repeated.threshold, entry.map_or(&[], std::slice::from_ref))
    }

    /// The finding about these calls, oldest first.
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

    /// The place of a name in the table. A table that is full gives up a name that no remembered call has.
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

/// Whether a result says that something is still under way, and nothing of an error.
pub(super) fn is_pending(text: &str) -> bool {
    // What is longer than a state is a report.
    if text.len() > 2048 {
        return false;
    }
    let told = Told::of(&ToolLoopConfig::default(), text, false, &Echo::default(), false, Gives::News);
    told.pending && !told.negative
}

/// Whether a digest is not among the remembered ones. Remembers it.
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
