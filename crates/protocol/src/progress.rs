//! How a run gets on, as its facts tell it: its steps, and its newest tool call.
//!
//! A run that makes a plan, and one that works in a worker, has pieces: each execution of a plan's step, and each worker, counts
//! its own steps from 1 and begins again from 1 after a crash. Counted here are those of all pieces together.

use serde::Serialize;

use crate::event::EventKind;
use crate::job::RunsIn;
use crate::time::UnixMillis;

/// What a run has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Doing {
    /// Steps begun, over all its pieces.
    pub steps: u32,
    /// Its newest tool call.
    pub last_action: Option<Action>,
    /// Where it works.
    #[serde(skip)]
    room: RunsIn,
    /// Steps of the piece that it is at.
    #[serde(skip)]
    piece: u32,
    /// The number of the piece's newest step.
    #[serde(skip)]
    newest: Option<u32>,
    /// Runs that it has started and that have not ended: their steps are not its own.
    #[serde(skip)]
    children: u32,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// When it began, or ended.
    pub at: UnixMillis,
    /// The tool.
    pub tool: String,
    /// `running`, or how the call ended.
    pub status: &'static str,
}

impl Doing {
    /// Nothing yet, in this room.
    pub fn in_room(room: RunsIn) -> Self {
        Self { room, ..Self::default() }
    }

    /// Steps of the piece that it is at: what a crash now would have it do again, where it has pieces.
    pub fn piece(&self) -> u32 {
        self.piece
    }

    /// Takes the next fact, in the order of the store.
    pub fn take(&mut self, at: UnixMillis, kind: EventKind) {
        match kind {
            // Asked twice within a step, as by a check, it is the same step.
            EventKind::ModelCalled { step, .. } if self.children == 0 && self.newest != Some(step) => {
                self.newest = Some(step);
                self.steps = self.steps.saturating_add(1);
                self.piece = self.piece.saturating_add(1);
            }
            EventKind::PlanCreated { .. } | EventKind::PlanStep { .. } => self.begin_piece(),
            // A worker's steps are the job's.
            EventKind::SubagentStarted { .. } if self.room == RunsIn::Worker => self.begin_piece(),
            EventKind::SubagentStarted { .. } => self.children = self.children.saturating_add(1),
            EventKind::SubagentEnded { .. } => self.children = self.children.saturating_sub(1),
            // What it had started has ended with the process.
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
        EventKind::ModelCalled { step, attempts: 1, input: None, output: None }
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
        for (name, room, facts, expected) in [
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
            let mut doing = Doing::in_room(room);
            facts.into_iter().for_each(|fact| doing.take(UnixMillis(0), fact));
            assert_eq!((doing.steps, doing.piece()), expected, "{name}");
        }
    }

    #[test]
    fn the_newest_call_says_how_it_stands() {
        let mut doing = Doing::default();
        let (call_id, name) = (crate::ids::CallId::from("c"), "look".to_owned());
        doing.take(UnixMillis(1), EventKind::ToolStarted { call_id: call_id.clone(), name: name.clone() });
        assert_eq!(doing.last_action.as_ref().map(|action| action.status), Some("running"));
        let status = ToolStatus::Success;
        doing.take(UnixMillis(2), EventKind::ToolFinished { call_id, name: name.clone(), status, took_ms: 1 });
        assert_eq!(doing.last_action, Some(Action { at: UnixMillis(2), tool: name, status: "success" }));
    }
}
