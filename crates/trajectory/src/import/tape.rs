//! Collects what a reader finds: the runs of a file, and what was skipped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::recorder::Recorder;
use super::{ImportError, InvalidItem};
use crate::event::TrajectoryEvent;

/// Most kinds of skipped records that are told apart, and most characters of one.
const KINDS: usize = 40;
const KIND_CHARS: usize = 60;

/// Most runs of one file. Each is judged with a memory of its own, and a real session has some dozens at most.
const RUNS_MAX: usize = 10_000;
const TOO_MANY: &str = "more than 10000 runs";

/// Takes the events of each run, by its number, in their order.
pub type Take<'a> = dyn FnMut(usize, TrajectoryEvent) + 'a;

/// The records that a reader has found so far.
#[derive(Debug, Default)]
pub(super) struct Tape {
    runs: Vec<Run>,
    by_key: HashMap<String, usize>,
    /// The runs that may have new events.
    touched: BTreeSet<usize>,
    /// Takes the records of the runs beyond [`RUNS_MAX`], and is thrown away.
    beyond: Recorder,
    /// Whether the record being read was counted as one of a run beyond [`RUNS_MAX`].
    is_beyond: bool,
    events: u64,
    records: u64,
    skipped: BTreeMap<String, u64>,
    problem: Option<ImportError>,
}

#[derive(Debug)]
struct Run {
    name: String,
    recorder: Recorder,
}

impl Tape {
    /// The run with this key; a new one has this name.
    pub(super) fn run(&mut self, key: &str, name: impl FnOnce() -> String) -> &mut Recorder {
        let at = match self.by_key.get(key) {
            Some(at) => *at,
            None => {
                let at = self.push(name);
                if at < RUNS_MAX {
                    self.by_key.insert(key.to_owned(), at);
                }
                at
            }
        };
        self.at(at)
    }

    /// Begins a run without a key.
    pub(super) fn begin(&mut self) -> usize {
        self.push(String::new)
    }

    fn push(&mut self, name: impl FnOnce() -> String) -> usize {
        let at = self.runs.len();
        if at < RUNS_MAX {
            self.runs.push(Run { name: name(), recorder: Recorder::default() });
        }
        at
    }

    /// A run that [`Self::begin`] has begun. A record of a run beyond the most is counted, once.
    pub(super) fn at(&mut self, run: usize) -> &mut Recorder {
        if run < self.runs.len() {
            self.touched.insert(run);
            return &mut self.runs[run].recorder;
        }
        if !std::mem::replace(&mut self.is_beyond, true) {
            self.skip(TOO_MANY);
        }
        self.beyond = Recorder::default();
        &mut self.beyond
    }

    /// How many runs have begun.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Counts a record of the file.
    pub(super) fn count(&mut self) {
        self.records += 1;
        self.next();
    }

    /// Begins another record of those that one record holds, or that were kept until the end.
    pub(super) fn next(&mut self) {
        self.is_beyond = false;
    }

    /// Counts a record that has no event, by its kind.
    pub(super) fn skip(&mut self, kind: &str) {
        let mut kind: String = kind.chars().filter(|c| !c.is_control()).take(KIND_CHARS).collect();
        if kind.is_empty() {
            kind = "record without a type".into();
        }
        if self.skipped.len() >= KINDS && !self.skipped.contains_key(&kind) {
            kind = "other".into();
        }
        *self.skipped.entry(kind).or_default() += 1;
    }

    /// Counts an invalid item, and keeps the first one for the error of a file without events.
    pub(super) fn invalid(&mut self, item: InvalidItem, conversation: Option<usize>) {
        self.skip(&item.what);
        self.problem.get_or_insert_with(|| item.into_error(conversation));
    }

    /// Hands over the events that were recorded.
    pub(super) fn drain(&mut self, take: &mut Take<'_>) {
        for number in std::mem::take(&mut self.touched) {
            self.count_skipped(number);
            for event in self.runs[number].recorder.take() {
                self.events += 1;
                take(number, event);
            }
        }
    }

    /// Hands over the last events.
    pub(super) fn end(&mut self, take: &mut Take<'_>) {
        (0..self.runs.len()).for_each(|number| self.count_skipped(number));
        for (number, run) in self.runs.iter_mut().enumerate() {
            for event in std::mem::take(&mut run.recorder).done() {
                self.events += 1;
                take(number, event);
            }
        }
    }

    fn count_skipped(&mut self, number: usize) {
        for kind in self.runs[number].recorder.take_skipped() {
            self.skip(&kind);
        }
    }

    /// Whether nothing was recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// The first invalid item.
    pub(super) fn problem(&mut self) -> Option<ImportError> {
        self.problem.take()
    }

    /// The names of the runs, the number of records, and what was skipped, most frequent first.
    pub(super) fn figures(self) -> (Vec<String>, u64, Vec<(String, u64)>) {
        let mut skipped: Vec<_> = self.skipped.into_iter().collect();
        skipped.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        (self.runs.into_iter().map(|run| run.name).collect(), self.records, skipped)
    }
}
