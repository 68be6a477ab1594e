//! Mutations: changes to a recording that do not change its label. A pathological run remains so if its keys are
//! shuffled, its results contain a date, or it reads the clock in between. A healthy run stays healthy.
//!
//! Every choice depends on a seed: the same recording, mutation and seed give the same result.

mod random;
mod streams;
mod words;

use anyhow::{Result, bail};
use belay_trajectory::eval::{Case, Copies, Label, Run};
use belay_trajectory::{CallArguments, TrajectoryEvent};
use serde_json::Value;

use random::Random;

/// Healthy copies without `--mutations`. 1000: Belay promises fewer than one false stop in a thousand runs.
const HEALTHY_COPIES: usize = 1000;

/// Makes mutated copies of each recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutated {
    count: usize,
    seed: u64,
}

impl Mutated {
    /// Makes this many copies of each recording; `None`: as many as are needed for [`HEALTHY_COPIES`] healthy ones.
    ///
    /// # Errors
    /// A label allows a mutation that does not exist.
    pub(crate) fn of(cases: &[Case], count: Option<usize>, seed: u64) -> Result<Self> {
        for case in cases {
            for word in case.label.mutations.iter().flatten() {
                if Mutation::from_word(word).is_none() {
                    let known: Vec<_> = Mutation::ALL.iter().map(|mutation| mutation.word()).collect();
                    bail!("{}: there is no mutation `{word}`; there are {}", case.name, known.join(", "));
                }
            }
        }
        let healthy = cases.iter().filter(|case| case.label.label == Label::Healthy).count();
        Ok(Self { count: count.unwrap_or_else(|| HEALTHY_COPIES.div_ceil(healthy.max(1))), seed })
    }

    /// The mutations of a copy. The first copies have one mutation each. They begin with a random one, so that few
    /// copies of many recordings cover all kinds. Later copies have two or three mutations.
    fn plan(&self, run: &Run, case: &Case, number: usize) -> Vec<Mutation> {
        let allowed = |mutation: &Mutation| {
            case.label.mutations.as_ref().is_none_or(|only| only.iter().any(|word| word == mutation.word()))
        };
        let mut fitting: Vec<_> = Mutation::ALL.iter().copied().filter(|it| allowed(it) && it.applies(run)).collect();
        let first = Random::new(self.seed, &case.name).below(fitting.len() as u64) as usize;
        if number <= fitting.len() {
            return vec![fitting[(first + number - 1) % fitting.len()]];
        }
        let mut random = Random::new(self.seed, &format!("{}+{number}", case.name));
        random.shuffle(&mut fitting);
        fitting.truncate(2 + random.below(2) as usize);
        fitting.sort_unstable();
        fitting
    }
}

impl Copies for Mutated {
    fn count(&self) -> usize {
        self.count
    }

    fn copy(&self, case: &Case, number: usize) -> Option<Run> {
        let run = Run::of(case);
        let mutations = self.plan(&run, case, number);
        let mut random = Random::new(self.seed, &format!("{}#{number}", case.name));
        let copy = mutations.iter().fold(run, |run, mutation| mutation.apply(&run, &mut random));
        let changes: Vec<_> = mutations.iter().map(|mutation| mutation.word()).collect();
        (!changes.is_empty()).then_some(Run { changes, ..copy })
    }
}

/// Whether the pathology is in the texts. Then the texts must not change. A run with fewer than three calls after the
/// onset is not a loop of calls.
fn is_about_text(run: &Run) -> bool {
    let calls = |events: &[TrajectoryEvent]| events.iter().filter(|event| is_call(event)).count();
    run.stuck && calls(run.events.get(run.onset.unwrap_or(0)..).unwrap_or_default()) < 3
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mutation {
    /// Thoughts, and texts beside calls, begin with other words.
    Paraphrase,
    /// The keys of arguments are in another order.
    Shuffle,
    /// Arguments and results contain ids and dates that differ each time.
    Nonces,
    /// Arguments contain a counter.
    Counters,
    /// Calls without effect are inserted: a clock, a thought.
    Harmless,
    /// Streams are cut differently: into characters, at random, or not at all.
    Reslice,
    /// Commands and results have other white space.
    Whitespace,
    /// The program is restarted in the middle. The events do not change.
    Restart,
}

impl Mutation {
    /// All, in the order in which they are applied. Restarts are last, because they contain positions.
    const ALL: &'static [Self] = &[
        Self::Paraphrase,
        Self::Shuffle,
        Self::Nonces,
        Self::Counters,
        Self::Harmless,
        Self::Reslice,
        Self::Whitespace,
        Self::Restart,
    ];

    /// The word in labels and reports.
    fn word(self) -> &'static str {
        match self {
            Self::Paraphrase => "paraphrase",
            Self::Shuffle => "shuffle",
            Self::Nonces => "nonces",
            Self::Counters => "counters",
            Self::Harmless => "harmless",
            Self::Reslice => "reslice",
            Self::Whitespace => "whitespace",
            Self::Restart => "restart",
        }
    }

    /// The mutation with this word.
    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutation| mutation.word() == word)
    }

    /// Whether it changes this recording without changing its label.
    fn applies(self, run: &Run) -> bool {
        let any = |wanted: fn(&TrajectoryEvent) -> bool| run.events.iter().any(wanted);
        match self {
            Self::Paraphrase => !is_about_text(run) && any(|event| is_text(event) || is_thought(event)),
            Self::Shuffle => any(|event| keys(event) > 1),
            Self::Nonces | Self::Counters => any(|event| keys(event) > 0),
            Self::Harmless => !is_about_text(run) && run.events.iter().filter(|event| is_call(event)).count() > 1,
            Self::Reslice => any(is_text),
            Self::Whitespace => any(is_call),
            Self::Restart => !restart_points(run).is_empty(),
        }
    }

    /// Returns the changed recording.
    #[must_use]
    fn apply(self, run: &Run, random: &mut Random) -> Run {
        match self {
            Self::Paraphrase => paraphrase(run, random),
            Self::Shuffle => on_arguments(run, |entries| random.shuffle(entries)),
            Self::Nonces => nonces(run, random),
            Self::Counters => {
                let key = random.pick(&["attempt", "retry_count"]);
                let mut count = 0_u64;
                on_arguments(run, |entries| {
                    count += 1;
                    entries.push((key.into(), count.into()));
                })
            }
            Self::Harmless => harmless(run, random),
            Self::Reslice => streams::reslice(run, random),
            Self::Whitespace => whitespace(run, random),
            Self::Restart => {
                let mut restart_points = restart_points(run);
                random.shuffle(&mut restart_points);
                restart_points.truncate(RESTARTS);
                restart_points.sort_unstable();
                Run { restarts: restart_points, ..run.clone() }
            }
        }
    }
}

/// Number of restarts in one run.
const RESTARTS: usize = 3;

/// About one call without effect for this number of steps.
const HARMLESS_EVERY: u64 = 5;

fn is_call(event: &TrajectoryEvent) -> bool {
    matches!(event, TrajectoryEvent::Tool { .. })
}

fn is_thought(event: &TrajectoryEvent) -> bool {
    matches!(event, TrajectoryEvent::Other(text) if !text.is_empty())
}

fn is_text(event: &TrajectoryEvent) -> bool {
    matches!(event, TrajectoryEvent::Text(text) | TrajectoryEvent::Assistant(text) if !text.is_empty())
}

/// The number of keys in the arguments of a call.
fn keys(event: &TrajectoryEvent) -> usize {
    match event.arguments() {
        Some(belay_protocol::Arguments::Object(map)) => map.len(),
        _ => 0,
    }
}

/// Builds a changed recording and keeps the onset at its event.
struct RunBuilder<'a> {
    old: &'a Run,
    events: Vec<TrajectoryEvent>,
    onset: Option<usize>,
}

impl<'a> RunBuilder<'a> {
    fn of(old: &'a Run) -> Self {
        Self { old, events: Vec::with_capacity(old.events.len()), onset: None }
    }

    /// The next event replaces the event with this index.
    fn at(&mut self, index: usize) {
        if self.old.onset == Some(index) {
            self.onset = Some(self.events.len());
        }
    }

    fn push(&mut self, event: TrajectoryEvent) {
        self.events.push(event);
    }

    fn done(self) -> Run {
        Run { events: self.events, onset: self.onset, stuck: self.old.stuck, restarts: Vec::new(), changes: Vec::new() }
    }
}

fn on_arguments(run: &Run, mut change: impl FnMut(&mut Vec<(String, Value)>)) -> Run {
    let mut run = run.clone();
    for event in &mut run.events {
        let TrajectoryEvent::Tool { args, .. } = event else { continue };
        let Some(mut entries) = args.entries() else { continue };
        change(&mut entries);
        *args = CallArguments::of_entries(&entries);
    }
    run
}

fn paraphrase(run: &Run, random: &mut Random) -> Run {
    let mut builder = RunBuilder::of(run);
    // The words that were put before the stream of this answer. The complete answer gets the same words.
    let mut opening: Option<String> = None;
    for (index, event) in run.events.iter().enumerate() {
        builder.at(index);
        match event {
            TrajectoryEvent::Other(text) => {
                builder.push(TrajectoryEvent::Other(format!("{}{text}", words::opening(random))));
            }
            TrajectoryEvent::Text(text) => {
                if opening.is_none() && !text.is_empty() {
                    let said = words::opening(random);
                    builder.push(TrajectoryEvent::Text(said.clone()));
                    opening = Some(said);
                }
                builder.push(event.clone());
            }
            TrajectoryEvent::Assistant(text) if !text.is_empty() => {
                let said = opening.take().unwrap_or_else(|| words::opening(random));
                builder.push(TrajectoryEvent::Assistant(format!("{said}{text}")));
            }
            _ => {
                if matches!(event, TrajectoryEvent::Turn | TrajectoryEvent::Tool { .. } | TrajectoryEvent::User(_)) {
                    opening = None;
                }
                builder.push(event.clone());
            }
        }
    }
    builder.done()
}

fn nonces(run: &Run, random: &mut Random) -> Run {
    let style = random.below(4);
    let mut run = on_arguments(run, |entries| entries.push(words::nonce(style, random)));
    for event in &mut run.events {
        if let TrajectoryEvent::ToolResult { text, .. } = event {
            text.push_str(&words::trailer(style, random));
        }
    }
    run
}

fn harmless(run: &Run, random: &mut Random) -> Run {
    let turns = run.events.contains(&TrajectoryEvent::Turn);
    let results = run.events.iter().any(|event| matches!(event, TrajectoryEvent::ToolResult { .. }));
    let mut builder = RunBuilder::of(run);
    let (mut open, mut real, mut step_ended) = (0_usize, 0_usize, false);
    for (index, event) in run.events.iter().enumerate() {
        let begins = if turns { *event == TrajectoryEvent::Turn } else { is_call(event) && (step_ended || !results) };
        // Never two in a row: there is a real call between them.
        if begins && (open == 0 || !results) && real > 0 && random.below(HARMLESS_EVERY) == 0 {
            let (name, args, result) = words::harmless(random);
            if turns {
                builder.push(TrajectoryEvent::Turn);
            }
            builder.push(TrajectoryEvent::tool(name, &args));
            if results {
                builder.push(TrajectoryEvent::result(name, true, result));
            }
            real = 0;
        }
        match event {
            TrajectoryEvent::Tool { .. } => (open, real, step_ended) = (open + 1, real + 1, false),
            TrajectoryEvent::ToolResult { .. } => (open, step_ended) = (open.saturating_sub(1), true),
            _ => {}
        }
        builder.at(index);
        builder.push(event.clone());
    }
    builder.done()
}

fn whitespace(run: &Run, random: &mut Random) -> Run {
    let mut run = run.clone();
    for event in &mut run.events {
        match event {
            TrajectoryEvent::Tool { args, .. } => match args.entries() {
                Some(mut entries) => {
                    for (_, value) in entries.iter_mut().filter(|(key, _)| words::is_command(key)) {
                        if let Value::String(text) = value {
                            *text = words::respaced(text, random);
                        }
                    }
                    *args = CallArguments::of_entries(&entries);
                }
                None => *args = CallArguments::parse(&format!("{}{}", args.written(), random.pick(&["", " ", "\n"]))),
            },
            TrajectoryEvent::ToolResult { text, .. } => text.push_str(random.pick(&["", " ", "\n", "\n\n", " \n"])),
            _ => {}
        }
    }
    run
}

/// Positions at which a program can be restarted: between steps. A restart within a stream is impossible: the model
/// call would be repeated from its beginning.
fn restart_points(run: &Run) -> Vec<usize> {
    let turns = run.events.contains(&TrajectoryEvent::Turn);
    let is_place = |(index, event): (usize, &TrajectoryEvent)| {
        let begins = if turns { *event == TrajectoryEvent::Turn } else { is_call(event) };
        (index > 0 && begins).then_some(index)
    };
    run.events.iter().enumerate().filter_map(is_place).collect()
}

#[cfg(test)]
mod tests;
