//! Changes of a plan by people, before and between its steps. Pure. People count the steps from 1.

use belay_protocol::PlanCommand;

use super::plans::{MAX_CHARS, MAX_STEPS, Plan, PlanError, PlanStep, StepStatus, bounded};
use super::state::PlanState;

/// Why a command changed nothing, as a sentence for the person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("There is no step {number}: the steps of this plan are 1 to {last}.")]
    NoStep { number: u64, last: usize },
    #[error("A new step can have the numbers {first} to {last}: the steps before have begun.")]
    NoPlace { first: usize, last: usize },
    #[error("Step {number} is running. A step can be changed or dropped before it begins; /plan cancel ends the plan.")]
    Running { number: u64 },
    #[error("Step {number} has ended ({status}). A step can be changed or dropped before it begins.")]
    Over { number: u64, status: &'static str },
    #[error("The plan does not wait for an approval.")]
    NotHeld,
    #[error("The plan waits for an approval already. /plan approve lets it go on.")]
    Held,
    #[error("No further step is open.")]
    NothingOpen,
    #[error("A plan has at most {MAX_STEPS} steps.")]
    TooMany,
    #[error("Nothing was changed: {0}.")]
    Text(#[from] PlanError),
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The kind, for the event.
    pub(super) kind: &'static str,
    /// The index of the step; `None`: it is about the whole plan.
    pub(super) index: Option<usize>,
    /// A sentence for the person.
    pub(super) said: String,
}

/// Carries out a command. `running`: the steps that have begun and not ended.
pub(super) fn apply(state: &mut PlanState, command: &PlanCommand, running: &[usize]) -> Result<Change, Refused> {
    let plan = state.plans.active_mut().ok_or(PlanError::NoneActive)?;
    let whole = |kind, said: &str| Ok(Change { kind, index: None, said: said.to_owned() });
    match command {
        PlanCommand::Hold if state.held => Err(Refused::Held),
        PlanCommand::Hold if plan.next_open(running).is_none() => Err(Refused::NothingOpen),
        PlanCommand::Hold => {
            (state.held, state.holds) = (true, state.holds + 1);
            whole("held", "No further step begins before /plan approve.")
        }
        PlanCommand::Approve if !state.held => Err(Refused::NotHeld),
        PlanCommand::Approve => {
            state.held = false;
            whole("approved", "Approved: the plan goes on.")
        }
        PlanCommand::Change { step: number, text } => {
            let index = plan.changeable(*number, running)?;
            let step = step_of(text)?;
            plan.steps[index] = PlanStep { after: plan.steps[index].after.take(), ..step };
            state.begin_anew(index);
            Ok(Change { kind: "changed", index: Some(index), said: format!("Step {number} is changed.") })
        }
        PlanCommand::Drop { step } => {
            let index = plan.changeable(*step, running)?;
            plan.steps[index].status = StepStatus::Dropped;
            let said = format!("Step {step} is dropped: {}", plan.steps[index].text);
            Ok(Change { kind: "dropped", index: Some(index), said })
        }
        PlanCommand::Add { step, text } => {
            let index = plan.place(*step, running)?;
            plan.insert(index, step_of(text)?);
            state.make_room(index);
            Ok(Change { kind: "added", index: Some(index), said: format!("Step {step} is added.") })
        }
        // The lane answers these itself.
        PlanCommand::Show | PlanCommand::Cancel => Err(Refused::NothingOpen),
    }
}

fn step_of(text: &str) -> Result<PlanStep, Refused> {
    Ok(PlanStep { text: bounded("the text of the step", text, MAX_CHARS)?, ..PlanStep::default() })
}

impl Plan {
    /// The first step that is neither running nor over.
    pub(super) fn next_open(&self, running: &[usize]) -> Option<usize> {
        (0..self.steps.len()).find(|at| self.is_open(*at, running))
    }

    fn is_open(&self, at: usize, running: &[usize]) -> bool {
        let status = self.steps.get(at).map(|step| step.status);
        matches!(status, Some(StepStatus::NotStarted | StepStatus::InProgress)) && !running.contains(&at)
    }

    /// The index of a step that can be changed or dropped.
    fn changeable(&self, number: u64, running: &[usize]) -> Result<usize, Refused> {
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let Some((at, step)) = at.and_then(|at| Some((at, self.steps.get(at)?))) else {
            return Err(Refused::NoStep { number, last: self.steps.len() });
        };
        match step.status {
            _ if self.is_open(at, running) => Ok(at),
            StepStatus::NotStarted | StepStatus::InProgress => Err(Refused::Running { number }),
            over => Err(Refused::Over { number, status: over.word() }),
        }
    }

    /// The index for a new step with this number: behind all steps that have begun.
    fn place(&self, number: u64, running: &[usize]) -> Result<usize, Refused> {
        let has_begun = |at: &usize| running.contains(at) || self.steps[*at].status.has_begun();
        let first = (0..self.steps.len()).rev().find(has_begun).map_or(1, |at| at + 2);
        let last = self.steps.len() + 1;
        if self.steps.len() >= MAX_STEPS {
            return Err(Refused::TooMany);
        }
        match usize::try_from(number) {
            Ok(number) if (first..=last).contains(&number) => Ok(number - 1),
            _ => Err(Refused::NoPlace { first, last }),
        }
    }

    /// Inserts a step. The numbers by which later steps name those that they need follow.
    fn insert(&mut self, index: usize, step: PlanStep) {
        let needed = self.steps.iter_mut().filter_map(|step| step.after.as_mut()).flatten();
        needed.filter(|needed| **needed >= index).for_each(|needed| *needed += 1);
        self.steps.insert(index, step);
    }
}

#[cfg(test)]
mod tests;
