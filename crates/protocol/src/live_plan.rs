//! The plan of a working run, as a display shows it.

/// A plan with the states of its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivePlan {
    /// Its title, without a line end.
    pub title: String,
    /// Whether the next step waits for a person.
    pub held: bool,
    /// Its steps, in order.
    pub steps: Vec<LivePlanStep>,
}

/// A step of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivePlanStep {
    /// Its text.
    pub text: String,
    /// Its state.
    pub state: PlanStepState,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanStepState {
    /// It has not begun.
    #[default]
    Pending,
    /// An attempt at it is in progress.
    InProgress,
    /// It has succeeded.
    Completed,
    /// It could not be done.
    Blocked,
    /// A person has left it out.
    Dropped,
}

impl PlanStepState {
    /// The state with this word, as [`EventKind::PlanStep`](crate::EventKind::PlanStep) has it. An unknown word counts
    /// as not begun.
    pub fn of(word: &str) -> Self {
        match word {
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            "blocked" => Self::Blocked,
            "dropped" => Self::Dropped,
            _ => Self::Pending,
        }
    }

    /// Whether the step needs no more work.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Blocked | Self::Dropped)
    }
}

impl LivePlan {
    /// A new plan: no step has begun.
    pub fn new(title: impl Into<String>, steps: Vec<String>) -> Self {
        let step = |text| LivePlanStep { text, state: PlanStepState::Pending };
        Self { title: title.into(), held: false, steps: steps.into_iter().map(step).collect() }
    }

    /// Sets the state of a step. An index behind the last step changes nothing.
    pub fn mark(&mut self, index: usize, state: PlanStepState) {
        if let Some(step) = self.steps.get_mut(index) {
            step.state = state;
        }
    }

    /// Takes a change by a person: its word and its step, and the texts of all steps as they are then. See
    /// [`EventKind::PlanChanged`](crate::EventKind::PlanChanged).
    pub fn change(&mut self, change: &str, index: Option<usize>, texts: Vec<String>) {
        match (change, index) {
            ("added", Some(at)) if at <= self.steps.len() => self.steps.insert(at, LivePlanStep::default()),
            ("dropped", Some(at)) => self.mark(at, PlanStepState::Dropped),
            ("held", _) => self.held = true,
            ("approved", _) => self.held = false,
            _ => {}
        }
        self.steps.resize(texts.len(), LivePlanStep::default());
        self.steps.iter_mut().zip(texts).for_each(|(step, text)| step.text = text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(plan: &LivePlan) -> Vec<(&str, PlanStepState)> {
        plan.steps.iter().map(|step| (step.text.as_str(), step.state)).collect()
    }

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_step_keeps_its_state_when_others_are_added_changed_or_dropped() {
        use PlanStepState::{Completed, Dropped, InProgress, Pending};
        let mut plan = LivePlan::new("tidy", words(&["look", "do"]));
        plan.mark(0, PlanStepState::of("completed"));
        plan.mark(1, PlanStepState::of("in_progress"));
        plan.mark(7, InProgress);
        plan.change("added", Some(1), words(&["look", "ask", "do"]));
        assert_eq!(texts(&plan), [("look", Completed), ("ask", Pending), ("do", InProgress)]);
        plan.change("dropped", Some(1), words(&["look", "ask", "do"]));
        plan.change("changed", Some(2), words(&["look", "ask", "do it"]));
        assert_eq!(texts(&plan), [("look", Completed), ("ask", Dropped), ("do it", InProgress)]);
        plan.change("held", None, words(&["look", "ask", "do it"]));
        assert!(plan.held);
        plan.change("approved", None, words(&["look", "ask", "do it"]));
        assert!(!plan.held && plan.steps.len() == 3);
        plan.change("added", Some(99), words(&["look"]));
        assert_eq!(texts(&plan), [("look", Completed)], "the texts of an event count");
    }
}
