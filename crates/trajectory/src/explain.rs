//! Explains a verdict in plain words, with the steps around it.

mod seen;
mod words;

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use belay_protocol::Finding;
use serde::Serialize;

use self::seen::Seen;
use crate::event::TrajectoryEvent;
use crate::verdict::{Judge, Verdict};

/// Calls and answers that are shown before the strike, and behind it.
const BEFORE: usize = 7;
const AFTER: usize = 2;

/// Different calls that are counted. A run with more is not followed any further.
const CALLS: usize = 100_000;

/// Most steps that are listed for one call: the newest.
const STEPS: usize = 12;

/// Longest text of a cell, in characters.
const CELL: usize = 60;

/// Follows a run: judges it, and remembers what an explanation needs.
#[derive(Debug)]
pub struct Follow {
    judge: Judge,
    steps: u64,
    calls: u64,
    counted: HashMap<u64, Counted>,
    newest: u64,
    rows: VecDeque<Row>,
    seen: Seen,
    strike: Option<Strike>,
}

/// How often one call was made, and in which steps.
#[derive(Debug)]
struct Counted {
    call: String,
    count: u64,
    steps: VecDeque<u64>,
}

#[derive(Debug)]
struct Strike {
    finding: Finding,
    at_step: u64,
    /// Its number, and the number with which a run ends.
    number: (u32, u32),
    /// The message to the model; `None`: the run would have ended.
    told: Option<String>,
    call: u64,
}

/// A call or an answer of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The model call, from 1.
    pub step: u64,
    /// The tool; empty for an answer.
    pub tool: String,
    /// The arguments, or the beginning of the answer.
    pub said: String,
    /// The beginning of the result. `None`: there is none.
    pub result: Option<String>,
    /// Whether the rule became true here.
    pub strike: bool,
}

/// The explanation of a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The verdict in one sentence.
    pub verdict: String,
    /// Model calls of the run.
    pub steps: u64,
    /// Tool calls of the run.
    pub tool_calls: u64,
    /// The step of the first strike, from 1.
    pub at_step: Option<u64>,
    /// The number of that strike, from 1.
    pub strike: Option<u32>,
    /// The number of the strike that ends a run: `stops.max_strikes`.
    pub max_strikes: Option<u32>,
    /// Whether that strike would have ended the run. If not, the model gets a recovery turn first.
    pub ends: Option<bool>,
    /// The steps in which the call of that step was made: at most the newest twelve until then.
    pub same_call: Vec<u64>,
    /// The calls and answers around the strike. Empty without one.
    pub around: Vec<Row>,
    /// What the model would have been told. `None`: there was no strike, or the run would have ended.
    pub told: Option<String>,
    /// The settings that change the verdict.
    pub settings: Vec<&'static str>,
}

impl Follow {
    /// Follows a run from its beginning.
    pub fn new(judge: Judge) -> Self {
        Self {
            judge,
            steps: 0,
            calls: 0,
            counted: HashMap::new(),
            newest: 0,
            rows: VecDeque::new(),
            seen: Seen::default(),
            strike: None,
        }
    }

    /// Takes the next event.
    pub fn observe(&mut self, event: &TrajectoryEvent) {
        self.remember(event);
        let Some(finding) = self.judge.observe(event) else { return };
        if self.strike.is_none() {
            if let Some(row) = self.rows.back_mut() {
                row.strike = true;
            }
            let told = (!self.judge.ends()).then(|| self.seen.told(&finding));
            let number = self.judge.strike();
            self.strike = Some(Strike { finding, at_step: self.steps, number, told, call: self.newest });
        }
    }

    /// The verdict so far.
    pub fn verdict(&self) -> Verdict {
        self.judge.verdict()
    }

    fn remember(&mut self, event: &TrajectoryEvent) {
        match event {
            TrajectoryEvent::Turn => self.steps += 1,
            TrajectoryEvent::Tool { id, name, args } => {
                self.calls += 1;
                self.seen.called(id.as_deref(), name, args.arguments(), self.steps);
                self.count(name, &args.arguments().canonical());
                self.push(name, args.written());
            }
            TrajectoryEvent::Assistant(text) if !text.trim().is_empty() => self.push("", text),
            TrajectoryEvent::ToolResult { id, name, outcome, text } => {
                self.seen.answered(id.as_deref(), name, *outcome, text);
                let waits = |row: &&mut Row| row.tool == *name && row.result.is_none();
                if let Some(row) = self.rows.iter_mut().find(waits) {
                    row.result = Some(short(text));
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, tool: &str, said: &str) {
        let row = Row { step: self.steps, tool: tool.to_owned(), said: short(said), result: None, strike: false };
        match self.rows.iter().position(|row| row.strike) {
            Some(at) if self.rows.len() - at > AFTER => {}
            Some(_) => self.rows.push_back(row),
            None => {
                if self.rows.len() > BEFORE {
                    self.rows.pop_front();
                }
                self.rows.push_back(row);
            }
        }
    }

    fn count(&mut self, name: &str, args: &str) {
        let mut hasher = DefaultHasher::new();
        (name, args).hash(&mut hasher);
        if self.strike.is_some() {
            return;
        }
        self.newest = hasher.finish();
        if self.counted.len() >= CALLS && !self.counted.contains_key(&self.newest) {
            return;
        }
        let new = || Counted { call: short(&format!("{name} {args}")), count: 0, steps: VecDeque::new() };
        let counted = self.counted.entry(self.newest).or_insert_with(new);
        counted.count += 1;
        if counted.steps.len() == STEPS {
            counted.steps.pop_front();
        }
        counted.steps.push_back(self.steps);
    }

    /// Explains the verdict.
    pub fn explanation(&self) -> Explanation {
        let most = self.counted.values().max_by(|a, b| (a.count, &b.call).cmp(&(b.count, &a.call)));
        let same = match &self.strike {
            Some(strike) => self.counted.get(&strike.call),
            None => most,
        };
        let same = same.filter(|counted| counted.count > 1);
        let mut same_call: Vec<u64> = same.map(|counted| counted.steps.iter().copied().collect()).unwrap_or_default();
        same_call.dedup();
        let verdict = match &self.strike {
            Some(strike) => {
                let recovers = strike.told.is_some().then_some(strike.number);
                words::struck(&strike.finding, (strike.at_step, self.steps), recovers, &same_call)
            }
            None => {
                words::healthy(self.steps, self.calls, same.map(|same| (same.call.as_str(), same.count)), &same_call)
            }
        };
        let struck = self.strike.as_ref();
        Explanation {
            verdict,
            steps: self.steps,
            tool_calls: self.calls,
            at_step: struck.map(|strike| strike.at_step),
            strike: struck.map(|strike| strike.number.0),
            max_strikes: struck.map(|strike| strike.number.1),
            ends: struck.map(|strike| strike.told.is_none()),
            same_call,
            around: if struck.is_some() { self.rows.iter().cloned().collect() } else { Vec::new() },
            told: struck.and_then(|strike| strike.told.clone()),
            settings: struck.map(|strike| words::settings(&strike.finding)).unwrap_or_default(),
        }
    }
}

/// The beginning of a text, in one line.
fn short(text: &str) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if words.chars().count() > CELL {
            break;
        }
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().take(CELL + 1));
    }
    if words.chars().count() > CELL { words.chars().take(CELL).collect::<String>() + "…" } else { words }
}

#[cfg(test)]
mod tests {
    use belay_agent_loop::policies::StopRules;

    use super::*;

    fn followed(events: &[TrajectoryEvent]) -> Explanation {
        let mut follow = Follow::new(Judge::new(StopRules::progress()));
        events.iter().for_each(|event| follow.observe(event));
        follow.explanation()
    }

    fn step(command: &str, result: &str) -> [TrajectoryEvent; 3] {
        let args = format!("{{\"command\":\"{command}\"}}");
        [TrajectoryEvent::Turn, TrajectoryEvent::tool("bash", &args), TrajectoryEvent::result("bash", true, result)]
    }

    #[test]
    fn a_loop_is_explained_with_its_steps() {
        let mut events: Vec<TrajectoryEvent> = Vec::new();
        (0..3).for_each(|n| events.extend(step(&format!("ls dir{n}"), &format!("file{n} of directory {n}"))));
        (0..8).for_each(|_| events.extend(step("npm test", "14 lines that stay the same")));
        let said = followed(&events);
        assert_eq!(
            (said.steps, said.at_step, said.same_call.as_slice()),
            (11, Some(8), &[4, 5, 6, 7, 8][..]),
            "{said:?}"
        );
        let begins = "would have been struck at step 8 of 11 (strike 1 of 2; a live run gets a recovery turn first): ";
        assert!(said.verdict.starts_with(begins), "{}", said.verdict);
        assert_eq!((said.strike, said.max_strikes, said.ends), (Some(1), Some(2), Some(false)));
        assert!(said.verdict.contains("`bash {\"command\":\"npm test\"}`"), "{}", said.verdict);
        assert!(said.verdict.ends_with("(steps 4, 5, 6, 7 and 8)"), "{}", said.verdict);
        assert_eq!(said.around.iter().filter(|row| row.strike).map(|row| row.step).collect::<Vec<_>>(), [8]);
        assert_eq!(said.around.last().map(|row| row.step), Some(10));
        assert!(said.told.as_deref().is_some_and(|told| told.contains("npm test")), "{:?}", said.told);
        assert!(said.settings.contains(&"stops.tool_loops.polling_tools"), "{:?}", said.settings);
    }

    #[test]
    fn a_strike_that_ends_the_run_says_so() {
        let fails = |n: u32| {
            let tool = format!("tool{n}");
            [TrajectoryEvent::Turn, TrajectoryEvent::tool(&tool, "{}"), TrajectoryEvent::result(&tool, false, "boom")]
        };
        let said = followed(&(0..6).flat_map(fails).collect::<Vec<_>>());
        assert!(said.verdict.starts_with("would have stopped at step 5 of 6: every call of 5 steps"), "{said:?}");
        assert_eq!((said.strike, said.ends, said.told), (Some(1), Some(true), None));
    }

    #[test]
    fn a_healthy_run_says_what_was_repeated_most() {
        assert_eq!(followed(&[]).verdict, "would not have stopped: there is no step");
        let mut events: Vec<TrajectoryEvent> = Vec::new();
        (0..3).for_each(|n| events.extend(step(&format!("ls dir{n}"), &format!("file{n} of directory {n}"))));
        assert_eq!(
            followed(&events).verdict,
            "would not have stopped in 3 steps with 3 tool calls; no call came twice"
        );
        events.extend(step("ls dir1", "file1 of directory 1"));
        let expected = "would not have stopped in 4 steps with 4 tool calls; the most frequent call, \
                        `bash {\"command\":\"ls dir1\"}`, came 2 times (steps 2 and 4)";
        let said = followed(&events);
        assert_eq!((said.verdict.as_str(), said.told, said.around.len()), (expected, None, 0));
    }

    #[test]
    fn a_long_text_is_cut_at_its_characters() {
        assert_eq!(short("a\n b\t"), "a b");
        assert_eq!(short(&"é".repeat(400)).chars().count(), CELL + 1);
    }
}
