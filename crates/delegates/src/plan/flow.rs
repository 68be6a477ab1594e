//! The flow of a plan: make it, carry out its steps, say how it ended.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::policies::{Observation, Totals};
use belay_agent_loop::{LoopContext, LoopError, Meter};
use belay_protocol::{Durability, EventKind, Message, RunEnd, RunStatus, StopLayer, StopReason};

use super::executors::PlanKit;
use super::inbox::PlanInbox;
use super::planner::{Planned, make_plan};
use super::plans::{Plan, StepStatus};
use super::state::{PlanState, note_of};
use super::step::{self, ChildEnd, Execution};
use super::texts;
use belay_run::closing::{self, closing_turn};
use belay_run::core::{Asked, RunCore};
use belay_run::reply::{self, Reply};

/// What a plan is made for.
pub struct PlanTask<'a> {
    /// Where the message that asks for it stands in the context.
    pub start: usize,
    /// The text behind `/plan`, or the task of a job.
    pub request: &'a str,
    /// Who plans, carries out steps and sums up.
    pub kit: &'a Arc<PlanKit>,
    /// What a job may use; `None` for a plan that a person asked for.
    pub budget: Option<PlanBudget>,
}

/// What the plan of a job may use.
#[derive(Clone, Copy)]
pub struct PlanBudget {
    /// Steps of all loops together.
    pub max_steps: u32,
    /// Steps of the piece of work at which the daemon died last; `None` where it did not.
    pub made_at_crash: Option<u32>,
}

/// Works through a plan. Returns the end and what is said with it. The context gains what is said, and nothing of the steps.
///
/// # Errors
/// The model cannot be asked for a plan, or the store does not answer.
///
/// # Cancel safety
/// Dropped midway, the run goes on from its last stored state: a step that was in progress is tried again.
pub async fn run_plan(
    core: &mut RunCore,
    context: &mut LoopContext,
    task: PlanTask<'_>,
) -> Result<(RunEnd, Option<String>), LoopError> {
    let PlanTask { start: turn_start, request, kit, budget } = task;
    // A job that crashes again and again is given up as a whole; what it had not done yet is not taken off its budget.
    let made = budget.and_then(|budget| budget.made_at_crash);
    let state = PlanState::read(&context.state.delegate, budget.is_some(), made);
    let mut flow = PlanFlow { core, context, turn_start, request, kit, budget, state };
    let early = flow.work().await?;
    let (end, text) = match early {
        None => flow.complete().await?,
        Some(end) => flow.end_early(end).await,
    };
    if let Some(text) = &text {
        flow.context.push(Message::assistant(text));
    }
    Ok((flow.with_evidence(end), text))
}

struct PlanFlow<'a> {
    core: &'a mut RunCore,
    context: &'a mut LoopContext,
    turn_start: usize,
    request: &'a str,
    kit: &'a Arc<PlanKit>,
    budget: Option<PlanBudget>,
    state: PlanState,
}

impl PlanFlow<'_> {
    /// The loop over steps. `None`: no step is left to work on; otherwise why it ends before that.
    async fn work(&mut self) -> Result<Option<RunEnd>, LoopError> {
        let config = self.core.services.config.plan.clone();
        if self.state.plans.active().is_none()
            && let Some(end) = self.make_plan().await?
        {
            return Ok(Some(end));
        }
        while let Some(index) = self.state.plans.active().and_then(Plan::first_active) {
            if let Some(end) = self.over() {
                return Ok(Some(end));
            }
            if self.state.attempts(index) >= config.max_attempts {
                let trouble = self.state.trouble(index).unwrap_or_default().to_owned();
                self.mark(index, StepStatus::Blocked, &trouble).await?;
                continue;
            }
            if let Some(end) = self.used_up() {
                return Ok(Some(end));
            }
            if self.state.executions >= config.max_executions {
                return Ok(Some(RunEnd::of(StopReason::PlanLimit).with("max_executions", config.max_executions)));
            }
            match self.execute(index).await? {
                ChildEnd::Done(result) => {
                    self.state.keep(index, &result);
                    self.mark(index, StepStatus::Completed, &result).await?;
                }
                ChildEnd::GaveUp(why) => {
                    self.state.fail(index, &why);
                    self.mark(index, StepStatus::Blocked, &why).await?;
                }
                // Tried again, or blocked when this was the last attempt.
                ChildEnd::Failed(trouble) => self.state.fail(index, &trouble),
                ChildEnd::Over(end) => return Ok(Some(self.over_or(end))),
            }
        }
        Ok(None)
    }

    /// How the run ends where the steps of its job are used up.
    fn used_up(&self) -> Option<RunEnd> {
        let limit = self.budget?.max_steps;
        (self.steps_left() == 0)
            .then(|| RunEnd::of(StopReason::MaxIterations).with("iterations", limit).with("max_steps", limit))
    }

    /// Steps that are left to the job, whoever makes them; as many as there may be where it is no job.
    fn steps_left(&self) -> u32 {
        self.budget.map_or(u32::MAX, |budget| budget.max_steps.saturating_sub(self.state.used))
    }

    /// Whether the run is at its end: somebody said stop, or a rule about the whole run fires. A plan that is made and each
    /// step that is carried out count as one step of the run.
    fn over(&mut self) -> Option<RunEnd> {
        if let Some(reason) = self.core.stopped() {
            return Some(reason.into());
        }
        let Meter { clock_ms, totals } = self.core.meter();
        let mut end = clock_ms.and_then(|now| self.observe(Observation::Clock(now)));
        end = end.or_else(|| self.observe_totals(&totals));
        end.or_else(|| self.observe(Observation::Step))
    }

    /// The end of the whole run that a child has run into. A failure stays what it is, but for a person's stop.
    fn over_or(&mut self, end: RunEnd) -> RunEnd {
        let over = self.over();
        if end.reason.status() == RunStatus::Failed {
            self.core.stopped().map_or(end, RunEnd::of)
        } else {
            over.unwrap_or(end)
        }
    }

    fn observe_totals(&mut self, totals: &Totals) -> Option<RunEnd> {
        self.observe(Observation::Totals(totals))
    }

    fn observe(&mut self, seen: Observation<'_>) -> Option<RunEnd> {
        let verdict = self.context.state.stops.observe(&self.core.rules, seen);
        self.context.apply_verdict(verdict)
    }

    async fn make_plan(&mut self) -> Result<Option<RunEnd>, LoopError> {
        if let Some(end) = self.over() {
            return Ok(Some(end));
        }
        self.context.state.iteration += 1;
        self.state.used += 1;
        let seed = self.core.seed(self.context);
        let history = self.context.messages.get(..self.turn_start).unwrap_or_default();
        match make_plan(self.kit, &seed, history, self.request).await? {
            Planned::Plan(plans) => self.state.plans = plans,
            Planned::Over(end) => return Ok(Some(self.over_or(end))),
        }
        if let Some(Plan { id, title, steps }) = self.state.plans.active() {
            let steps = steps.iter().map(|step| step.text.clone()).collect();
            self.core.journal.note(EventKind::PlanCreated { plan_id: id.clone(), title: title.clone(), steps });
        }
        self.checkpoint(Durability::Committed).await?;
        self.core.after_piece().await;
        Ok(None)
    }

    /// One attempt at a step.
    async fn execute(&mut self, index: usize) -> Result<ChildEnd, LoopError> {
        let attempt = self.state.begin(index);
        self.context.state.iteration += 1;
        let trouble = self.state.trouble(index).map(note_of).unwrap_or_default();
        let text = self.state.plans.active().and_then(|plan| plan.steps.get(index)).map_or("", |step| &step.text);
        let executor = self.kit.choose(text);
        let limit = executor.max_steps.min(self.steps_left());
        self.state.book(index, limit);
        // Whatever the executor writes is stored after this: so it need not wait for the disk itself.
        self.note_step(index, StepStatus::InProgress, &trouble, Durability::Relaxed).await?;
        let Some(plan) = self.state.plans.active() else { return Ok(ChildEnd::Failed("there is no plan".into())) };
        let task = texts::task(self.request, plan, &self.state, index, attempt);
        tracing::info!(run = %self.core.live.id, step = index, attempt, executor = executor.name, "plan step");
        let core = self.core.seed(self.context).grow(Duration::MAX);
        let inbox = PlanInbox { core: self.core, context: self.context, state: &mut self.state, taken: Vec::new() };
        let (end, used) =
            Box::pin(step::execute(Execution { core, children: &self.kit.children, executor, task, limit, inbox }))
                .await;
        self.state.made(index, used);
        self.state.write(&mut self.context.state.delegate); // also where the run ends here
        end
    }

    /// A step comes to its end.
    async fn mark(&mut self, index: usize, status: StepStatus, said: &str) -> Result<(), LoopError> {
        self.note_step(index, status, &note_of(said), Durability::Committed).await?;
        self.core.after_piece().await;
        Ok(())
    }

    /// Changes a step, and stores the change together with the fact.
    async fn note_step(
        &mut self,
        index: usize,
        status: StepStatus,
        note: &str,
        durability: Durability,
    ) -> Result<(), LoopError> {
        // The step is there: it was just found.
        let marked = self.state.plans.mark_step(None, index as u64, Some(status), Some(note));
        let step = marked.ok().and_then(|plan| plan.steps.get(index));
        let executor = self.kit.choose(step.map_or("", |step| &step.text)).name.clone();
        self.core.journal.note(EventKind::PlanStep {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            status: status.word().to_owned(),
            executor,
            note: Some(note.to_owned()).filter(|note| !note.is_empty()),
        });
        self.checkpoint(durability).await
    }

    async fn checkpoint(&mut self, durability: Durability) -> Result<(), LoopError> {
        self.state.write(&mut self.context.state.delegate);
        Ok(self.core.journal.write(self.context, durability).await?)
    }

    /// No step is left: the summary, by a model, or else in our own words.
    async fn complete(&mut self) -> Result<(RunEnd, Option<String>), LoopError> {
        let blocked = self.count(StepStatus::Blocked);
        let end = if blocked > 0 { StopReason::PlanBlocked } else { StopReason::PlanCompleted };
        let mut context = self.report();
        let allowance = self.core.allowance(self.core.services.max_attempts.max(1));
        let step = self.context.state.iteration + 1;
        let asked = self.core.ask(&self.kit.summary, &mut context, step, allowance).await;
        if let Some(reason) = self.core.stopped() {
            return Ok((reason.into(), None));
        }
        let said = match asked {
            Ok(Asked::Reply(reply)) => reply::shape(&reply.text),
            Err(error @ LoopError::Store(_)) => return Err(error),
            // The work is done, whatever the summary came to.
            Ok(Asked::Failed(_) | Asked::Ended(_) | Asked::Chanted(_)) | Err(_) => Reply::Empty,
        };
        let text = match said {
            Reply::Text(text) => text,
            Reply::OnlyEchoes | Reply::Empty | Reply::Silent => self.outcome(),
        };
        Ok((end.into(), Some(text)))
    }

    /// The run ends before the plan does: a closing turn over what is done, where one is due, else our own words. A person
    /// who said stop is told nothing more; a job that is stopped may be begun again, and goes on from what it has said.
    async fn end_early(&mut self, mut end: RunEnd) -> (RunEnd, Option<String>) {
        if self.state.plans.active().is_none() {
            return (end, None);
        }
        if self.core.stopped().is_some() || end.reason.layer() == StopLayer::Operator {
            let kept = self.budget.is_some() && self.core.stopped() != Some(StopReason::Shutdown);
            return (end, kept.then(|| self.outcome()));
        }
        let mut context = self.report();
        let text = if closing::deserves_one(&end) {
            closing_turn(self.core, &self.kit.summary, &mut context, &mut end).await
        } else {
            None
        };
        if let Some(reason) = self.core.stopped() {
            return (reason.into(), None);
        }
        let text = text.unwrap_or_else(|| self.outcome());
        (end, Some(text))
    }

    /// A context that tells what has become of the plan, with the counters of the run.
    fn report(&self) -> LoopContext {
        let text = self.state.plans.active().map(|plan| texts::report(self.request, plan, &self.state));
        let messages = vec![Message::user(text.unwrap_or_default()).into()];
        LoopContext { messages, state: self.context.state.clone() }
    }

    fn outcome(&self) -> String {
        self.state.plans.active().map(|plan| texts::outcome(plan, &self.state)).unwrap_or_default()
    }

    fn count(&self, status: StepStatus) -> usize {
        self.state.plans.active().map_or(0, |plan| plan.count(status))
    }

    /// The end with the figures of the plan, where there is one.
    fn with_evidence(&self, end: RunEnd) -> RunEnd {
        let Some(plan) = self.state.plans.active() else { return end };
        let (completed, blocked) = (plan.count(StepStatus::Completed), plan.count(StepStatus::Blocked));
        let end = end.with("completed", completed).with("blocked", blocked).with("executions", self.state.executions);
        match plan.steps.len() - completed - blocked {
            0 => end,
            open => end.with("open", open),
        }
    }
}
