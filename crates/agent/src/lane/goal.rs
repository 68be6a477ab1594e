//! Commands about the goal of the running turn. Nobody waits for the turn: it shows what it does, and a stop is a stop.

use belay_protocol::{GoalCommand, StopReason};

use super::port::note;
use super::{Lane, Undone};
use crate::mail::{LaneCommand, LaneNote};
use belay_run::live::StopCause;

/// Without a goal.
const NONE: &str = "No goal is being worked for here. /goal TEXT until CHECK sets one, for example: /goal make the tests pass \
until `make test`.";
const WAITS_ITS_TURN: &str = "The goal waits its turn behind another message. /stop takes it back.";
const NOT_READY: &str = "The goal begins in a moment, or waits for an answer to its question.";
const CANCELLED: &str = "The goal was cancelled.";

impl Lane {
    /// Carries out a command about the goal.
    pub(super) async fn goal_command(&mut self, command: LaneCommand, order: GoalCommand) {
        let begun = self.state.current().or_else(|| self.state.paused().map(|paused| &paused.waiting));
        let said = match begun.filter(|current| current.run.goal.is_expected()) {
            Some(current) => match order {
                GoalCommand::Show => current.run.goal.shown().ok_or(NOT_READY),
                GoalCommand::Cancel => {
                    let cause = StopCause { told: true, ..StopCause::of(StopReason::UserStop) };
                    note(&self.port.notes, LaneNote::Stop { run: current.run.clone(), cause }).await;
                    Ok(CANCELLED.to_owned())
                }
            },
            None if self.queue.iter().any(|waiting| waiting.run.goal.is_expected()) => Err(WAITS_ITS_TURN),
            None => Err(NONE),
        };
        self.say(command, said.map_err(|why| Undone::Refused(why.to_owned()))).await;
    }
}
