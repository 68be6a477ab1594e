//! Counts steps in which every call failed.

use std::collections::VecDeque;

use belay_text::untrusted;
use serde::{Deserialize, Serialize};

use super::observation::{CallOutcome, Observation};
use super::tool_loops;

/// Longest part of the newest error that is stored for the evidence, in bytes.
const MAX_ERROR_BYTES: usize = 240;

/// Most errors that are told apart. One more drops the oldest.
const MAX_KINDS: usize = 16;

/// Counts steps in a row in which at least one call was executed and every executed call failed.
///
/// A step is judged when none of its calls is open, and again when another call follows in the same step. So the count
/// is correct at the very result that completes the step. A step without executed calls does not change the count. A
/// step ends when the next one begins. In recordings without steps, a call after a result begins a step.
///
/// A step with an error that the run has not had before counts half: five different errors in a row are a search, five
/// equal ones are none. Of such steps, an odd one counts whole. A success ends the row, and the errors before it are
/// known: a run that meets them again searches no longer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Errors {
    /// Failed steps in a row before the current one.
    before: u64,
    /// Calls of this step without a result.
    open: u32,
    /// Executed calls of this step.
    executed: u32,
    /// Executed calls of this step that failed.
    failed: u32,
    /// This step is already counted. A further call in it does not undo that, a success does.
    counted: bool,
    /// Whether steps have been observed.
    steps_told: bool,
    /// Whether the newest call or result was a result.
    after_result: bool,
    /// The words of the errors of the run, as bit sets, oldest first.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    kinds: VecDeque<u64>,
    /// Steps of this row before the current one whose error was new.
    different: u64,
    /// Whether the current step has a new error.
    differs: bool,
    /// The beginning of the newest failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    newest: String,
}

impl Errors {
    /// Processes an observation.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Step => {
                self.steps_told = true;
                self.end_step();
            }
            Observation::Assistant { .. } | Observation::Text(_) => self.end_step(),
            Observation::ToolCall { .. } => {
                if self.after_result && !self.steps_told {
                    self.end_step();
                }
                self.after_result = false;
                self.open = self.open.saturating_add(1);
            }
            Observation::ToolResult { name, outcome, text } => self.take(name, *outcome, text),
            _ => {}
        }
    }

    fn take(&mut self, name: &str, outcome: CallOutcome, text: &str) {
        self.after_result = true;
        self.open = self.open.saturating_sub(1);
        // Many programs report "not ready yet" with a failing exit code. That is neither a success nor a failure.
        let waits = outcome.is_failure() && tool_loops::is_pending(text);
        if outcome != CallOutcome::NotExecuted && !waits {
            self.executed = self.executed.saturating_add(1);
        }
        if outcome.is_failure() && !waits {
            // The evidence is for people, and the marks around untrusted content are for the model.
            let text = untrusted::without(text);
            let text = text.trim_end();
            self.failed = self.failed.saturating_add(1);
            self.differs |= self.is_new(tool_loops::words_of_error(text));
            self.newest.clear();
            for part in [name, ": ", text] {
                let room = MAX_ERROR_BYTES - self.newest.len();
                self.newest.push_str(&part[..part.floor_char_boundary(room)]);
            }
        }
        self.counted |= self.executed > 0 && self.open == 0;
    }

    /// Stores the words of an error. Returns whether it is another than the stored ones.
    fn is_new(&mut self, words: u64) -> bool {
        if self.kinds.iter().any(|known| tool_loops::is_same_error(*known, words)) {
            return false;
        }
        if self.kinds.len() == MAX_KINDS {
            self.kinds.pop_front();
        }
        self.kinds.push_back(words);
        true
    }

    /// Ends the step. Calls that never got a result are ignored.
    fn end_step(&mut self) {
        self.open = 0;
        (self.before, self.different) = self.steps();
        self.differs = false;
        (self.executed, self.failed, self.counted, self.after_result) = (0, 0, false, false);
    }

    /// Failed steps in a row, including the current one if it can be judged already. Two steps with new errors count as
    /// one.
    pub fn count(&self) -> u64 {
        let (steps, different) = self.steps();
        steps - different / 2
    }

    /// Failed steps in a row, and those of them with a new error.
    fn steps(&self) -> (u64, u64) {
        if self.failed < self.executed {
            (0, 0)
        } else if self.executed > 0 && (self.open == 0 || self.counted) {
            (self.before.saturating_add(1), self.different.saturating_add(u64::from(self.differs)))
        } else {
            (self.before, self.different)
        }
    }

    /// The tool and the beginning of the newest error; empty if there is none.
    pub fn newest(&self) -> &str {
        &self.newest
    }

    /// Forgets everything except whether steps are observed.
    pub fn clear(&mut self) {
        *self = Self { steps_told: self.steps_told, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;

    use super::*;

    /// s: a step begins; c: a call; f: it failed; o: it succeeded; p: it is still pending; n: it was not executed; d:
    /// denied; a: an answer.
    fn counts(events: &str) -> Vec<u64> {
        let arguments = Arguments::parse("{}");
        let told = |outcome, text| Observation::ToolResult { name: "t", outcome, text };
        let result = |outcome| told(outcome, "no such file");
        let mut errors = Errors::default();
        events
            .chars()
            .map(|event| {
                errors.observe(&match event {
                    's' => Observation::Step,
                    'c' => Observation::ToolCall { name: "t", arguments: &arguments, spec: None },
                    'f' => result(CallOutcome::Failed),
                    'p' => told(CallOutcome::Failed, "lint pass, tests pending"),
                    't' => told(CallOutcome::Failed, "Timed out. The job is still queued."),
                    'o' => result(CallOutcome::Success),
                    'n' => result(CallOutcome::NotExecuted),
                    'd' => result(CallOutcome::Denied),
                    _ => Observation::Assistant { text: "hm", nudged: false },
                });
                errors.count()
            })
            .collect()
    }

    #[test]
    fn a_step_counts_at_the_result_that_completes_it() {
        for (events, expected, why) in [
            ("scfscf", &[0, 0, 1, 1, 1, 2][..], "a failing call in each of two steps"),
            ("sccff", &[0, 0, 0, 0, 1], "a batch counts once, when none is open"),
            ("sccfo", &[0, 0, 0, 0, 0], "one of a batch worked"),
            ("scfsccfo", &[0, 0, 1, 1, 1, 1, 1, 0], "a success resets"),
            ("scfscof", &[0, 0, 1, 1, 1, 0, 0], "also when a failure follows in the step"),
            ("scfs", &[0, 0, 1, 1], "the step that follows changes nothing by itself"),
            ("scfsasscf", &[0, 0, 1, 1, 1, 1, 1, 1, 2], "a step without calls leaves the count"),
            ("scfscn", &[0, 0, 1, 1, 1, 1], "so does one in which nothing was executed"),
            ("sccnf", &[0, 0, 0, 0, 1], "what was not executed is skipped"),
            ("scd", &[0, 0, 1], "a refusal is a failure"),
            ("scfcf", &[0, 0, 1, 1, 1], "two batches in one step are one step"),
            ("scfco", &[0, 0, 1, 1, 0], "and a success in it resets"),
            ("cfcf", &[0, 1, 1, 2], "without steps, a call after a result begins one"),
            ("cfcfscfcf", &[0, 1, 1, 2, 2, 2, 3, 3, 3], "once steps are told they rule"),
            ("ccffccff", &[0, 0, 0, 1, 1, 1, 1, 2], "batches without steps"),
            ("cfaccff", &[0, 1, 1, 1, 1, 1, 2], "an answer ends a step"),
            ("sccfscf", &[0, 0, 0, 0, 1, 1, 2], "a call that never got its result is skipped"),
            ("scpscp", &[0, 0, 0, 0, 0, 0], "what is pending yet has not failed"),
            ("scfscp", &[0, 0, 1, 1, 1, 1], "nor has it worked"),
            ("sctsct", &[0, 0, 1, 1, 1, 2], "an error is one, whatever it is about"),
            ("f", &[1], "a result whose call was not recorded"),
        ] {
            assert_eq!(counts(events), expected, "{events}: {why}");
        }
    }

    #[test]
    fn different_errors_count_half_and_equal_ones_whole() {
        for (errors, expected, why) in [
            (&["no host", "no host", "no host", "no host", "no host"][..], 5, "one error"),
            (&["no host", "bad word", "out of time", "too long", "not allowed"], 3, "five errors are a search"),
            (
                &[
                    "no host",
                    "bad word",
                    "out of time",
                    "too long",
                    "not allowed",
                    "never closed",
                    "cannot open",
                    "wrong type",
                    "lost again",
                ],
                5,
                "but nine are too many",
            ),
            (&["line 7: no host", "line 9: no host", "line 12: no host"], 3, "numbers make no other error"),
            (&["no host", "bad word", "no host", "bad word", "no host"], 4, "two errors in turn"),
        ] {
            let mut counted = Errors::default();
            for text in errors {
                counted.observe(&Observation::Step);
                counted.observe(&Observation::ToolResult { name: "t", outcome: CallOutcome::Failed, text });
            }
            assert_eq!(counted.count(), expected, "{why}");
            counted.observe(&Observation::Step);
            counted.observe(&Observation::ToolResult { name: "t", outcome: CallOutcome::Success, text: "ok" });
            counted.observe(&Observation::Step);
            counted.observe(&Observation::ToolResult { name: "t", outcome: CallOutcome::Failed, text: "no host" });
            assert_eq!(counted.count(), 1, "a success ends the row before it: {why}");
        }
    }

    #[test]
    fn an_error_that_came_before_a_success_is_known_when_it_comes_again() {
        let mut counted = Errors::default();
        let mut step = |outcome, text| {
            counted.observe(&Observation::Step);
            counted.observe(&Observation::ToolResult { name: "t", outcome, text });
            counted.count()
        };
        let found = ["no host", "bad word", "out of time", "too long"];
        assert_eq!(found.map(|error| step(CallOutcome::Failed, error)), [1, 1, 2, 2], "a search");
        assert_eq!(step(CallOutcome::Success, "done"), 0);
        assert_eq!(found.map(|error| step(CallOutcome::Failed, error)), [1, 2, 3, 4], "the same four again");
        assert_eq!(step(CallOutcome::Failed, "never closed"), 5, "one new error of five counts whole");
    }

    #[test]
    fn the_evidence_shows_no_marks_of_untrusted_content() {
        let text = untrusted::marked("page", "0123456789ab", "Access denied");
        let mut errors = Errors::default();
        errors.observe(&Observation::ToolResult { name: "fetch", outcome: CallOutcome::Failed, text: &text });
        assert_eq!(errors.newest(), "fetch: Access denied");
    }

    #[test]
    fn the_newest_error_is_kept_short_and_whole_characters() {
        let mut errors = Errors::default();
        let text = "ä".repeat(1_000);
        errors.observe(&Observation::ToolResult { name: "read", outcome: CallOutcome::Failed, text: &text });
        assert!(errors.newest().starts_with("read: ä") && errors.newest().len() <= MAX_ERROR_BYTES);
    }
}
