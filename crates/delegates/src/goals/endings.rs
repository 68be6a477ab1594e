//! The ends of a goal that are its own.

use belay_agent_loop::{LoopContext, LoopOutcome};
use belay_protocol::{Message, RunEnd, StopReason};

use super::{Goal, texts};
use crate::chat::ChatDelegate;

impl Goal<'_> {
    /// The end of a run whose goal is reached. No call follows.
    pub(super) fn reached(&self, turn: &mut ChatDelegate, context: &mut LoopContext, evidence: &str) -> LoopOutcome {
        // Declared outputs are the answer.
        if turn.goal.is_none() {
            self.tell(turn, context, texts::reached(&self.task.request, &self.state, evidence));
        }
        let end = RunEnd::of(StopReason::Goal).with("said", evidence);
        LoopOutcome::Stopped(self.facts(end))
    }

    /// The end of a run whose goal is not reached.
    pub(super) fn missed(
        &self,
        turn: &mut ChatDelegate,
        context: &mut LoopContext,
        cause: &'static str,
        why: &str,
        missing: &str,
    ) -> LoopOutcome {
        self.tell(turn, context, texts::missed(why, missing));
        let missing = if missing.is_empty() { why } else { missing };
        let end = RunEnd::of(StopReason::GoalMissed).with("cause", cause);
        LoopOutcome::Stopped(self.with_facts(end, missing))
    }

    pub(super) fn with_facts(&self, end: RunEnd, missing: &str) -> RunEnd {
        self.facts(end).with("missing", texts::tail(missing))
    }

    fn facts(&self, end: RunEnd) -> RunEnd {
        end.with("check", self.task.request.until.written()).with("attempts", self.state.attempts)
    }

    /// Tells the person how the goal has ended, after the answer of the last attempt.
    fn tell(&self, turn: &mut ChatDelegate, context: &mut LoopContext, line: String) {
        context.push(Message::assistant(&line));
        (turn.silent, turn.cut_off) = (false, None);
        turn.summary = Some(match self.said.trim() {
            "" => line,
            said => format!("{said}\n\n{line}"),
        });
    }
}
