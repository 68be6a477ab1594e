//! The progress of a run, computed from its events: its steps and its newest tool call.
//!
//! A run with a plan or a worker consists of pieces: each execution of a step of the plan, and each worker. A piece
//! counts its own steps from 1, and again from 1 after a crash. The count here is over all pieces.
//!
//! The fold [`JobProgress::take`] is in this crate since the store computes the progress, the gateway and
//! the job commands show it, and fakes of the store compute it too.

use serde::Serialize;

use crate::event::EventKind;
use crate::job::RunsIn;
use crate::time::UnixMillis;

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobProgress {
    /// The steps that have started, over all its pieces.
    pub steps: u32,
    /// Its newest tool call.
    pub last_action: Option<Action>,
    /// The place where it runs.
    #[serde(skip)]
    runs_in: RunsIn,
    /// The steps of its present piece.
    #[serde(skip)]
    piece: u32,
    /// The number of the newest step of the piece.
    #[serde(skip)]
    newest: Option<u32>,
    /// The child runs that have not ended. Their steps are not counted.
    #[serde(skip)]
    children: u32,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    /// The time of its start or end.
    pub at: UnixMillis,
    /// The tool.
    pub tool: String,
    /// `running`, or the status of the result.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["running", "success", "error", "denied", "cancelled", "not_executed", "outcome_unknown"])))]
    pub status: &'static str,
}

impl JobProgress {
    /// No progress yet, of a run in this place.
    pub fn running_in(runs_in: RunsIn) -> Self {
        Self { runs_in, ..Self::default() }
    }

    /// The steps of its present piece: those that a crash would repeat.
    pub fn piece(&self) -> u32 {
        self.piece
    }

    /// Applies the next event of the run, in the order of the store.
    pub fn take(&mut self, at: UnixMillis, kind: EventKind) {
        match kind {
            // Several calls within a step, such as a check, count as one step.
            EventKind::ModelCalled { step, .. } if self.children == 0 && self.newest != Some(step) => {
                self.newest = Some(step);
                self.steps = self.steps.saturating_add(1);
                self.piece = self.piece.saturating_add(1);
            }
            EventKind::PlanCreated { .. } | EventKind::PlanStep { .. } => self.begin_piece(),
            // The steps of a worker are steps of the job.
            EventKind::SubagentStarted { .. } if self.runs_in == RunsIn::Worker => self.begin_piece(),
            EventKind::SubagentStarted { .. } => self.children = self.children.saturating_add(1),
            EventKind::SubagentEnded { .. } => self.children = self.children.saturating_sub(1),
            // Its child runs have ended with the process.
            EventKind::RunStarted { .. } => self.children = 0,
            EventKind::ToolStarted { name, .. } => {
                self.last_action = Some(Action { at, tool: name, status: "running" });
            }
            EventKind::ToolFinished { name, status, .. } => {
                self.last_action = Some(Action { at, tool: name, status: status.word() });
            }
            _ => {}
        }
    }

    fn begin_piece(&mut self) {
        (self.piece, self.newest) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolStatus;
    use crate::run::Termination;
    use crate::stop::StopReason;

    fn asked(step: u32) -> EventKind {
        EventKind::model_called(step, None, None)
    }

    fn begun() -> EventKind {
        EventKind::SubagentStarted { call_id: "c".into(), task: "t".into(), depth: 1 }
    }

    fn ended() -> EventKind {
        let (termination, reason) = (Termination::Goal, StopReason::FinalText);
        EventKind::SubagentEnded { call_id: "c".into(), termination, reason, turns: 1 }
    }

    fn plan_step(status: &str) -> EventKind {
        EventKind::PlanStep { index: 0, status: status.into(), executor: "general".into(), note: None }
    }

    #[test]
    fn steps_are_counted_over_all_pieces_and_without_those_of_others() {
        let again = || EventKind::RunStarted { attempt: 2 };
        let planned = || EventKind::PlanCreated { plan_id: "p".into(), title: "t".into(), steps: Vec::new() };
        for (name, runs_in, facts, expected) in [
            ("a check within a step", RunsIn::Local, vec![asked(1), asked(1), asked(2)], (2, 2)),
            ("a subagent", RunsIn::Local, vec![asked(1), begun(), asked(1), asked(2), ended(), asked(2)], (2, 2)),
            ("a crash", RunsIn::Local, vec![asked(1), begun(), asked(1), again(), asked(2)], (2, 2)),
            (
                "a plan of two executions",
                RunsIn::Local,
                vec![
                    asked(1),
                    planned(),
                    plan_step("in_progress"),
                    asked(1),
                    asked(2),
                    plan_step("in_progress"),
                    asked(1),
                ],
                (4, 1),
            ),
            (
                "a plan's summary",
                RunsIn::Local,
                vec![plan_step("in_progress"), asked(1), plan_step("completed"), asked(7)],
                (2, 1),
            ),
            ("a worker", RunsIn::Worker, vec![begun(), asked(1), asked(2), again(), begun(), asked(1)], (3, 1)),
        ] {
            let mut progress = JobProgress::running_in(runs_in);
            facts.into_iter().for_each(|fact| progress.take(UnixMillis(0), fact));
            assert_eq!((progress.steps, progress.piece()), expected, "{name}");
        }
    }

    #[test]
    fn the_newest_call_says_how_it_stands() {
        let mut progress = JobProgress::default();
        let (call_id, name) = (crate::ids::CallId::from("c"), "look".to_owned());
        progress.take(
            UnixMillis(1),
            EventKind::ToolStarted { call_id: call_id.clone(), name: name.clone(), arguments: String::new() },
        );
        assert_eq!(progress.last_action.as_ref().map(|action| action.status), Some("running"));
        let status = ToolStatus::Success;
        progress.take(
            UnixMillis(2),
            EventKind::ToolFinished { call_id, name: name.clone(), status, took_ms: 1, result: String::new() },
        );
        assert_eq!(progress.last_action, Some(Action { at: UnixMillis(2), tool: name, status: "success" }));
    }
}
