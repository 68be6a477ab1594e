//! What a plan's run remembers over restarts: the plans, and for each step of the active one its attempts and its result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::plans::{MAX_CHARS, Plan, Plans, StepStatus};

/// Longest result of a step that is kept, in characters. 4000: a page of text, which later steps read.
const MAX_RESULT_CHARS: usize = 4000;
/// Longest account of all results in one prompt, in characters; the oldest are left out first.
const MAX_RESULTS_CHARS: usize = 16_000;
/// Messages to the job that later steps read; the oldest are left out first. The step at work reads all.
const MAX_SAID: usize = 20;
/// Longest note that is made of a result or of a trouble, in characters: a line.
const MAX_NOTE_CHARS: usize = 200;
/// Where it stands in `LoopState::delegate`.
const KEY: &str = "plan";

/// The state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlanState {
    pub plans: Plans,
    /// Executions of steps so far, repeated ones included.
    pub executions: u32,
    /// Steps of a job that are used up, those that the execution at work may still use included.
    pub used: u32,
    /// What was said to the job meanwhile.
    said: Vec<String>,
    steps: BTreeMap<usize, Work>,
}

/// What became of the work on one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Work {
    attempts: u32,
    /// An attempt is under way.
    running: bool,
    /// The steps that were booked for it: the most that it may make.
    booked: u32,
    /// Its result, once there is one.
    result: Option<String>,
    /// Why the attempt before did not succeed.
    trouble: Option<String>,
}

impl PlanState {
    /// What an earlier attempt of the run has stored. A step that was being carried out then was interrupted. `forgiving`: that
    /// was no attempt at it, since somebody else counts the crashes. `made`: how many steps it had made, where anybody knows;
    /// the others that were booked for it are given back.
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

    /// Puts it where the next checkpoint takes it along.
    pub(super) fn write(&self, delegate: &mut Value) {
        if !delegate.is_object() {
            *delegate = Value::Object(Map::new());
        }
        delegate[KEY] = serde_json::to_value(self).unwrap_or_default();
    }

    /// Counts an execution of a step and returns which attempt it is, from 1.
    pub(super) fn begin(&mut self, index: usize) -> u32 {
        self.executions += 1;
        let work = self.steps.entry(index).or_default();
        work.attempts += 1;
        work.running = true;
        work.attempts
    }

    /// Books the steps that the attempt under way may make.
    pub(super) fn book(&mut self, index: usize, steps: u32) {
        self.used = self.used.saturating_add(steps);
        self.steps.entry(index).or_default().booked = steps;
    }

    /// The attempt has made so many: the others are given back.
    pub(super) fn made(&mut self, index: usize, steps: u32) {
        let booked = std::mem::take(&mut self.steps.entry(index).or_default().booked);
        self.used = self.used.saturating_sub(booked.saturating_sub(steps));
    }

    /// Keeps what was said to the job.
    pub(super) fn hear(&mut self, text: &str) {
        self.said.push(cut(text, MAX_CHARS));
        let surplus = self.said.len().saturating_sub(MAX_SAID);
        self.said.drain(..surplus);
    }

    /// What was said to the job, oldest first.
    pub(super) fn said(&self) -> &[String] {
        &self.said
    }

    /// Attempts of a step so far.
    pub(super) fn attempts(&self, index: usize) -> u32 {
        self.steps.get(&index).map_or(0, |work| work.attempts)
    }

    /// Why the attempt before did not succeed.
    pub(super) fn trouble(&self, index: usize) -> Option<&str> {
        self.steps.get(&index).and_then(|work| work.trouble.as_deref())
    }

    /// Ends an attempt that did not succeed, and keeps why.
    pub(super) fn fail(&mut self, index: usize, trouble: &str) {
        let work = self.steps.entry(index).or_default();
        work.running = false;
        work.trouble = Some(cut(trouble, MAX_CHARS));
    }

    /// Ends an attempt that succeeded, and keeps its result.
    pub(super) fn keep(&mut self, index: usize, result: &str) {
        let work = self.steps.entry(index).or_default();
        work.running = false;
        work.result = Some(cut(result, MAX_RESULT_CHARS));
    }

    /// The result of a step.
    pub(super) fn result(&self, index: usize) -> Option<&str> {
        self.steps.get(&index).and_then(|work| work.result.as_deref())
    }

    /// The results of completed steps, in order; where they are too long together, the newest.
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

/// A text as a note: its first line that says something, bounded.
pub(crate) fn note_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    cut(&line.split_whitespace().collect::<Vec<_>>().join(" "), MAX_NOTE_CHARS)
}

/// At most so many characters of a text, the last one saying that it was cut.
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
