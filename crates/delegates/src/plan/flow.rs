//! The flow of a plan: makes the plan, executes its steps, and reports the outcome.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::policies::{Observation, Totals};
use belay_agent_loop::{LoopContext, LoopError, Meter};
use belay_protocol::{Durability, EventKind, JoinedRun, Message, RunEnd, RunId, RunStatus, StopLayer, StopReason};
use tokio::sync::mpsc;

use super::changes::{self, Change};
use super::executors::PlanKit;
use super::inbox::{InboxRequest, PlanInbox};
use super::planner::{Planned, make_plan};
use super::plans::{Plan, StepStatus};
use super::review::{Review, Reviewed};
use super::running::{RunningStep, RunningSteps};
use super::state::{PlanState, note_of};
use super::step::{self, ChildEnd, Execution};
use super::texts;
use belay_run::closing::{self, closing_turn};
use belay_run::core::{Asked, RunCore};
use belay_run::live::{OpenPlan, PlanAnswer, PlanOrder};
use belay_run::reply::{self, Reply};

/// Most steps that are begun and not ended. A step begins only while all others wait for a person. 4: as many questions
/// of one plan as a person can keep apart.
const MAX_RUNNING: usize = 4;

/// The input of a plan.
pub struct PlanTask<'a> {
    /// The index in the context of the message that requests the plan.
    pub start: usize,
    /// The text after `/plan`, or the task of a job.
    pub request: &'a str,
    /// Prompts and executors.
    pub kit: &'a Arc<PlanKit>,
    /// Whether the plan waits for an approval before its first step.
    pub review: bool,
    /// The budget of a job. `None`: a person requested the plan.
    pub budget: Option<PlanBudget>,
}

/// The budget of a job's plan.
#[derive(Clone, Copy)]
pub struct PlanBudget {
    /// Most steps of all its loops together.
    pub max_steps: u32,
    /// Steps that the current piece of work had made when the daemon last crashed. `None`: it did not crash.
    pub made_at_crash: Option<u32>,
}

/// Executes a plan. Returns the end of the run, and its text if it has one. The context receives only that text,
/// nothing of the steps.
///
/// # Errors
/// The model call for the plan failed, or the store does not answer.
///
/// # Cancel safety
/// Dropped midway, the run continues from its last stored state: a step in progress is tried again.
pub async fn run_plan(
    core: &mut RunCore,
    context: &mut LoopContext,
    task: PlanTask<'_>,
) -> Result<(RunEnd, Option<String>), LoopError> {
    let PlanTask { start: turn_start, request, kit, review, budget } = task;
    // The job counts its crashes itself, so that a crash is no attempt at a step. Steps that were reserved and not
    // made return to the budget.
    let made = budget.and_then(|budget| budget.made_at_crash);
    let state = PlanState::read(&context.state.delegate, budget.is_some(), made);
    let mut flow = PlanFlow { core, context, turn_start, request, kit, review, budget, state, taken: Vec::new() };
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
    review: bool,
    budget: Option<PlanBudget>,
    state: PlanState,
    /// Messages to the job that are not stored as part of the run yet.
    taken: Vec<(RunId, Arc<Message>)>,
}

/// The next action while no step works.
enum Next {
    /// This step begins.
    Begin(usize),
    /// A step has changed; look again.
    Again,
    /// A step could begin, and waits for an approval.
    Held,
    /// Nothing can begin now.
    Nothing,
    /// The run ends.
    End(RunEnd),
}

impl<'a> PlanFlow<'a> {
    /// Makes the plan and executes its steps. Returns `None` when no step is left, and otherwise the reason to end early.
    async fn work(&mut self) -> Result<Option<RunEnd>, LoopError> {
        if self.state.plans.active().is_none()
            && let Some(end) = self.make_plan().await?
        {
            return Ok(Some(end));
        }
        self.show();
        let live = self.core.live.clone();
        let port = live.plan.open();
        let (inbox, mut requests) = PlanInbox::new();
        let mut running = RunningSteps::default();
        let ended = self.steps(&mut running, &inbox, &mut requests, &port).await;
        // The steps that still run wait for people. They are told to stop, and end within the grace period of their tools.
        for (index, _, used) in running.stop(&mut requests).await {
            self.state.made(index, used);
        }
        self.state.write(&mut self.context.state.delegate); // also when the run ends here
        self.show();
        if self.state.plans.active().is_some_and(Plan::has_ended) {
            port.end();
        }
        ended
    }

    /// Executes step after step. While all running steps wait for people, a step that needs none of them begins.
    async fn steps(
        &mut self,
        running: &mut RunningSteps<'a>,
        inbox: &PlanInbox,
        requests: &mut mpsc::Receiver<InboxRequest>,
        port: &OpenPlan<'_>,
    ) -> Result<Option<RunEnd>, LoopError> {
        let waits = self.core.waits.clone();
        let mut review = Review::default();
        loop {
            let changed = waits.changed();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before the look, so that no change is missed
            if running.all_wait() {
                match self.next(running.indexes()).await? {
                    Next::Begin(index) => {
                        let step = self.begin(index, inbox).await?;
                        running.add(step);
                        continue;
                    }
                    Next::Again => continue,
                    Next::End(end) => return Ok(Some(end)),
                    Next::Held => {
                        let plan = self.state.plans.active();
                        if let Some(end) = plan.and_then(|plan| review.ask(self.core, plan, &self.state)) {
                            return Ok(Some(end));
                        }
                    }
                    Next::Nothing if running.is_empty() => return Ok(None),
                    Next::Nothing => {}
                }
            }
            tokio::select! {
                biased; // the end of a step before the messages for it
                Some((index, end, used)) = running.ended() => {
                    if let Some(end) = self.settle(index, end, used).await? {
                        return Ok(Some(end));
                    }
                }
                Some(request) = requests.recv() => self.answer(request).await,
                order = port.next() => self.carry_out(order, &running.indexes(), &mut review).await?,
                reviewed = review.answered(), if review.is_asked() => match reviewed? {
                    Reviewed::GoOn(by) => self.go_on(&by).await?,
                    Reviewed::End(end) => return Ok(Some(self.over_or(end))),
                },
                () = changed => {}
            }
        }
    }

    /// Decides what follows while no step works. `running`: the steps that wait.
    async fn next(&mut self, running: Vec<usize>) -> Result<Next, LoopError> {
        let config = &self.core.services.config.plan;
        let (max_attempts, max_executions) = (config.max_attempts, config.max_executions);
        let plan = self.state.plans.active();
        let Some(index) = plan.and_then(|plan| plan.next_ready(|at| running.contains(&at))) else {
            return Ok(Next::Nothing);
        };
        if self.state.held {
            return Ok(Next::Held);
        }
        let is_full = running.len() >= MAX_RUNNING;
        // Steps that wait may give back a part of the budget.
        let is_late = self.used_up().is_some() || self.state.executions >= max_executions;
        if !running.is_empty() && (is_full || is_late) {
            return Ok(Next::Nothing);
        }
        if let Some(end) = self.over() {
            return Ok(Next::End(end));
        }
        if self.state.attempts(index) >= max_attempts {
            let trouble = self.state.trouble(index).unwrap_or_default().to_owned();
            self.mark(index, StepStatus::Blocked, &trouble).await?;
            return Ok(Next::Again);
        }
        if let Some(end) = self.used_up() {
            return Ok(Next::End(end));
        }
        Ok(match self.state.executions >= max_executions {
            true => Next::End(RunEnd::of(StopReason::PlanLimit).with("max_executions", max_executions)),
            false => Next::Begin(index),
        })
    }

    /// Handles the end of an execution. Returns the end of the run, if the whole plan ends with it.
    async fn settle(
        &mut self,
        index: usize,
        end: Result<ChildEnd, LoopError>,
        used: u32,
    ) -> Result<Option<RunEnd>, LoopError> {
        self.state.made(index, used);
        self.state.write(&mut self.context.state.delegate); // also when the run ends here
        match end? {
            ChildEnd::Done(result) => {
                self.state.keep(index, &result);
                self.mark(index, StepStatus::Completed, &result).await?;
            }
            ChildEnd::GaveUp(why) => {
                self.state.fail(index, &why);
                self.mark(index, StepStatus::Blocked, &why).await?;
            }
            // The step is tried again, or marked as blocked after the last attempt.
            ChildEnd::Failed(trouble) => self.state.fail(index, &trouble),
            ChildEnd::Over(end) => return Ok(Some(self.over_or(end))),
        }
        Ok(None)
    }

    /// Answers a step that asks for messages to the job.
    async fn answer(&mut self, request: InboxRequest) {
        // A failed send means that the step has ended.
        match request {
            InboxRequest::Take(answer) => {
                let taken = self.core.take_offer().await.map(|(run, message)| {
                    self.taken.push((run, message.clone()));
                    message
                });
                let _ = answer.send(taken);
            }
            InboxRequest::Keep(answer) => {
                let _ = answer.send(self.keep_messages().await);
            }
        }
    }

    /// Carries out a command of a person, and answers it once it is stored. `running`: the steps that have begun and not ended.
    async fn carry_out(&mut self, order: PlanOrder, running: &[usize], review: &mut Review) -> Result<(), LoopError> {
        let PlanOrder { command, by, answer } = order;
        let before = self.state.clone();
        let (said, stored) = match changes::apply(&mut self.state, &command, running) {
            Err(refused) => (PlanAnswer::Refused(refused.to_string()), Ok(())),
            Ok(Change { kind, index, said }) => match self.note_change(kind, index, &by).await {
                Ok(()) => {
                    review.withdraw(); // the next look asks about the plan as it is now
                    let asks = self.state.held && running.is_empty();
                    let plan = self.shown().filter(|_| !asks);
                    (
                        PlanAnswer::Done([Some(said), plan].into_iter().flatten().collect::<Vec<_>>().join("\n\n")),
                        Ok(()),
                    )
                }
                Err(error) => {
                    self.state = before;
                    self.state.write(&mut self.context.state.delegate);
                    (
                        PlanAnswer::Unstored(format!("This could not be stored, and nothing has changed: {error}")),
                        Err(error),
                    )
                }
            },
        };
        let _ = answer.send(said); // fails only if nobody waits for the answer any more
        stored
    }

    /// Lets a plan go on that a person has approved by the answer to its question.
    async fn go_on(&mut self, by: &str) -> Result<(), LoopError> {
        self.state.held = false;
        self.note_change("approved", None, by).await
    }

    /// Stores a change by a person together with its event.
    async fn note_change(&mut self, change: &str, index: Option<usize>, actor: &str) -> Result<(), LoopError> {
        let steps = self.state.plans.active().map(Plan::texts).unwrap_or_default();
        self.core.journal.note(EventKind::PlanChanged {
            change: change.to_owned(),
            index: index.and_then(|index| u32::try_from(index).ok()),
            steps,
            actor: actor.to_owned(),
        });
        self.checkpoint(Durability::Committed).await
    }

    /// The plan as people see it.
    fn shown(&self) -> Option<String> {
        self.state.plans.active().map(|plan| texts::shown(plan, &self.state))
    }

    /// Shows people the plan as it is now.
    fn show(&self) {
        if let Some(shown) = self.shown() {
            self.core.live.plan.show(shown);
        }
        if let Some(plan) = self.state.plans.active() {
            self.core.live.display.planned(|| plan.displayed(self.state.held));
        }
    }

    /// Stores the messages that were taken as part of the run.
    async fn keep_messages(&mut self) -> Result<(), LoopError> {
        let at = self.core.services.clock.now();
        let (runs, said): (Vec<RunId>, Vec<Arc<Message>>) = std::mem::take(&mut self.taken).into_iter().unzip();
        if runs.is_empty() {
            return Ok(()); // another step has stored them
        }
        let joined: Vec<JoinedRun> = runs.iter().map(|run| JoinedRun { run: *run, how: "steer", at }).collect();
        let (messages, before) = (self.context.messages.len(), self.state.clone());
        for message in said {
            self.state.hear(&message.for_model());
            self.context.messages.push(message);
        }
        self.state.write(&mut self.context.state.delegate);
        self.core.journal.note(EventKind::Joined { runs, mode: "steer".into() });
        self.core.journal.join(&joined);
        if let Err(error) = self.core.journal.write(self.context, Durability::Committed).await {
            self.context.messages.truncate(messages);
            self.state = before;
            self.state.write(&mut self.context.state.delegate);
            return Err(error.into());
        }
        if let Some(joining) = &self.core.joining {
            joining.committed(&joined);
        }
        Ok(())
    }

    /// The end of the run when the steps of its job are used up.
    fn used_up(&self) -> Option<RunEnd> {
        let limit = self.budget?.max_steps;
        (self.steps_left() == 0)
            .then(|| RunEnd::of(StopReason::MaxIterations).with("iterations", limit).with("max_steps", limit))
    }

    /// Steps left in the job's budget, over all its loops; unlimited without a job.
    fn steps_left(&self) -> u32 {
        self.budget.map_or(u32::MAX, |budget| budget.max_steps.saturating_sub(self.state.used))
    }

    /// Returns the end of the run when it was stopped or when a stop rule of the whole run applies. Making the plan,
    /// and each execution of a step, counts as one step of the run.
    fn over(&mut self) -> Option<RunEnd> {
        if let Some(reason) = self.core.stopped() {
            return Some(reason.into());
        }
        self.core.note_waited(self.context);
        let Meter { clock_ms, totals } = self.core.meter();
        let mut end = clock_ms.and_then(|now| self.observe(Observation::Clock(now)));
        end = end.or_else(|| self.observe_totals(&totals));
        end.or_else(|| self.observe(Observation::Step))
    }

    /// Converts the end of a child run to the end of the whole run. A failure keeps its reason, unless the run was
    /// stopped.
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
        (self.state.held, self.state.holds) = (self.review, u32::from(self.review));
        if let Some(plan @ Plan { id, title, .. }) = self.state.plans.active() {
            let steps = plan.texts();
            self.core.journal.note(EventKind::PlanCreated { plan_id: id.clone(), title: title.clone(), steps });
        }
        self.checkpoint(Durability::Committed).await?;
        self.core.after_piece().await;
        Ok(None)
    }

    /// Begins one attempt at a step.
    async fn begin(&mut self, index: usize, inbox: &PlanInbox) -> Result<RunningStep<'a>, LoopError> {
        let attempt = self.state.begin(index);
        self.context.state.iteration += 1;
        let trouble = self.state.trouble(index).map(note_of).unwrap_or_default();
        let text = self.state.plans.active().and_then(|plan| plan.steps.get(index)).map_or("", |step| &step.text);
        let kit = self.kit;
        let executor = kit.choose(text);
        let limit = executor.max_steps.min(self.steps_left());
        self.state.book(index, limit);
        // Every later write of the executor includes this one, so that it need not wait for the disk.
        self.note_step(index, StepStatus::InProgress, &trouble, Durability::Relaxed).await?;
        let plan = self.state.plans.active();
        let task = plan.map(|plan| texts::task(self.request, plan, &self.state, index, attempt)).unwrap_or_default();
        tracing::info!(run = %self.core.live.id, step = index, attempt, executor = executor.name, "plan step");
        let mut core = self.core.seed(self.context).grow(Duration::MAX);
        core.called = format!("Step {} of the plan", index + 1).into();
        let (waits, cancel) = (core.waits.clone(), core.cancel.clone());
        let execution = Execution { core, children: &kit.children, executor, task, limit, inbox: inbox.clone() };
        let work = Box::pin(async move {
            let (end, used) = step::execute(execution).await;
            (index, end, used)
        });
        Ok(RunningStep { index, waits, cancel, work })
    }

    /// Ends a step with a status.
    async fn mark(&mut self, index: usize, status: StepStatus, said: &str) -> Result<(), LoopError> {
        self.note_step(index, status, &note_of(said), Durability::Committed).await?;
        self.core.after_piece().await;
        Ok(())
    }

    /// Changes a step, and stores the change together with its event.
    async fn note_step(
        &mut self,
        index: usize,
        status: StepStatus,
        note: &str,
        durability: Durability,
    ) -> Result<(), LoopError> {
        // The caller has just found the step, so that it exists.
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
        self.core.journal.write(self.context, durability).await?;
        self.show();
        Ok(())
    }

    /// Ends a plan without open steps: a model writes the summary; a fixed text replaces a failed one.
    async fn complete(&mut self) -> Result<(RunEnd, Option<String>), LoopError> {
        let blocked = self.count(StepStatus::Blocked);
        if blocked + self.count(StepStatus::Completed) == 0 {
            return Ok((StopReason::UserStop.into(), Some(self.outcome()))); // a person has dropped every step
        }
        let end = if blocked > 0 { StopReason::PlanBlocked } else { StopReason::PlanCompleted };
        let mut context = self.report();
        let allowance = self.core.allowance(self.core.services.max_attempts.max(1));
        let step = self.context.state.iteration + 1;
        let summary = self.kit.summary(&self.core.briefing);
        let asked = self.core.ask(&summary, &mut context, step, allowance).await;
        if let Some(reason) = self.core.stopped() {
            return Ok((reason.into(), None));
        }
        let said = match asked {
            Ok(Asked::Reply(reply)) => reply::shape(&reply.text),
            Err(error @ LoopError::Store(_)) => return Err(error),
            // A failed summary does not change the outcome of the work.
            Ok(Asked::Failed(_) | Asked::Ended(_) | Asked::Chanted(_)) | Err(_) => Reply::Empty,
        };
        let text = match said {
            Reply::Text(text) => text,
            Reply::OnlyEchoes | Reply::Empty | Reply::Silent => self.outcome(),
        };
        Ok((end.into(), Some(text)))
    }

    /// Ends the run before its plan is complete: with a closing turn over the results, if the end permits one, or else
    /// with a fixed text. After a stop by a person there is no text, except for a job: it may be resumed, and
    /// continues from that text.
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
            let summary = self.kit.summary(&self.core.briefing);
            closing_turn(self.core, &summary, &mut context, &mut end).await
        } else {
            None
        };
        if let Some(reason) = self.core.stopped() {
            return (reason.into(), None);
        }
        let text = text.unwrap_or_else(|| self.outcome());
        (end, Some(text))
    }

    /// A context with the state of the plan and the counters of the run.
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

    /// Adds the figures of the plan, if there is one, to the end of the run.
    fn with_evidence(&self, end: RunEnd) -> RunEnd {
        let Some(plan) = self.state.plans.active() else { return end };
        let (completed, blocked) = (plan.count(StepStatus::Completed), plan.count(StepStatus::Blocked));
        let mut end =
            end.with("completed", completed).with("blocked", blocked).with("executions", self.state.executions);
        let dropped = plan.count(StepStatus::Dropped);
        if dropped > 0 {
            end = end.with("dropped", dropped);
        }
        match plan.steps.len() - completed - blocked - dropped {
            0 => end,
            open => end.with("open", open),
        }
    }
}
