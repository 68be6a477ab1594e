//! One turn: from the queue to its outcome. It runs in a task of its own, which its lane owns, and gives back everything
//! that it was lent. A panic in a turn costs the lane a reload and the run its answer, nothing else.
//!
//! Reading order: [`run_turn`] → `gathered` (what it begins with) → `enter` → `work` → `resume` → `ending`.

mod ending;
mod enter;
mod gathered;
mod resume;
mod work;

use std::sync::Arc;

use belay_agent_loop::policies::StopRules;
use belay_agent_loop::{LoopContext, LoopError, LoopOutcome};
use belay_protocol::{Authority, Durability, Lease, Message, RunEnd, StopReason, Work};
use tokio::sync::OwnedSemaphorePermit;

pub(crate) use self::ending::end_processes;
use self::ending::{Left, conclude};
use self::enter::{NotBegun, enter};
use self::gathered::joined_at_start;
pub(crate) use self::gathered::{COLLECT, Gathered, MergedMessage, SUMMARIZE};
use self::work::work;
use crate::agent_services::AgentServices;
use crate::queued_run::RunEnding;
use crate::streaming::screen::Screen;
use belay_automation::jobs::JobToolContext;
use belay_automation::routines::RoutineToolContext;
use belay_delegates::chat::ChatDelegate;
use belay_delegates::subagent::{Goal, spawned};
use belay_run::compaction::Shortener;
use belay_run::core::{RunClock, RunCore, RunStart};
use belay_run::effect_gate::{Asking, put_changed};
use belay_run::estimate::Calibration;
use belay_run::joining::Joining;
use belay_run::journal::Remainder;
use belay_run::live::LiveRun;
use belay_run::progress::RunProgress;
use belay_run::request::RunRequest;
use belay_run::send_message::MessageSender;
use belay_run::tally::Tally;

/// What a turn is lent.
pub(crate) struct TurnJob {
    pub(crate) services: Arc<AgentServices>,
    pub(crate) run: Arc<LiveRun>,
    /// What was asked of it: by its message and, beyond that, by its session.
    pub(crate) request: Arc<RunRequest>,
    pub(crate) lease: Lease,
    pub(crate) conversation: Conversation,
    /// How far the run had come at its last checkpoint.
    pub(crate) progress: RunProgress,
    pub(crate) slot: TurnSlot,
    /// What it is answered together with, until it begins.
    pub(crate) gathered: Option<Gathered>,
    /// What may become part of it while it runs.
    pub(crate) joining: Arc<Joining>,
}

/// The conversation that a turn is lent.
#[derive(Default)]
pub(crate) struct Conversation {
    /// What came before this turn, a pinned summary first.
    pub(crate) history: Vec<Arc<Message>>,
    /// The run's own messages: the user's, and those that earlier attempts have added.
    pub(crate) own: Vec<Arc<Message>>,
    /// What the session knows of the provider's way of counting tokens.
    pub(crate) calibration: Calibration,
}

/// What a turn waits for its beginning with.
#[derive(Default)]
pub(crate) struct TurnSlot {
    /// A slot in the global lane, if one was free at once.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// A seat to wait for a slot; given back once the turn has its slot.
    pub(crate) seat: Option<OwnedSemaphorePermit>,
}

/// What comes back.
pub(crate) struct TurnEnd {
    /// The conversation, the run's own messages behind its history.
    pub(crate) conversation: Conversation,
    /// How far the run has come; with the loop's state, if it is paused.
    pub(crate) progress: RunProgress,
    pub(crate) outcome: TurnOutcome,
}

/// How a turn left its run.
pub(crate) enum TurnOutcome {
    /// The run has ended.
    Ended(RunEnding),
    /// The run is paused on a question.
    Paused(Box<Asking>, Remainder),
    /// The run stays in the store for the next start: the drain came before it had a slot, or it is autonomous.
    Deferred,
    /// Another owner has the lane: nothing may be written any more.
    LeaseLost,
}

/// Waits for a slot in the global lane, then runs the loop to its outcome.
///
/// Thousands of turns may wait for the model at the same time: what is large and not on the way to it is boxed.
pub(crate) async fn run_turn(mut job: TurnJob) -> TurnEnd {
    let permit = job.slot.permit.take();
    let (goal, mut delegate, mut context) = open(&mut job);
    let mut screen = None;
    let begun = enter(&mut job, permit).await;
    let mut deferred = matches!(begun, Err(NotBegun::Draining));
    let outcome = match begun {
        Ok(permit) => {
            screen = begin(&mut job, &mut delegate, &mut context).await;
            let outcome = drive(goal, &mut delegate, &mut context, &job).await;
            drop(permit);
            deferred = defer(&job, &mut delegate, &context).await;
            outcome
        }
        Err(not_begun) => not_begun.outcome(),
    };
    Box::pin(conclude(&mut job, Left { delegate, context, outcome, screen, deferred })).await
}

/// Defers autonomous work at the end of the daemon, with what it has done so far. The next start continues from there,
/// and nobody is told. Returns whether it was deferred.
///
/// # Cancel safety
/// Dropped midway, the next start continues from an earlier step.
async fn defer(job: &TurnJob, delegate: &mut ChatDelegate, context: &LoopContext) -> bool {
    if !job.request.work.is_autonomous() || delegate.core.stopped() != Some(StopReason::Shutdown) {
        return false;
    }
    if let Err(error) = delegate.core.journal.write(context, Durability::Committed).await {
        tracing::warn!(run = %job.run.id, %error, "a run is suspended without its last step");
    }
    true
}

/// What a turn must come up with, its delegate, and the conversation as the model sees it.
fn open(job: &mut TurnJob) -> (Result<Option<Goal>, String>, ChatDelegate, LoopContext) {
    let state = job.progress.state.take().map(|state| *state).unwrap_or_default();
    let goal = Goal::of(&state, &job.conversation.own);
    let turn_start = job.conversation.history.len();
    let mut delegate = ChatDelegate::new(core_of(job), job.services.children.clone(), turn_start);
    delegate.post = Some(MessageSender {
        channels: job.services.channels.clone(),
        sessions: job.services.store.sessions.clone(),
        hooks: job.services.hooks.clone(),
        request: job.request.clone(),
        elsewhere: job.request.asker.place == Authority::Operator,
        saying: delegate.core.journal.saying(),
    });
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

/// The shared part of a turn's run.
fn core_of(job: &mut TurnJob) -> RunCore {
    let tally = Tally::new(job.progress.usage, job.progress.cost_micro_usd, 0);
    let Conversation { history, own, .. } = &job.conversation;
    if history.iter().chain(own).any(|message| message.untrusted) {
        tally.note_untrusted();
    }
    let start = RunStart { lease: job.lease.clone(), stored: history.len() + own.len(), tally, spawned: spawned(own) };
    let core = RunCore::root(job.services.run.clone(), job.run.clone(), job.request.clone(), start);
    RunCore {
        rules: rules_of(&job.services.run.rules(), &job.request),
        answers: std::mem::take(&mut job.progress.answers),
        joining: Some(job.joining.clone()),
        ..core
    }
}

/// The rules of a run: everybody's, but for the time that its message asks for.
fn rules_of(rules: &Arc<StopRules>, request: &RunRequest) -> Arc<StopRules> {
    match request.options.timeout_ms {
        Some(ms) => Arc::new(rules.with_active_ms(ms)),
        None => rules.clone(),
    }
}

/// The store has its beginning: it counts its time from here, and shows itself where its channel can.
async fn begin(job: &mut TurnJob, delegate: &mut ChatDelegate, context: &mut LoopContext) -> Option<Screen> {
    job.run.activity.begin();
    if let (Some(gathered), Some(message)) = (&job.gathered, context.messages.get_mut(delegate.turn_start)) {
        *message = Arc::new(gathered.message()); // without those that were stopped meanwhile
        context.messages.extend(gathered.notice().map(|notice| Arc::new(Message::system(notice).for_run())));
    }
    joined_at_start(job, &mut delegate.core);
    delegate.core.clock = RunClock::starting(job.services.clock.now());
    let journal = || delegate.core.journal.seed().grow();
    Screen::open(&job.services, &job.run, &job.request, journal).await
}

/// Works towards what was declared, or towards an answer.
async fn drive(
    goal: Result<Option<Goal>, String>,
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    job: &TurnJob,
) -> Result<LoopOutcome, LoopError> {
    match goal {
        Ok(goal) => {
            if goal.is_some() {
                delegate.core.joining = None; // what it must come up with was declared at its beginning
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

    /// Bytes of the future that a function gives.
    fn bytes_of<A, F: Future>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_turn_that_waits_for_the_model_is_small() {
        let bytes = bytes_of(run_turn);
        assert!(
            bytes < 5 << 10,
            "{bytes} bytes for each run at work; box what is large and not on the way to the model"
        );
    }
}
