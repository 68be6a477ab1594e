//! A notation for runs in the form of a transcript.
//!
//! A script consists of lines, and a line of steps that are separated by `|`. A step is `name(key=value, …)`, or
//! `name("…")` for the single argument `command`. Optionally `->` and the result follow, with a `!` before the result
//! if the call failed. `5x` before a line repeats the line. A line `batch` before a line makes all calls of the line
//! before the first result. `clock 5` advances the clock by this number of seconds. In a repeated line, these
//! placeholders differ each time:
//!
//! | written | becomes |
//! |---|---|
//! | `{i}` | 1, 2, 3, … |
//! | `{w}` | a word |
//! | `{r}` | a random id |
//! | `{u}` | a UUID |
//! | `{t}` | a time of day with its date |
//!
//! and `{long}` is always the same long text, `{long {i}}` a different one each time.

use belay_protocol::{Arguments, Finding};
use serde_json::{Map, Value};

use super::super::super::observation::{CallOutcome, Observation};
use super::super::{ToolLoopConfig, ToolLoops};

/// An event of a script.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Call { name: String, arguments: Arguments },
    Result { name: String, outcome: CallOutcome, text: String },
    Clock(u64),
    Compacted,
}

impl Event {
    pub(super) fn seen(&self) -> Observation<'_> {
        match self {
            Self::Call { name, arguments } => Observation::ToolCall { name, arguments, spec: None },
            Self::Result { name, outcome, text } => Observation::ToolResult { name, outcome: *outcome, text },
            Self::Clock(at) => Observation::Clock(*at),
            Self::Compacted => Observation::Compacted { before: 9, after: 1 },
        }
    }
}

/// Parses a script.
pub(super) fn read(script: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let mut now = 1_000;
    let mut batch = false;
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line == "batch" {
            batch = true;
            continue;
        }
        let (times, line) = match line.split_once("x ") {
            Some((times, rest)) if times.parse::<u32>().is_ok() => (times.parse().expect("a number"), rest),
            _ => (1, line),
        };
        for i in 1..=times {
            let line = fill(line, i);
            let mut results = Vec::new();
            for step in line.split(" | ") {
                step_events(step.trim(), &mut now, &mut events, &mut results);
                if !batch {
                    events.append(&mut results);
                }
            }
            events.append(&mut results);
        }
        batch = false;
    }
    events
}

fn fill(line: &str, i: u32) -> String {
    const WORDS: [&str; 50] = [
        "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jolly", "kiosk", "lemon",
        "mango", "noble", "ocean", "pearl", "quilt", "raven", "sable", "tulip", "umbra", "vivid", "waltz", "xenon",
        "yacht", "zebra", "acorn", "basil", "coral", "dingo", "eagle", "ferry", "gecko", "hazel", "ivory", "jumbo",
        "koala", "lilac", "maple", "nylon", "olive", "piano", "quark", "robin", "sugar", "tango", "ultra", "venom",
        "wheat", "yeast",
    ];
    let seed = u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let line = line
        .replace("{i}", &i.to_string())
        .replace("{w}", WORDS[i as usize % WORDS.len()])
        .replace("{r}", &format!("a{}b{}c{}d{}", seed % 89 + 10, seed / 97 % 89 + 10, seed / 911 % 89 + 10, i))
        .replace("{u}", &format!("{:08x}-0000-4000-8000-{:012x}", seed as u32, seed >> 20))
        .replace("{t}", &format!("2026-01-02T03:{:02}:{:02}.{:03}Z", i % 60, 7 * i % 59 + 1, seed % 1000))
        .replace("{long}", &long("it"));
    match line.split_once("{long ") {
        Some((before, rest)) => {
            let (which, after) = rest.split_once('}').expect("a closing brace");
            format!("{before}{}{after}", long(which))
        }
        None => line,
    }
}

fn long(which: &str) -> String {
    format!(
        "This is the beginning of a text about {which}, which goes on for quite a while, as texts of that kind are wont to, and then ends."
    )
}

fn step_events(step: &str, now: &mut u64, events: &mut Vec<Event>, results: &mut Vec<Event>) {
    if step == "compacted" {
        events.push(Event::Compacted);
        return;
    }
    if let Some(seconds) = step.strip_prefix("clock ") {
        *now += 1000 * seconds.parse::<u64>().expect("seconds");
        events.push(Event::Clock(*now));
        return;
    }
    let (call, result) = match step.split_once(" -> ") {
        Some((call, result)) => (call, Some(result)),
        None => match step.strip_suffix(" ->") {
            Some(call) => (call, Some("")),
            None => (step, None),
        },
    };
    let (name, arguments) = call.split_once('(').expect("name(…)");
    let arguments = arguments.strip_suffix(')').unwrap_or_else(|| panic!("no closing brace in {call}"));
    events.push(Event::Call { name: name.into(), arguments: Arguments::Object(map(arguments)) });
    if let Some(result) = result {
        let (outcome, text) = match result.strip_prefix('!') {
            Some(text) => (CallOutcome::Failed, text),
            None => (CallOutcome::Success, result),
        };
        results.push(Event::Result { name: name.into(), outcome, text: text.into() });
    }
}

fn map(arguments: &str) -> Map<String, Value> {
    if let Some(command) = arguments.strip_prefix('"') {
        let command = command.strip_suffix('"').expect("a closing quote");
        return Map::from_iter([("command".to_owned(), Value::from(command))]);
    }
    let pairs = arguments.split(", ").filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').expect("key=value");
            let value = value.parse::<i64>().map_or_else(|_| Value::from(value), Value::from);
            (key.to_owned(), value)
        })
        .collect()
}

/// Plays events. Returns the number of the call at which a loop was found, and the finding.
pub(super) fn play(config: &ToolLoopConfig, events: &[Event]) -> Option<(usize, Finding)> {
    let mut loops = ToolLoops::default();
    let mut calls = 0;
    for event in events {
        calls += usize::from(matches!(event, Event::Call { .. }));
        loops.observe(config, &event.seen());
        if let Some(found) = loops.found() {
            return Some((calls, found.clone()));
        }
    }
    None
}
