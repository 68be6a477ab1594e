//! Goals: a run that goes on over attempts until its check holds.
//!
//! A goal is one run: the check is a call of that run, and an attempt is the loop of a conversation or of a job. So the
//! limits, the stop engine, the account, the approvals and the checkpoints of the run hold for all attempts together.

mod attempts;
mod command;
mod endings;
mod judge;
mod state;
mod texts;

use belay_agent_loop::{LoopContext, LoopError, LoopOutcome};
use belay_automation::jobs::JobContext;
use belay_protocol::{EventKind, GoalRequest};

use self::attempts::Attempt;
use self::command::Checked;
use self::state::GoalState;
use crate::chat::ChatDelegate;

/// Begins the list of outputs that are missing.
const OUTPUTS: &str = "These outputs are missing:";
/// At the start there is nothing that was submitted or could be judged.
const NOTHING_DONE: &str = "Nothing is done yet.";

/// A goal and how its run works.
pub struct GoalTask<'a> {
    /// The request.
    pub request: GoalRequest,
    /// The job, if the run is an attempt at one.
    pub job: Option<&'a JobContext>,
}

/// Whether an attempt was in progress when the run was interrupted. Otherwise a check is due.
pub fn is_working(context: &LoopContext) -> bool {
    GoalState::read(&context.state.delegate).working
}

/// Works until the goal is reached or the run has to end. `resumed`: the outcome of what an interruption has left.
///
/// # Errors
/// The model call failed, or the store does not answer.
pub async fn run(
    turn: &mut ChatDelegate,
    context: &mut LoopContext,
    task: GoalTask<'_>,
    resumed: Option<LoopOutcome>,
) -> Result<LoopOutcome, LoopError> {
    let state = GoalState::read(&context.state.delegate);
    let mut goal = Goal { task, state, said: String::new() };
    let mut last = None;
    if goal.state.working {
        goal.take_up(turn, context);
        match goal.attempt(turn, context, resumed).await? {
            Attempt::Ended(end) => last = end,
            Attempt::Leaves(outcome) => return Ok(outcome),
        }
    }
    loop {
        goal.show(turn);
        let checked = goal.check(turn, context).await?;
        goal.note(turn, &checked);
        let failed = match checked {
            Checked::Holds(evidence) => return Ok(goal.reached(turn, context, &evidence)),
            Checked::Refused("check_refused", why) if last.is_some() => why, // at a limit nothing may run
            Checked::Refused(cause, why) => return Ok(goal.missed(turn, context, cause, &why, "")),
            Checked::Leaves(outcome) => return Ok(*outcome),
            Checked::Fails(what) => what,
        };
        goal.state.said = texts::tail(&failed);
        if let Some(end) = last {
            let end = goal.with_facts(end, &failed);
            turn.summary = Some(goal.said).filter(|said| !said.is_empty());
            return Ok(LoopOutcome::Stopped(end));
        }
        if goal.state.attempts >= goal.task.request.attempts() {
            let why = texts::used(goal.state.attempts);
            return Ok(goal.missed(turn, context, "attempts", &why, &failed));
        }
        goal.begin(turn, context, &failed);
        match goal.attempt(turn, context, None).await? {
            Attempt::Ended(end) => last = end,
            Attempt::Leaves(outcome) => return Ok(outcome),
        }
    }
}

struct Goal<'a> {
    task: GoalTask<'a>,
    state: GoalState,
    /// The answer of the last attempt.
    said: String,
}

impl Goal<'_> {
    /// Checks whether the goal is reached: first what is free, then the command, then what a model has to judge.
    async fn check(&mut self, turn: &mut ChatDelegate, context: &mut LoopContext) -> Result<Checked, LoopError> {
        let is_start = self.state.attempts == 0;
        let until = self.task.request.until.clone();
        if turn.goal.is_none() && !until.outputs.is_empty() {
            return Ok(Checked::Refused("check_refused", "a job in a worker submits no outputs".to_owned()));
        }
        if let Some(declared) = turn.goal.as_ref().map(|goal| &goal.declared)
            && !declared.reached()
            && !is_start
        {
            let missing: Vec<&str> = declared.missing().iter().map(|output| output.name.as_str()).collect();
            return Ok(Checked::Fails(format!("{OUTPUTS} {}.", missing.join(", "))));
        }
        let mut evidence = String::new();
        if let Some(words) = &until.command {
            match command::check(turn, context, &mut self.state, words).await? {
                Checked::Holds(said) => evidence = said,
                other => return Ok(other),
            }
        }
        if is_start && (turn.goal.is_some() || until.judge.is_some()) {
            return Ok(Checked::Fails(NOTHING_DONE.to_owned()));
        }
        let Some(criterion) = &until.judge else { return Ok(Checked::Holds(evidence)) };
        let judged = judge::judge(turn, context, criterion).await?;
        Ok(match judged {
            Checked::Holds(quote) => Checked::Holds(format!("{evidence}\n{quote}").trim().to_owned()),
            other => other,
        })
    }

    /// Records the result of a check, for those who follow the run.
    fn note(&self, turn: &mut ChatDelegate, checked: &Checked) {
        let missing = match checked {
            Checked::Holds(_) => None,
            Checked::Fails(what) => Some(texts::tail(what)),
            Checked::Refused(..) | Checked::Leaves(_) => return,
        };
        let (attempt, attempts) = (self.state.attempts, self.task.request.attempts());
        turn.core.journal.note(EventKind::GoalChecked { attempt, attempts, holds: missing.is_none(), missing });
    }

    fn show(&self, turn: &ChatDelegate) {
        let (_, micro_usd) = turn.core.tally.spent();
        turn.core.live.goal.show(texts::shown(&self.task.request, &self.state, micro_usd));
    }
}
