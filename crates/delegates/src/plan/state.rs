//! The state of a plan's run that outlasts a restart: the plans, and the attempts and the result of each step of the
//! active plan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::plans::{MAX_CHARS, Plan, Plans, StepStatus};

/// Longest stored result of a step, in characters. 4000: a page of text for later steps.
const MAX_RESULT_CHARS: usize = 4000;
/// Longest text of all results in one prompt, in characters. The oldest results are left out first.
const MAX_RESULTS_CHARS: usize = 16_000;
/// Most messages to the job that later steps read. The oldest are left out first. The current step reads all.
const MAX_SAID: usize = 20;
/// Longest note about a result or a failure, in characters: one line.
const MAX_NOTE_CHARS: usize = 200;
/// The key of this state in `LoopState::delegate`.
const KEY: &str = "plan";

/// The stored state of a plan's run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlanState {
    pub plans: Plans,
    /// Executions of steps so far, including repeated ones.
    pub executions: u32,
    /// Steps of a job's budget that are used, including those that are reserved for the current execution.
    pub used: u32,
    /// Whether no further step begins before a person approves.
    pub held: bool,
    /// How often it was held: each time is asked about anew.
    pub holds: u32,
    /// Messages to the job since the plan began.
    said: Vec<String>,
    steps: BTreeMap<usize, Work>,
}

/// The work on one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Work {
    attempts: u32,
    /// Whether an attempt is in progress.
    running: bool,
    /// Steps that are reserved for this attempt: the most that it may make.
    booked: u32,
    /// The result of the step, once there is one.
    result: Option<String>,
    /// Why the previous attempt failed.
    trouble: Option<String>,
}

impl PlanState {
    /// Reads the state that an earlier attempt at the run has stored. A step that was in progress counts as
    /// interrupted. `forgiving`: the interruption does not count as an attempt, since the job counts its crashes.
    /// `made`: the steps that the interrupted attempt had made, if known; its other reserved steps are released.
    pub(super) fn read(delegate: &Value, forgiving: bool, made: Option<u32>) -> Self {
        let stored = delegate.get(KEY).cloned();
        let mut state: Self = stored.and_then(|state| serde_json::from_value(state).ok()).unwrap_or_default();
        for work in state.steps.values_mut().filter(|work| work.running) {
            work.running = false;
            work.trouble = Some(super::texts::INTERRUPTED.to_owned());
            let booked = std::mem::take(&mut work.booked);
            state.used = state.used.saturating_sub(booked.saturating_sub(made.unwrap_or(booked)));
            if forgiving {
                work.attempts = work.attempts.saturating_sub(1);
                state.executions = state.executions.saturating_sub(1);
            }
        }
        state
    }

    /// Writes the state to `LoopState::delegate`; the next checkpoint stores it.
    pub(super) fn write(&self, delegate: &mut Value) {
        if !delegate.is_object() {
            *delegate = Value::Object(Map::new());
        }
        delegate[KEY] = serde_json::to_value(self).unwrap_or_default();
    }

    /// Counts an execution of a step and returns the number of the attempt, from 1.
    pub(super) fn begin(&mut self, index: usize) -> u32 {
        self.executions += 1;
        let work = self.steps.entry(index).or_default();
        work.attempts += 1;
        work.running = true;
        work.attempts
    }

    /// Reserves steps for the attempt in progress.
    pub(super) fn book(&mut self, index: usize, steps: u32) {
        self.used = self.used.saturating_add(steps);
        self.steps.entry(index).or_default().booked = steps;
    }

    /// Releases the reserved steps of an attempt that it has not made.
    pub(super) fn made(&mut self, index: usize, steps: u32) {
        let booked = std::mem::take(&mut self.steps.entry(index).or_default().booked);
        self.used = self.used.saturating_sub(booked.saturating_sub(steps));
    }

    /// Adds a message to the job.
    pub(super) fn hear(&mut self, text: &str) {
        self.said.push(cut(text, MAX_CHARS));
        let surplus = self.said.len().saturating_sub(MAX_SAID);
        self.said.drain(..surplus);
    }

    /// Messages to the job, oldest first.
    pub(super) fn said(&self) -> &[String] {
        &self.said
    }

    /// Whether an attempt at a step is in progress.
    pub(super) fn is_at_work(&self, index: usize) -> bool {
        self.steps.get(&index).is_some_and(|work| work.running)
    }

    /// Attempts at a step so far.
    pub(super) fn attempts(&self, index: usize) -> u32 {
        self.steps.get(&index).map_or(0, |work| work.attempts)
    }

    /// Why the previous attempt at a step failed.
    pub(super) fn trouble(&self, index: usize) -> Option<&str> {
        self.steps.get(&index).and_then(|work| work.trouble.as_deref())
    }

    /// Forgets the attempts at a step: it is another one now.
    pub(super) fn begin_anew(&mut self, index: usize) {
        self.steps.remove(&index);
    }

    /// Makes room for a new step at this index. The work on the steps from there on moves by one.
    pub(super) fn make_room(&mut self, index: usize) {
        let later = self.steps.split_off(&index);
        self.steps.extend(later.into_iter().map(|(at, work)| (at + 1, work)));
    }

    /// Ends a failed attempt and stores its reason.
    pub(super) fn fail(&mut self, index: usize, trouble: &str) {
        let work = self.steps.entry(index).or_default();
        work.running = false;
        work.trouble = Some(cut(trouble, MAX_CHARS));
    }

    /// Ends a successful attempt and stores its result.
    pub(super) fn keep(&mut self, index: usize, result: &str) {
        let work = self.steps.entry(index).or_default();
        work.running = false;
        work.result = Some(cut(result, MAX_RESULT_CHARS));
    }

    /// The result of a step.
    pub(super) fn result(&self, index: usize) -> Option<&str> {
        self.steps.get(&index).and_then(|work| work.result.as_deref())
    }

    /// The results of completed steps, in order. Leaves out the oldest when all are too long together.
    pub(super) fn results(&self, plan: &Plan) -> String {
        let mut room = MAX_RESULTS_CHARS;
        let mut lines = Vec::new();
        for (at, step) in plan.steps.iter().enumerate().rev() {
            let Some(result) = self.result(at).filter(|_| step.status == StepStatus::Completed) else { continue };
            let line = format!("- step {at}: {}", result.replace('\n', "\n  "));
            let Some(left) = room.checked_sub(line.chars().count()) else {
                lines.push("- (earlier results are left out)".to_owned());
                break;
            };
            room = left;
            lines.push(line);
        }
        lines.reverse();
        lines.join("\n")
    }
}

/// Makes a note of a text: its first non-blank line, shortened.
pub(crate) fn note_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    cut(&line.split_whitespace().collect::<Vec<_>>().join(" "), MAX_NOTE_CHARS)
}

/// Cuts a text to `max` characters. The last one of a cut text is `…`.
pub(super) fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_stored_is_read_back_and_a_step_in_progress_was_interrupted() {
        let mut state = PlanState::default();
        state.plans.create(None, "t", &["a".into(), "b".into()]).expect("fits");
        state.begin(0);
        state.plans.mark_step(None, 0, Some(StepStatus::InProgress), None).expect("there");
        let mut delegate = json!({"outputs": 1});
        state.write(&mut delegate);
        assert_eq!(delegate["outputs"], 1, "it leaves alone what is not its own");
        let read = PlanState::read(&delegate, false, None);
        assert!(read.trouble(0).is_some_and(|trouble| trouble.contains("interrupted")) && read.trouble(1).is_none());
        assert_eq!((read.attempts(0), read.executions), (1, 1));
        let read = PlanState::read(&delegate, true, None);
        assert_eq!((read.attempts(0), read.executions), (0, 0), "forgiven");
        state.book(0, 20);
        state.write(&mut delegate);
        for (made, used) in [(None, 20), (Some(0), 0), (Some(3), 3), (Some(30), 20)] {
            let mut read = PlanState::read(&delegate, true, made);
            assert_eq!(read.used, used, "{made:?}");
            read.made(0, 0);
            assert_eq!(read.used, used, "given back once: {made:?}");
        }
        state.made(0, 2);
        assert_eq!(state.used, 2);
        state.fail(0, "no broom");
        state.write(&mut delegate);
        assert_eq!(
            PlanState::read(&delegate, false, None).trouble(0),
            Some("no broom"),
            "between two attempts nothing is interrupted"
        );
        for nothing in [Value::Null, json!({"plan": "?"})] {
            assert_eq!(PlanState::read(&nothing, false, None), PlanState::default());
        }
    }

    #[test]
    fn notes_and_results_are_bounded() {
        for (text, expected) in [("", ""), ("\n  one\ttwo \nthree", "one two")] {
            assert_eq!(note_of(text), expected);
        }
        assert_eq!(note_of(&"ä".repeat(300)).chars().count(), MAX_NOTE_CHARS);
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
        let mut state = PlanState::default();
        let texts: Vec<String> = (0..10).map(|n| format!("s{n}")).collect();
        state.plans.create(None, "t", &texts).expect("fits");
        for at in 0..10 {
            state.keep(at, &format!("{at}{}", "x".repeat(5000)));
            state.plans.mark_step(None, at as u64, Some(StepStatus::Completed), None).expect("there");
        }
        let results = state.results(state.plans.active().expect("made"));
        assert!(results.starts_with("- (earlier results are left out)\n- step 7: 7x"), "{}", &results[..80]);
        assert!(results.chars().count() < MAX_RESULTS_CHARS + 100);
    }
}
