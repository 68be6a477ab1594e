//! The judge: decides when to ask a model whether the run is stuck, and contains the question and the parser of the
//! answer.
//!
//! This is the pure part; the code that runs the loop asks the model. The judge is the third layer of loop detection.
//! It finds what the other two cannot: the same work in different words.

use belay_protocol::{Finding, StopReason};
use serde::{Deserialize, Serialize};

use super::observation::Observation;

mod answer;
mod prompt;

pub use answer::{analysis, parse};
pub use prompt::{JudgePrompt, prompt};

/// The wire name of this kind of loop.
pub const LLM_DETECTED_LOOP: &str = "LLM_DETECTED_LOOP";

/// How the judge is asked, and what its answers mean.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeConfig {
    /// Whether the judge is used.
    pub enabled: bool,
    /// The step of the first question. At least 1. (Gemini CLI: 30.)
    pub first_step: u64,
    /// Fewest steps between two questions: the interval after an answer with confidence 1. At least 1. (Gemini CLI: 5.)
    pub min_interval: u64,
    /// Most steps between two questions: the interval after an answer with confidence 0. (Gemini CLI: 15.)
    pub max_interval: u64,
    /// The confidence from which a run counts as stuck. Above 0, at most 1. (Gemini CLI: 0.9.)
    pub confidence: f64,
    /// The number of newest messages in the question. 1 to 200. (Gemini CLI: 20.)
    pub history: usize,
    /// The model that is asked. Absent: the model of the run.
    pub model: Option<String>,
    /// A second model that must agree before the run counts as stuck. Absent: the first answer decides.
    pub second_model: Option<String>,
}

impl Default for JudgeConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            first_step: 30,
            min_interval: 5,
            max_interval: 15,
            confidence: 0.9,
            history: 20,
            model: None,
            second_model: None,
        }
    }
}

impl JudgeConfig {
    /// Returns every problem at once, each beginning with `prefix` and its key.
    pub fn validate(&self, prefix: &str) -> Vec<String> {
        let is_blank = |model: &Option<String>| model.as_ref().is_some_and(|name| name.trim().is_empty());
        let table = [
            ("first_step", self.first_step == 0, "must be at least 1"),
            ("min_interval", self.min_interval == 0, "must be at least 1"),
            ("max_interval", self.max_interval < self.min_interval, "must be at least min_interval"),
            ("confidence", !(self.confidence > 0.0 && self.confidence <= 1.0), "must be above 0, at most 1"),
            ("history", !(1..=200).contains(&self.history), "must be between 1 and 200"),
            ("model", is_blank(&self.model), "must not be empty; leave it out for the model of the run"),
            ("second_model", is_blank(&self.second_model), "must not be empty; leave it out for none"),
        ];
        let wrong = table.into_iter().filter(|(_, is_wrong, _)| *is_wrong);
        wrong.map(|(key, _, what)| format!("{prefix}.{key}: {what}")).collect()
    }
}

/// The times of the last and the next question.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct JudgeState {
    /// Steps of this request so far.
    turns: u64,
    /// Steps until the next question, computed from the last usable answer. Absent: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<u64>,
    /// The step of the last question. Absent: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_check: Option<u64>,
}

impl JudgeState {
    /// Processes an observation.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        if matches!(seen, Observation::Step) {
            self.turns = self.turns.saturating_add(1);
        }
    }

    /// The current step.
    pub fn turn(&self) -> u64 {
        self.turns
    }

    /// Whether to ask the judge now.
    pub fn is_due(&self, config: &JudgeConfig) -> bool {
        let due_at = match self.last_check {
            None => config.first_step,
            Some(last) => last.saturating_add(self.interval.unwrap_or(config.min_interval)),
        };
        config.enabled && self.turns >= due_at
    }

    /// Records the answer. `confidence` is from 0 to 1; `None`: there was no usable answer, and the interval does not
    /// change. The lower the confidence, the longer the interval until the next question.
    pub fn after(&mut self, config: &JudgeConfig, confidence: Option<f64>) {
        self.last_check = Some(self.turns);
        if let Some(confidence) = confidence {
            let span = config.max_interval.saturating_sub(config.min_interval) as f64;
            // Both factors are in range. The cast loses nothing, because the number is rounded.
            let more = (span * (1.0 - confidence.clamp(0.0, 1.0))).round() as u64;
            self.interval = Some(config.min_interval.saturating_add(more));
        }
    }
}

/// The judge's finding, for [`StopState::judged`]. The confidence is from 0 to 1; the finding contains it in
/// hundredths.
///
/// [`StopState::judged`]: super::StopState::judged
pub fn finding(config: &JudgeConfig, confidence: f64, turn: u64, confirmed_by: Option<&str>) -> Finding {
    let hundredths = |share: f64| (share.clamp(0.0, 1.0) * 100.0).round() as u64;
    let finding =
        Finding::new(StopReason::JudgedLoop, LLM_DETECTED_LOOP, hundredths(confidence), hundredths(config.confidence))
            .with("turn", turn);
    match confirmed_by {
        Some(model) => finding.with("confirmed_by", model),
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_question_comes_exactly_at_its_step_and_the_next_by_the_answer() {
        let config = JudgeConfig::default();
        let mut state = JudgeState::default();
        let mut asked = Vec::new();
        for answer in [Some(0.0), None, Some(0.89), Some(1.0), None] {
            loop {
                state.observe(&Observation::Step);
                if state.is_due(&config) {
                    break;
                }
            }
            asked.push(state.turn());
            state.after(&config, answer);
            assert!(!state.is_due(&config), "not twice in one step");
        }
        assert_eq!(asked, [30, 45, 60, 66, 71]);
        state.observe(&Observation::Step);
        assert!(!state.is_due(&JudgeConfig { enabled: false, first_step: 1, ..config }));
    }

    #[test]
    fn the_interval_follows_the_confidence() {
        let config = JudgeConfig::default();
        for (confidence, interval) in [
            (0.0, 15),
            (0.1, 14),
            (0.25, 13),
            (0.5, 10),
            (0.75, 8),
            (0.85, 7),
            (0.89, 6),
            (1.0, 5),
            (-3.0, 15),
            (9.0, 5),
        ] {
            let mut state = JudgeState::default();
            state.after(&config, Some(confidence));
            assert_eq!(state.interval, Some(interval), "{confidence}");
            state.after(&config, None);
            assert_eq!(state.interval, Some(interval), "a failed question changes nothing");
        }
        let mut state = JudgeState::default();
        state.after(&config, None);
        assert_eq!(state, JudgeState { turns: 0, interval: None, last_check: Some(0) });
    }

    #[test]
    fn a_finding_says_how_sure_who_and_when() {
        let found = finding(&JudgeConfig::default(), 0.954, 42, Some("strong"));
        assert_eq!((found.reason, found.rule.as_str()), (StopReason::JudgedLoop, LLM_DETECTED_LOOP));
        assert_eq!((found.count, found.threshold), (95, 90));
        assert_eq!((&found.facts["turn"], &found.facts["confirmed_by"]), (&42.into(), &"strong".into()));
        assert!(!finding(&JudgeConfig::default(), 1.0, 30, None).facts.contains_key("confirmed_by"));
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(JudgeConfig::default().validate("stops.judge").is_empty());
        let bad = JudgeConfig {
            enabled: true,
            first_step: 0,
            min_interval: 0,
            max_interval: 0,
            confidence: 0.0,
            history: 0,
            model: Some(" ".into()),
            second_model: Some(String::new()),
        };
        assert_eq!(bad.validate("stops.judge").len(), 6, "{:#?}", bad.validate("stops.judge"));
        let crossed = JudgeConfig { min_interval: 9, max_interval: 8, confidence: f64::NAN, ..JudgeConfig::default() };
        let expected = [
            "stops.judge.max_interval: must be at least min_interval",
            "stops.judge.confidence: must be above 0, at most 1",
        ];
        assert_eq!(crossed.validate("stops.judge"), expected);
    }
}
