//! Plans: their steps, the status of each step, and the commands on them. Pure; errors are sentences for the model.

use std::fmt::Write as _;

use belay_protocol::{LivePlan, LivePlanStep, PlanStepState};
use serde::{Deserialize, Serialize};

/// Most plans of one run. 16: a model does not keep more apart.
pub(crate) const MAX_PLANS: usize = 16;
/// Most steps of a plan. 50: a longer list is no plan.
pub(crate) const MAX_STEPS: usize = 50;
/// Longest step, note and title, in characters. 500: a paragraph, since every prompt contains the plan.
pub(crate) const MAX_CHARS: usize = 500;
/// Longest id, in characters.
const MAX_ID_CHARS: usize = 64;

/// The status of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepStatus {
    #[default]
    NotStarted,
    InProgress,
    Completed,
    Blocked,
    /// A person has left it out.
    Dropped,
}

impl StepStatus {
    /// All statuses.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 5] =
        [Self::NotStarted, Self::InProgress, Self::Completed, Self::Blocked, Self::Dropped];

    /// The status as a word, in the tool and in events.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::NotStarted => "not_started",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Blocked => "blocked",
            Self::Dropped => "dropped",
        }
    }

    fn mark(self) -> char {
        match self {
            Self::NotStarted => ' ',
            Self::InProgress => '→',
            Self::Completed => '✓',
            Self::Blocked => '!',
            Self::Dropped => '-',
        }
    }

    fn displayed(self) -> PlanStepState {
        match self {
            Self::NotStarted => PlanStepState::Pending,
            Self::InProgress => PlanStepState::InProgress,
            Self::Completed => PlanStepState::Completed,
            Self::Blocked => PlanStepState::Blocked,
            Self::Dropped => PlanStepState::Dropped,
        }
    }

    /// Whether the step has begun.
    pub(super) fn has_begun(self) -> bool {
        matches!(self, Self::InProgress | Self::Completed | Self::Blocked)
    }

    /// Returns whether the step still needs work.
    fn is_active(self) -> bool {
        matches!(self, Self::NotStarted | Self::InProgress)
    }
}

/// A step of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanStep {
    pub text: String,
    #[serde(default)]
    pub status: StepStatus,
    /// A note on the step; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The steps that it needs, by their numbers. `None`: all before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<usize>>,
}

/// A step of a new plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewStep {
    pub text: String,
    /// The steps that it needs, by their numbers. `None`: all before it.
    pub after: Option<Vec<usize>>,
}

impl From<&String> for NewStep {
    fn from(text: &String) -> Self {
        Self { text: text.clone(), after: None }
    }
}

/// A list of steps with a title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub id: String,
    pub title: String,
    pub steps: Vec<PlanStep>,
}

impl Plan {
    /// The number of steps with this status.
    pub(super) fn count(&self, status: StepStatus) -> usize {
        self.steps.iter().filter(|step| step.status == status).count()
    }

    /// The texts of the steps, in order.
    pub(super) fn texts(&self) -> Vec<String> {
        self.steps.iter().map(|step| step.text.clone()).collect()
    }

    /// The first step that still needs work, that is not among the running ones, and whose needed steps have ended.
    pub(super) fn next_ready(&self, is_running: impl Fn(usize) -> bool) -> Option<usize> {
        let has_ended = |at: usize| self.steps.get(at).is_none_or(|step| !step.status.is_active());
        let ready = |(at, step): (usize, &PlanStep)| {
            let needs_ended = match &step.after {
                Some(after) => after.iter().copied().all(has_ended),
                None => (0..at).all(has_ended),
            };
            (step.status.is_active() && needs_ended && !is_running(at)).then_some(at)
        };
        self.steps.iter().enumerate().find_map(ready)
    }

    /// The plan for a display. `held`: whether its next step waits for a person.
    pub(super) fn displayed(&self, held: bool) -> LivePlan {
        let step = |step: &PlanStep| LivePlanStep { text: step.text.clone(), state: step.status.displayed() };
        LivePlan { title: self.title.clone(), held, steps: self.steps.iter().map(step).collect() }
    }

    /// Whether no step is left.
    pub(super) fn has_ended(&self) -> bool {
        self.steps.iter().all(|step| !step.status.is_active())
    }

    /// Renders the plan for a model or a person: title, progress, counts, and the steps with their marks and notes.
    pub(super) fn render(&self) -> String {
        let head = format!("Plan: {} (ID: {})", self.title, self.id);
        let (done, all) = (self.count(StepStatus::Completed), self.steps.len());
        let percent = if all == 0 { 0.0 } else { 100.0 * done as f64 / all as f64 };
        let mut counts = [StepStatus::Completed, StepStatus::InProgress, StepStatus::Blocked, StepStatus::NotStarted]
            .map(|status| format!("{} {}", self.count(status), status.word().replace('_', " ")))
            .join(", ");
        match self.count(StepStatus::Dropped) {
            0 => {}
            dropped => counts.push_str(&format!(", {dropped} dropped (do not carry them out)")),
        }
        let underline = "=".repeat(head.chars().count());
        let mut text = format!(
            "{head}\n{underline}\n\nProgress: {done}/{all} steps completed ({percent:.1}%)\nStatus: {counts}\n\nSteps:"
        );
        for (at, PlanStep { text: step, status, note, .. }) in self.steps.iter().enumerate() {
            let _ = write!(text, "\n{at}. [{}] {step}", status.mark()); // a String takes everything
            if !note.is_empty() {
                let _ = write!(text, "\n   Note: {note}");
            }
        }
        text
    }
}

/// Why a command changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("there is already a plan with the id {0}; give another one or none")]
    Duplicate(String),
    #[error("there is no plan with the id {0}")]
    Unknown(String),
    #[error("no plan is active; create one")]
    NoneActive,
    #[error("{0} must not be empty")]
    Empty(&'static str),
    #[error("{what} has {chars} characters, and at most {max} are allowed")]
    TooLong { what: String, chars: usize, max: usize },
    #[error("a plan has at most {MAX_STEPS} steps, and these are {0}: join some of them")]
    TooManySteps(usize),
    #[error("there are {MAX_PLANS} plans already")]
    TooManyPlans,
    #[error("there is no step {index}: the steps of this plan are numbered 0 to {last}")]
    NoStep { index: u64, last: usize },
    #[error("step {step} needs step {needed}: a step can only need steps before it")]
    NotBefore { step: usize, needed: u64 },
    #[error("step {0} is neither a text nor an object with a step and the steps that it needs (after)")]
    NoText(usize),
    #[error("{command} needs {argument}")]
    Missing { command: &'static str, argument: &'static str },
}

/// The plans of a run. At most one of them is active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Plans {
    plans: Vec<Plan>,
    active: Option<String>,
}

impl Plans {
    /// The plan for commands without an id.
    pub(super) fn active(&self) -> Option<&Plan> {
        self.active.as_ref().and_then(|id| self.plans.iter().find(|plan| plan.id == *id))
    }

    /// Creates a plan whose steps need all steps before them.
    pub(super) fn create(&mut self, id: Option<&str>, title: &str, steps: &[String]) -> Result<&Plan, PlanError> {
        self.create_ordered(id, title, &steps.iter().map(NewStep::from).collect::<Vec<_>>())
    }

    /// Creates a plan and makes it the active one. Without an id, the plan gets the first free one of `plan-1`,
    /// `plan-2`, …
    pub(super) fn create_ordered(
        &mut self,
        id: Option<&str>,
        title: &str,
        steps: &[NewStep],
    ) -> Result<&Plan, PlanError> {
        if self.plans.len() >= MAX_PLANS {
            return Err(PlanError::TooManyPlans);
        }
        let id = match id {
            Some(id) => bounded("the id", id, MAX_ID_CHARS)?,
            None => self.unused_id(),
        };
        if self.plans.iter().any(|plan| plan.id == id) {
            return Err(PlanError::Duplicate(id));
        }
        let steps = checked(steps)?;
        let plan = Plan { id: id.clone(), title: bounded("the title", title, MAX_CHARS)?, steps };
        self.plans.push(plan);
        self.active = Some(id);
        self.get(None)
    }

    fn unused_id(&self) -> String {
        let mut n = self.plans.len() + 1;
        while self.plans.iter().any(|plan| plan.id == format!("plan-{n}")) {
            n += 1;
        }
        format!("plan-{n}")
    }

    /// The plan with this id, or the active one.
    pub(super) fn get(&self, id: Option<&str>) -> Result<&Plan, PlanError> {
        let wanted = id.map(str::trim).or(self.active.as_deref()).ok_or(PlanError::NoneActive)?;
        let found = self.plans.iter().find(|plan| plan.id == wanted);
        found.ok_or_else(|| PlanError::Unknown(wanted.to_owned()))
    }

    /// The plan for commands without an id, to change it.
    pub(super) fn active_mut(&mut self) -> Option<&mut Plan> {
        self.find(None).ok()
    }

    fn find(&mut self, id: Option<&str>) -> Result<&mut Plan, PlanError> {
        let wanted = id.map(str::trim).or(self.active.as_deref()).ok_or(PlanError::NoneActive)?.to_owned();
        self.plans.iter_mut().find(|plan| plan.id == wanted).ok_or(PlanError::Unknown(wanted))
    }

    /// Changes the status or the note of a step, or both. The index counts from 0.
    pub(crate) fn mark_step(
        &mut self,
        id: Option<&str>,
        index: u64,
        status: Option<StepStatus>,
        note: Option<&str>,
    ) -> Result<&Plan, PlanError> {
        let note = note.map(|note| short("the note", note, MAX_CHARS)).transpose()?;
        if status.is_none() && note.is_none() {
            return Err(PlanError::Missing { command: "mark_step", argument: "step_status or step_notes" });
        }
        let plan = self.find(id)?;
        let last = plan.steps.len().saturating_sub(1);
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let step = plan.steps.get_mut(at).ok_or(PlanError::NoStep { index, last })?;
        step.status = status.unwrap_or(step.status);
        step.note = note.unwrap_or_else(|| std::mem::take(&mut step.note));
        Ok(plan)
    }
}

/// Joins a text to one line and checks its length.
fn short(what: &str, text: &str, max: usize) -> Result<String, PlanError> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let chars = line.chars().count();
    if chars > max { Err(PlanError::TooLong { what: what.to_owned(), chars, max }) } else { Ok(line) }
}

/// Does the same and refuses an empty text.
pub(super) fn bounded(what: &'static str, text: &str, max: usize) -> Result<String, PlanError> {
    let line = short(what, text, max)?;
    if line.is_empty() { Err(PlanError::Empty(what)) } else { Ok(line) }
}

fn checked(steps: &[NewStep]) -> Result<Vec<PlanStep>, PlanError> {
    if steps.is_empty() {
        return Err(PlanError::Empty("the list of steps"));
    }
    if steps.len() > MAX_STEPS {
        return Err(PlanError::TooManySteps(steps.len()));
    }
    let step = |(at, NewStep { text, after }): (usize, &NewStep)| {
        let text = short(&format!("step {at}"), text, MAX_CHARS)?;
        if text.is_empty() {
            return Err(PlanError::Empty("a step"));
        }
        if let Some(needed) = after.iter().flatten().find(|needed| **needed >= at) {
            return Err(PlanError::NotBefore { step: at, needed: *needed as u64 });
        }
        Ok(PlanStep { text, after: after.clone(), ..PlanStep::default() })
    };
    steps.iter().enumerate().map(step).collect()
}

#[cfg(test)]
mod tests;
