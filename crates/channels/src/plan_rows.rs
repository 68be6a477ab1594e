//! The rows of a plan, made of what a run does at a time.

use belay_protocol::{LivePlan, PlanStepState};
use belay_terminal::{PlanMark, PlanRows};

/// The plan as a terminal shows it.
pub fn plan_rows(plan: &LivePlan) -> PlanRows {
    let steps = plan.steps.iter().map(|step| (mark(step.state), step.text.clone()));
    PlanRows { title: plan.title.clone(), held: plan.held, steps: steps.collect() }
}

fn mark(state: PlanStepState) -> PlanMark {
    match state {
        PlanStepState::Pending => PlanMark::Pending,
        PlanStepState::InProgress => PlanMark::InProgress,
        PlanStepState::Completed => PlanMark::Completed,
        PlanStepState::Blocked => PlanMark::Blocked,
        PlanStepState::Dropped => PlanMark::Dropped,
    }
}
