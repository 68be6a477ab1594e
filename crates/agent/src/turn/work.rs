//! The work of a turn: the loop, a plan, or the rest of an earlier attempt. Meanwhile the channel shows that Belay is
//! working.

use std::sync::Arc;

use belay_agent_loop::policies::Observation;
use belay_agent_loop::{AgenticLoopConfig, LoopContext, LoopError, LoopOutcome, run_agentic_loop};
use belay_crash_point::crash_point;
use belay_protocol::{
    Audience, Authority, GoalMessage, GoalRequest, JobId, Message, PlanRequest, RunEnd, StopReason, Work,
};

use super::ending::iterations_used;
use super::resume::resume;
use super::{TurnJob, asks, forms};
use crate::queued_run::{goal_of, plan_of};
use belay_automation::jobs::{self, Begun, JobContext};
use belay_automation::routines;
use belay_delegates::chat::ChatDelegate;
use belay_delegates::goals::{self, GoalTask};
use belay_delegates::plan::{PlanBudget, PlanTask, run_plan};
use belay_delegates::subagent::last_chance;
use belay_delegates::{job as job_delegate, lightweight};
use belay_run::bootstrap::{self, Beginning};
use belay_run::closing::{self, closing_turn};
use belay_run::core::RunCore;
use belay_run::prompt::{About, Briefing};
use belay_run::rights;
use belay_run::store_wait::Outage;

/// The text about instructions of the workspace that exist and cannot be read. The file and the reason follow.
const UNREAD: &str =
    "Nothing was done, because instructions of the workspace cannot be read. Try again later, or tell the operator:";

/// Runs a turn that has begun to its outcome. Meanwhile the channel shows that Belay is working.
///
/// # Errors
/// The model call failed, or the store failed.
pub(super) async fn work(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    job: &TurnJob,
) -> Result<LoopOutcome, LoopError> {
    let background = match job.request.work {
        Work::Job { job: id, attempt } => match Box::pin(begin_job(delegate, job, id, attempt)).await? {
            Begun::Active(background) => Some(background),
            Begun::Over(end) => return Ok(LoopOutcome::Stopped(end)),
        },
        Work::Chat | Work::RoutineRun { .. } | Work::Heartbeat { .. } => None,
    };
    if let (Some(background), Some(post)) = (&background, &mut delegate.post) {
        post.elsewhere = background.job.creator.authority == Authority::Operator;
    }
    delegate.core.tally.open_session(session_before(job, &delegate.core).await?);
    if let Some(end) = restore(delegate, context, job) {
        return Ok(LoopOutcome::Stopped(end));
    }
    let indicator = job.run.control.cancel.child_token();
    // Boxed, because moving the future would store it here twice.
    let mut looping = Box::pin(carry_out(delegate, context, job, background));
    let route = job.request.reply_to.as_ref();
    let Some((route, channel)) = route.and_then(|route| Some((route, job.services.channels.get(&route.channel)?)))
    else {
        return looping.await;
    };
    let Some(shown) = channel.display().indicator else { return looping.await };
    let working = shown.working(route, indicator.clone());
    tokio::pin!(working);
    let outcome = tokio::select! {
        outcome = &mut looping => outcome,
        () = &mut working => looping.await,
    };
    indicator.cancel();
    outcome
}

/// Begins the attempt of a job. It only reads the store, so that it is repeated while the store does not answer.
async fn begin_job(
    delegate: &mut ChatDelegate,
    job: &TurnJob,
    id: JobId,
    attempt: Option<u32>,
) -> Result<Begun, LoopError> {
    let (core, mut outage) = (&mut delegate.core, Outage::default());
    loop {
        let begun = match jobs::begin(core, &job.services.jobs, id, attempt).await {
            Ok(Begun::Active(background)) => {
                let asks = asks::for_job(core, &job.services, &background).await;
                asks.map(|()| Begun::Active(background)).map_err(LoopError::Store)
            }
            begun => begun,
        };
        match begun {
            Err(LoopError::Store(error)) => core.journal.wait().again(&mut outage, error).await?,
            begun => return begun,
        }
    }
}

/// The cost of the session's other runs, if a stop rule needs it.
async fn session_before(job: &TurnJob, core: &RunCore) -> Result<u64, LoopError> {
    let services = &job.services;
    if !core.rules.counts_session_money() {
        return Ok(0);
    }
    let read = || services.store.spend.session_spent(&job.run.session);
    let spent = core.journal.wait().until_stored(read).await?;
    Ok(spent.saturating_sub(job.progress.cost_micro_usd)) // the run's own account has its earlier attempts
}

/// Restores the counters of an earlier attempt, if there was one. Returns the end of the run, if it must not continue.
fn restore(delegate: &mut ChatDelegate, context: &mut LoopContext, job: &TurnJob) -> Option<RunEnd> {
    context.state.stops.detection_off = job.run.control.loops_off();
    if let Some(last) = context.state.stops.measures.time.newest() {
        // The time without an attempt does not count as active time.
        let away = delegate.core.clock.now_ms().saturating_sub(last);
        let verdict = context.state.stops.observe(&delegate.core.rules, Observation::Paused(away));
        if let Some(end) = context.apply_verdict(verdict) {
            return Some(end);
        }
    }
    // The earlier attempt ended by a rule, but the daemon stopped before that was committed.
    if let Some(finding) = context.state.stops.latched.clone() {
        return Some(context.ended_by(finding));
    }
    delegate.core.tally.open_output(context.state.stops.measures.output_bytes());
    None
}

/// Prepares the briefing, then executes a plan or runs the loop. If a limit ended the run, makes its closing turn.
async fn carry_out(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    job: &TurnJob,
    background: Option<Arc<JobContext>>,
) -> Result<LoopOutcome, LoopError> {
    let message = context.messages.get(delegate.turn_start).map(|asked| asked.text().to_owned()).unwrap_or_default();
    let briefing = match briefing_of(job).await {
        Ok(briefing) => briefing,
        Err(unread) => {
            tracing::error!(run = %job.run.id, unread, "a run ends: its instructions cannot be read");
            delegate.summary = Some(format!("{UNREAD} {unread}."));
            return Ok(LoopOutcome::Stopped(RunEnd::of(StopReason::Internal).with("cause", "instructions")));
        }
    };
    crash_point!("context.built");
    let beginning = bootstrap::begin(&mut delegate.core, context, &briefing, &message);
    match Box::pin(beginning).await? {
        Beginning::Go(told) if background.is_some() => {
            let briefing = told.over(briefing);
            let reasoning = job_delegate::reasoning(&delegate.core.services, &briefing, delegate.goal.as_ref());
            delegate.brief_as(briefing, reasoning);
        }
        Beginning::Go(told) => delegate.brief(told.over(briefing), context),
        Beginning::Over(end, words) => {
            delegate.summary = words;
            return Ok(LoopOutcome::Stopped(end));
        }
    }
    Box::pin(forms::end_lost(delegate, context, job)).await?;
    if let Work::RoutineRun { id } | Work::Heartbeat { id } = job.request.work {
        let read = || routines::lightweight_task(&job.services.routines, id);
        return match delegate.core.journal.wait().until_stored(read).await? {
            Ok(task) => {
                if task.with_tools {
                    asks::for_routine_run(&mut delegate.core, &job.services, &task.routine, id);
                }
                lightweight::run(delegate, context, task).await
            }
            Err(end) => Ok(LoopOutcome::Stopped(end)),
        };
    }
    let planned = match &background {
        Some(background) => background
            .job
            .plan
            .then(|| PlanRequest { text: background.request(context, delegate.turn_start), review: false }),
        // The message is stored as it was typed.
        None => {
            let (work, options) = (job.request.work, &job.request.options);
            context.messages.get(delegate.turn_start).and_then(|message| plan_of(message, work, options))
        }
    };
    if let Some(PlanRequest { text, review }) = planned {
        if background.is_none() {
            delegate.core.joining = None; // a person's plan is based on this message only
        }
        let (start, core) = (delegate.turn_start, &mut delegate.core);
        let budget = background.as_deref().map(|background| PlanBudget {
            max_steps: background.budget.max_steps,
            made_at_crash: background.made_at_crash(),
        });
        let task = PlanTask { start, request: &text, kit: &job.services.plans, review, budget };
        let (end, said) = Box::pin(run_plan(core, context, task)).await?;
        delegate.summary = said;
        return Ok(LoopOutcome::Stopped(end));
    }
    let goal = goal_for(delegate, context, job, background.as_deref());
    // A check that is due has calls of its own, which the goal takes up itself.
    let resumed = match goal.is_none() || goals::is_working(context) {
        true => Box::pin(resume(delegate, context)).await?,
        false => None,
    };
    let reasoning = delegate.reasoning.clone();
    // The last step of a turn without declared outputs has no tools. A turn with outputs has its closing turn instead.
    let last = u32::from(delegate.goal.is_none());
    let config = AgenticLoopConfig {
        max_iterations: job.services.run.config.max_tool_iterations.saturating_add(last),
        ..AgenticLoopConfig::with_rules(delegate.core.rules.clone())
    };
    let is_goal = goal.is_some();
    let mut outcome = match (resumed, &background, goal) {
        (resumed, background, Some(request)) => {
            let task = GoalTask { request: *request, job: background.as_deref() };
            Box::pin(goals::run(delegate, context, task, resumed)).await?
        }
        (Some(outcome), _, None) => outcome,
        (None, Some(background), None) => Box::pin(job_delegate::drive(delegate, context, background)).await?,
        (None, None, None) => run_agentic_loop(delegate, &reasoning, context, &config).await?,
    };
    // The last chance could submit outputs, and nobody would check the rest of the goal.
    let closes = !is_goal || matches!(&outcome, LoopOutcome::Stopped(end) if end.reason == StopReason::Goal);
    if delegate.goal.is_some() && closes {
        return Ok(Box::pin(close_with_outputs(delegate, context, outcome)).await);
    }
    if let LoopOutcome::Stopped(end) = &mut outcome
        && closing::deserves_one(end)
    {
        let closing = Box::pin(closing_turn(&mut delegate.core, &reasoning, context, end)).await;
        delegate.summary = closing.or(delegate.summary.take());
        // A stop takes precedence over every limit, also during the closing turn.
        if let Some(reason) = delegate.core.stopped() {
            delegate.summary = None;
            *end = RunEnd::of(reason);
        }
    }
    Ok(outcome)
}

/// The goal of the run: of a person's message, or of a job whose task is written as one.
fn goal_for(
    delegate: &ChatDelegate,
    context: &LoopContext,
    job: &TurnJob,
    background: Option<&JobContext>,
) -> Option<Box<GoalRequest>> {
    match background {
        Some(background) => GoalMessage::request(&background.job.task),
        None => goal_of(context.messages.get(delegate.turn_start)?, job.request.work, &job.request.options),
    }
}

/// The briefing of a turn. A turn that is stopped meanwhile gets an empty one, because it makes no model call.
///
/// # Errors
/// A file that exists cannot be read.
async fn briefing_of(job: &TurnJob) -> Result<Briefing, String> {
    if job.request.options.text_only {
        return Ok(Briefing::default());
    }
    let memory = job.services.run.memory.owner(&job.run.origin, &job.request);
    let settings = rights::settings_of(&job.services.jobs.access, &job.run.origin, &job.run.session);
    let about = About {
        session: &job.run.session,
        channel: job.request.reply_to.as_ref().map(|route| &route.channel),
        group: job.request.audience == Audience::Group && job.request.work == Work::Chat,
        options: &job.request.options,
        memory: &memory,
        settings: settings.as_deref(),
        skills: job.skills,
    };
    tokio::select! {
        biased; // a stop does not wait for the disk
        () = job.run.control.cancel.cancelled() => Ok(Briefing::default()),
        briefing = Briefing::of_run(&job.services.briefings, about) => briefing,
    }
}

/// The end of a turn with declared outputs. If outputs are missing, the model gets a last chance. The outputs are the
/// answer.
async fn close_with_outputs(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    outcome: LoopOutcome,
) -> LoopOutcome {
    let mut end = match outcome {
        LoopOutcome::Stopped(end) => end,
        LoopOutcome::MaxIterations { iterations } => iterations_used(&delegate.core.services.config, iterations),
        other => return other,
    };
    let late = matches!(end.reason, StopReason::MaxIterations | StopReason::MissingOutputs);
    if late || closing::deserves_one(&end) {
        delegate.core.note_guardrails(context);
        end = last_chance(delegate, context, end).await;
    }
    if let Some(goal) = delegate.goal.as_ref().filter(|_| end.reason == StopReason::Goal) {
        let reply = goal.declared.as_json();
        context.push(Message::assistant(&reply));
        delegate.summary = Some(reply);
    }
    LoopOutcome::Stopped(end)
}
