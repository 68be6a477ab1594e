//! One turn: from the queue to its outcome. It runs in a task that its lane owns, and returns everything that it was
//! lent. A panic in a turn makes the lane read the conversation again and ends the run without an answer. It has no
//! other effect.
//!
//! Reading order: [`run_turn`] → `gathered` (the messages at the start) → `enter` → `work` → `forms` → `resume` →
//! `ending`.

mod asks;
mod ending;
mod enter;
mod forms;
mod gathered;
mod resume;
mod work;

use std::sync::Arc;

use belay_agent_loop::policies::StopRules;
use belay_agent_loop::{LoopContext, LoopError, LoopOutcome};
use belay_protocol::{Authority, Durability, GoalBudget, Lease, Message, RunEnd, StopReason, StoreError, Work};
use tokio::sync::OwnedSemaphorePermit;

pub(crate) use self::ending::end_processes;
use self::ending::{Left, conclude};
use self::enter::{NotBegun, enter};
use self::gathered::joined_at_start;
pub(crate) use self::gathered::{COLLECT, Gathered, MergedMessage, SUMMARIZE};
use self::work::work;
use crate::agent_services::AgentServices;
use crate::queued_run::{RunEnding, goal_of};
use crate::streaming::screen::Screen;
use belay_automation::jobs::JobToolContext;
use belay_automation::routines::RoutineToolContext;
use belay_delegates::chat::ChatDelegate;
use belay_delegates::subagent::{Goal, spawned};
use belay_run::compaction::Shortener;
use belay_run::core::{CallPurpose, RunClock, RunCore, RunStart};
use belay_run::effect_gate::{Asking, put_changed};
use belay_run::estimate::Calibration;
use belay_run::freeze;
use belay_run::joining::Joining;
use belay_run::journal::Remainder;
use belay_run::live::LiveRun;
use belay_run::progress::RunProgress;
use belay_run::prompt::SkillsOrigin;
use belay_run::request::RunRequest;
use belay_run::send_file::FileSender;
use belay_run::send_message::MessageSender;
use belay_run::tally::Tally;

/// The values that a lane lends to a turn.
pub(crate) struct TurnJob {
    pub(crate) services: Arc<AgentServices>,
    pub(crate) run: Arc<LiveRun>,
    /// The request, with the options of the message and of the session.
    pub(crate) request: Arc<RunRequest>,
    pub(crate) lease: Lease,
    pub(crate) conversation: Conversation,
    /// The origin of the skills of the conversation.
    pub(crate) skills: SkillsOrigin,
    /// The progress of the run at its last checkpoint.
    pub(crate) progress: RunProgress,
    pub(crate) slot: TurnSlot,
    /// The messages that are answered together with this one; `None` after the turn has begun.
    pub(crate) gathered: Option<Gathered>,
    /// The messages that may join the turn while it runs.
    pub(crate) joining: Arc<Joining>,
}

/// The conversation that a lane lends to a turn.
#[derive(Default)]
pub(crate) struct Conversation {
    /// The messages before this turn; a pinned summary comes first.
    pub(crate) history: Vec<Arc<Message>>,
    /// The run's own messages: the user's message, and the messages that earlier attempts added.
    pub(crate) own: Vec<Arc<Message>>,
    /// Ratio of the provider's token count to the local estimate, as measured in the session.
    pub(crate) calibration: Calibration,
}

/// The permits of a turn before it begins.
#[derive(Default)]
pub(crate) struct TurnSlot {
    /// A permit to run, if one was free at once.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// A wait permit, for a turn that waits for a permit. It is released once the turn has its permit.
    pub(crate) wait_permit: Option<OwnedSemaphorePermit>,
}

/// The values that a turn returns to its lane.
pub(crate) struct TurnEnd {
    /// The conversation, with the run's own messages after the history.
    pub(crate) conversation: Conversation,
    /// The progress of the run. It includes the state of the loop if the run is paused.
    pub(crate) progress: RunProgress,
    pub(crate) outcome: TurnOutcome,
}

/// The outcome of a turn.
pub(crate) enum TurnOutcome {
    /// The run has ended.
    Ended(RunEnding),
    /// The run is paused on an approval request.
    Paused(Box<Asking>, Remainder),
    /// The run stays in the store for the next start, or for another node: the daemon shut down before the run had a permit,
    /// while the store did not answer, or the run is autonomous, or it is handed over.
    Deferred,
    /// Another owner has the lane. The turn must not write any more.
    LeaseLost,
}

/// Waits for a permit to run, then runs the loop to its outcome.
///
/// Thousands of turns may wait for the model at the same time. Large futures that are not needed during that wait are
/// boxed.
pub(crate) async fn run_turn(mut job: TurnJob) -> TurnEnd {
    let permit = job.slot.permit.take();
    let (goal, mut delegate, mut context) = open(&mut job);
    let mut screen = None;
    let begun = enter(&mut job, permit, delegate.core.journal.wait()).await;
    let mut deferred = matches!(begun, Err(NotBegun::Draining));
    let mut outcome = match begun {
        Ok(permit) => {
            screen = begin(&mut job, &mut delegate, &mut context).await;
            let outcome = drive(goal, &mut delegate, &mut context, &job).await;
            drop(permit);
            deferred = defer(&job, &mut delegate, &context, &outcome).await;
            outcome
        }
        Err(not_begun) => not_begun.outcome(),
    };
    if matches!(outcome, Err(LoopError::Store(StoreError::Unavailable(_)))) {
        match delegate.core.stopped() {
            // The next start continues from the last step that the store has.
            None | Some(StopReason::Shutdown) if job.services.draining.is_cancelled() => deferred = true,
            Some(reason) => outcome = Ok(LoopOutcome::Stopped(reason.into())),
            None => {} // its deadline has passed
        }
    }
    Box::pin(conclude(&mut job, Left { delegate, context, outcome, screen, deferred })).await
}

/// Defers a run that the shutdown of the daemon has stopped, if it is autonomous, carries out a plan, works for a
/// goal, or another node continues it. A plan may wait for a person longer than a drain. The journal
/// stores the work done so far, the next attempt continues from there, and no reply is sent. Returns whether the run was
/// deferred.
///
/// # Cancel safety
/// If the future is dropped midway, the next attempt continues from an earlier step.
async fn defer(
    job: &TurnJob,
    delegate: &mut ChatDelegate,
    context: &LoopContext,
    outcome: &Result<LoopOutcome, LoopError>,
) -> bool {
    if delegate.core.journal.is_suspended() {
        // A crash is an attempt, a planned restart is none.
        if let Err(error) = job.services.store.run_store.suspend_run(&job.lease, job.run.id).await {
            belay_run::log_failure!(warn, error, %error, run = %job.run.id, "the attempt of a suspended run stays counted");
        }
        return true;
    }
    let Some(cause) = job.run.control.stopped_by().filter(|cause| cause.reason == StopReason::Shutdown) else {
        return false;
    };
    // An answer or a question that has just come is stored as such.
    let cut_off = matches!(outcome, Ok(LoopOutcome::Stopped(end)) if end.reason == StopReason::Shutdown);
    let is_long = job.run.plan.is_expected() || job.run.goal.is_expected();
    let continues = job.request.work.is_autonomous() || (cut_off && (cause.hand_over || is_long));
    if !continues {
        return false;
    }
    if let Err(error) = delegate.core.journal.write(context, Durability::Committed).await {
        belay_run::log_failure!(warn, error, %error, run = %job.run.id, "a run is suspended without its last step");
    }
    true
}

/// The declared outputs of a turn, its delegate, and the context of the model.
fn open(job: &mut TurnJob) -> (Result<Option<Goal>, String>, ChatDelegate, LoopContext) {
    let state = job.progress.state.take().map(|state| *state).unwrap_or_default();
    let goal = Goal::of(&state, &job.conversation.own);
    let turn_start = job.conversation.history.len();
    let mut delegate = ChatDelegate::new(core_of(job), job.services.children.clone(), turn_start);
    let messages = MessageSender {
        channels: job.services.channels.clone(),
        sessions: job.services.store.sessions.clone(),
        hooks: job.services.hooks.clone(),
        request: job.request.clone(),
        elsewhere: job.request.asker.authority == Authority::Operator,
        saying: delegate.core.journal.saying(),
    };
    delegate.files = job.services.outgoing.clone().map(|files| FileSender {
        messages: messages.clone(),
        files,
        run: job.run.clone(),
    });
    delegate.post = Some(messages);
    if job.request.work == Work::Chat {
        let (services, request) = (&job.services, &job.request);
        delegate.jobs = Some(JobToolContext { service: services.jobs.clone(), request: request.clone() });
        delegate.routines = Some(RoutineToolContext { service: services.routines.clone(), request: request.clone() });
    }
    delegate.shortener = Shortener::of(&state, job.conversation.calibration);
    let Conversation { history: mut messages, mut own, .. } = std::mem::take(&mut job.conversation);
    messages.append(&mut own);
    let mut context = LoopContext { messages, state };
    put_changed(&mut context);
    (goal, delegate, context)
}

/// The run core of a turn.
fn core_of(job: &mut TurnJob) -> RunCore {
    let tally = Tally::new(job.progress.usage, job.progress.cost_micro_usd, 0);
    let Conversation { history, own, .. } = &job.conversation;
    if history.iter().chain(own).any(|message| message.untrusted) {
        tally.note_untrusted();
    }
    let (work, options) = (job.request.work, &job.request.options);
    let budget = own.first().and_then(|message| goal_of(message, work, options)).unwrap_or_default().budget;
    let start = RunStart { lease: job.lease.clone(), stored: history.len() + own.len(), tally, spawned: spawned(own) };
    let core = RunCore::root(job.services.run.clone(), job.run.clone(), job.request.clone(), start);
    RunCore {
        rules: rules_of(&job.services.run.rules(), &job.request, &budget),
        answers: std::mem::take(&mut job.progress.answers),
        joining: Some(job.joining.clone()),
        ..core
    }
}

/// The stop rules of a run: the global rules, with the time limit of its message and the budget of its goal. The budget
/// only lowers limits.
fn rules_of(rules: &Arc<StopRules>, request: &RunRequest, budget: &GoalBudget) -> Arc<StopRules> {
    let mut own = rules.clone();
    if let Some(ms) = request.options.timeout_ms {
        own = Arc::new(own.with_active_ms(ms));
    }
    if let Some(micro) = budget.micro_usd {
        own = Arc::new(own.with_micro_usd(micro));
    }
    match budget.seconds.map(|seconds| seconds.saturating_mul(1000)) {
        Some(ms) if own.limits().active_s == 0 || ms < own.limits().active_s.saturating_mul(1000) => {
            Arc::new(own.with_active_ms(ms))
        }
        _ => own,
    }
}

/// Starts a turn after the store has recorded its beginning. The clock of the run starts here. Shows the run while it
/// works, if its channel supports that.
async fn begin(job: &mut TurnJob, delegate: &mut ChatDelegate, context: &mut LoopContext) -> Option<Screen> {
    job.run.activity.begin();
    if let Some(freeze) = job.services.run.freezer.holds_begun(&job.run.origin) {
        job.run.control.stop(freeze::cause(freeze.id));
    }
    if let (Some(gathered), Some(message)) = (&job.gathered, context.messages.get_mut(delegate.turn_start)) {
        *message = Arc::new(gathered.message()); // without messages that were stopped since
        context.messages.extend(gathered.notice().map(|notice| Arc::new(Message::system(notice).for_run())));
    }
    joined_at_start(job, &mut delegate.core);
    delegate.core.clock = RunClock::starting(job.services.clock.now());
    let deadlines = delegate.core.deadlines(context, CallPurpose::Step);
    delegate.core.journal.set_deadlines(deadlines);
    let journal = || delegate.core.journal.seed().grow();
    Screen::open(&job.services, &job.run, &job.request, journal).await
}

/// Runs the turn until its declared outputs exist, or until it has an answer.
async fn drive(
    goal: Result<Option<Goal>, String>,
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    job: &TurnJob,
) -> Result<LoopOutcome, LoopError> {
    match goal {
        Ok(goal) => {
            if goal.is_some() {
                delegate.core.joining = None; // no other message may join: the outputs are declared at the start
            }
            delegate.drive(goal);
            work(delegate, context, job).await
        }
        Err(problem) => {
            tracing::error!(run = %job.run.id, problem, "declared outputs can no longer be used");
            Ok(LoopOutcome::Stopped(RunEnd::of(StopReason::Internal).with("cause", "outputs")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of the future that a function returns, in bytes.
    fn bytes_of<A, F: Future>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_turn_that_waits_for_the_model_is_small() {
        let bytes = bytes_of(run_turn);
        assert!(
            // 5.75 KiB: 0.5 KiB of it are the waits for a store that does not answer, 0.1 KiB the form of the answer.
            bytes < 23 << 8,
            "{bytes} bytes for each run at work; box what is large and not on the way to the model"
        );
    }
}
