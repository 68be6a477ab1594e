//! Attempts at a goal: each is the loop of a conversation or of a job, with its steps anew.

use belay_agent_loop::{AgenticLoopConfig, LoopContext, LoopError, LoopOutcome, run_agentic_loop};
use belay_protocol::{Message, RunEnd, StopLayer, StopReason};

use super::{Goal, NOTHING_DONE, OUTPUTS, command, texts};
use crate::chat::ChatDelegate;
use crate::job;

/// The end of an attempt.
pub(super) enum Attempt {
    /// The check is due. With an end, no other attempt follows.
    Ended(Option<RunEnd>),
    /// The run pauses, or was told to stop.
    Leaves(LoopOutcome),
}

impl Goal<'_> {
    /// Begins the next attempt.
    pub(super) fn begin(&mut self, turn: &mut ChatDelegate, context: &mut LoopContext, failed: &str) {
        self.state.attempts += 1;
        self.state.check += 1;
        self.state.working = true;
        self.state.steps_before = context.state.iteration;
        self.state.write(&mut context.state.delegate);
        if let Some(goal) = &mut turn.goal {
            goal.again();
        }
        self.restore(turn, context);
        let told = match self.is_outside(failed) {
            // The judge has read whatever the run has read.
            true => {
                context.push(Message::data(failed).with_untrusted(true).for_run());
                "It does not hold now; see above."
            }
            false => failed,
        };
        let notice = texts::notice(&self.task.request, &self.state, told);
        context.push(Message::system(notice).for_run());
    }

    /// Whether what the last check said are words of a command or of the judge, not of Belay.
    fn is_outside(&self, failed: &str) -> bool {
        !failed.starts_with(OUTPUTS) && failed != NOTHING_DONE
    }

    /// Takes up an attempt that was interrupted. Outputs from before its check were not accepted.
    pub(super) fn take_up(&mut self, turn: &mut ChatDelegate, context: &mut LoopContext) {
        let own = context.messages.get(turn.turn_start..).unwrap_or_default();
        if let Some(outputs) = &turn.goal
            && let Some(at) = command::place_of(turn, own, self.state.check.saturating_sub(1))
        {
            outputs.count_only(&own[at..]);
        }
        self.restore(turn, context);
    }

    /// Gives the delegate what belongs to the current attempt.
    fn restore(&mut self, turn: &mut ChatDelegate, context: &mut LoopContext) {
        turn.first_step = self.state.steps_before;
        (turn.silent, turn.cut_off) = (false, None);
        if context.state.iteration == self.state.steps_before {
            // An attempt begins as a turn does: with its tools.
            (context.state.force_text, context.state.forced) = (false, None);
        }
        self.show(turn);
    }

    /// Runs one attempt to its end.
    pub(super) async fn attempt(
        &mut self,
        turn: &mut ChatDelegate,
        context: &mut LoopContext,
        resumed: Option<LoopOutcome>,
    ) -> Result<Attempt, LoopError> {
        let outcome = match (resumed, self.task.job) {
            (Some(outcome), _) => outcome,
            (None, Some(work)) => Box::pin(job::drive(turn, context, work)).await?,
            (None, None) => {
                let reasoning = turn.reasoning.clone();
                let steps = turn.core.services.config.max_tool_iterations;
                let last = u32::from(turn.goal.is_none());
                let config = AgenticLoopConfig {
                    max_iterations: turn.first_step.saturating_add(steps).saturating_add(last),
                    ..AgenticLoopConfig::with_rules(turn.core.rules.clone())
                };
                run_agentic_loop(turn, &reasoning, context, &config).await?
            }
        };
        turn.core.live.output.end_text();
        let end = match outcome {
            LoopOutcome::Response(text) => {
                self.said = text;
                None
            }
            LoopOutcome::MaxIterations { .. } => None,
            LoopOutcome::Stopped(end) if end.reason.layer() == StopLayer::Operator => {
                return Ok(Attempt::Leaves(LoopOutcome::Stopped(end)));
            }
            LoopOutcome::Stopped(end) => {
                self.said = turn.summary.take().unwrap_or_default();
                Some(end).filter(|end| !is_natural(end.reason))
            }
            other => return Ok(Attempt::Leaves(other)),
        };
        self.state.working = false;
        self.state.write(&mut context.state.delegate);
        Ok(Attempt::Ended(end))
    }
}

/// Whether the model has ended its attempt itself. Every other end ends the goal too.
fn is_natural(reason: StopReason) -> bool {
    matches!(
        reason,
        StopReason::Goal
            | StopReason::Terminated
            | StopReason::FinalText
            | StopReason::EmptyReply
            | StopReason::MissingOutputs
    )
}
