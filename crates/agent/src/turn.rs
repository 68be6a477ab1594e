//! One turn: from its place in the queue to its outcome. Runs in a task of its own, owned by its lane, and gives back
//! everything it was lent; a panic in here costs the lane a reload and the run its answer, nothing else.

use std::sync::Arc;

use belay_agent_loop::{
    AgenticLoopConfig, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopState, run_agentic_loop,
};
use belay_protocol::{
    Lease, Message, MessageBody, ModelErrorKind, NewEvent, ReplyRoute, RunEnd, RunUsage, StopReason, StoreError,
    ToolCall, UnixMillis,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::chat::ChatDelegate;
use crate::compaction;
use crate::effect_gate::Caller;
use crate::house::House;
use crate::journal::RunJournal;
use crate::live::LiveRun;

/// What a turn is lent.
pub(crate) struct TurnJob {
    pub(crate) house: Arc<House>,
    pub(crate) run: Arc<LiveRun>,
    pub(crate) lease: Lease,
    /// The conversation before this turn, a pinned summary first.
    pub(crate) history: Vec<Arc<Message>>,
    /// The run's own messages: the user's, and whatever earlier attempts have added.
    pub(crate) own: Vec<Arc<Message>>,
    /// The loop's state at the last checkpoint.
    pub(crate) state: LoopState,
    pub(crate) usage: RunUsage,
    pub(crate) cost_micro_usd: u64,
    pub(crate) reply_to: Option<ReplyRoute>,
    /// A place in the global lane, where one was free at once.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// When the store was told that this attempt begins; `None`: it is told once there is a place.
    pub(crate) begun_at: Option<UnixMillis>,
}

/// What comes back.
pub(crate) struct TurnEnd {
    /// The whole context.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Where the turn's user message stands in it.
    pub(crate) turn_start: usize,
    /// Messages and facts that are not stored yet.
    pub(crate) unstored: (Vec<Arc<Message>>, Vec<NewEvent>),
    pub(crate) end: RunEnd,
    /// The model's answer; `None` where it gave none.
    pub(crate) reply: Option<String>,
    pub(crate) silent: bool,
    /// When this attempt began; `None`: it did not.
    pub(crate) begun_at: Option<UnixMillis>,
    pub(crate) usage: RunUsage,
    pub(crate) cost_micro_usd: u64,
    /// Another owner has the lane: nothing may be written any more.
    pub(crate) lease_lost: bool,
    /// The drain came before a place was free: the run has not begun and stays in the store for the next start.
    pub(crate) parked: bool,
}

/// Waits for a place in the global lane, then runs the loop to its outcome.
pub(crate) async fn run_turn(mut job: TurnJob) -> TurnEnd {
    let house = job.house.clone();
    let run = job.run.clone();
    let permit = job.permit.take();
    let turn_start = job.history.len();
    let mut messages = std::mem::take(&mut job.history);
    messages.append(&mut job.own);
    let journal =
        RunJournal::new(house.store.threads.clone(), house.clock.clone(), job.lease.clone(), run.id, messages.len());
    let mut delegate =
        ChatDelegate { house: &house, run: &run, journal, turn_start, silent: false, cut_off: None, compacted: false };
    delegate.journal.usage = job.usage;
    delegate.journal.cost_micro_usd = job.cost_micro_usd;
    let mut context = LoopContext { messages, state: std::mem::take(&mut job.state) };

    let mut parked = false;
    let outcome = match enter(&mut job, permit).await {
        Ok(permit) => {
            run.begin();
            let outcome = work(&mut delegate, &mut context, job.reply_to.as_ref()).await;
            drop(permit);
            outcome
        }
        Err(NotBegun::Stopped(reason)) => Ok(LoopOutcome::Stopped(reason)),
        Err(NotBegun::Store(error)) => Err(LoopError::Store(error)),
        Err(NotBegun::Draining) => {
            parked = true;
            Ok(LoopOutcome::Stopped(StopReason::Shutdown))
        }
    };

    let lease_lost = matches!(&outcome, Err(LoopError::Store(StoreError::LeaseLost(_))));
    let (end, reply) = ending(&delegate, outcome);
    let unstored = delegate.journal.remainder(&context.messages);
    TurnEnd {
        turn_start: delegate.turn_start,
        silent: delegate.silent,
        usage: delegate.journal.usage,
        cost_micro_usd: delegate.journal.cost_micro_usd,
        messages: context.messages,
        unstored,
        end,
        reply,
        begun_at: job.begun_at,
        lease_lost,
        parked,
    }
}

enum NotBegun {
    Stopped(StopReason),
    Store(StoreError),
    Draining,
}

/// Takes a place in the global lane and notes the beginning in the store.
async fn enter(
    job: &mut TurnJob,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<Option<OwnedSemaphorePermit>, NotBegun> {
    let stopped =
        |run: &LiveRun| NotBegun::Stopped(run.stopped_by().map_or(StopReason::UserStop, |cause| cause.reason));
    let permit = match permit {
        Some(permit) => Some(permit),
        None => tokio::select! {
            biased; // a run that was stopped while it waited never begins
            () = job.run.cancel.cancelled() => return Err(stopped(&job.run)),
            () = job.house.draining.cancelled() => return Err(NotBegun::Draining),
            // The semaphore is never closed; without a permit the turn would still be right, only wider.
            permit = job.house.permits.clone().acquire_owned() => permit.ok(),
        },
    };
    if job.begun_at.is_none() {
        let now = job.house.clock.now();
        job.house.store.threads.start_run(&job.lease, job.run.id, now).await.map_err(NotBegun::Store)?;
        job.begun_at = Some(now);
    }
    Ok(permit)
}

/// Runs the loop, showing on the channel that work goes on.
async fn work(
    delegate: &mut ChatDelegate<'_>,
    context: &mut LoopContext,
    reply_to: Option<&ReplyRoute>,
) -> Result<LoopOutcome, LoopError> {
    let house = delegate.house;
    let indicator = delegate.run.cancel.child_token();
    let looping = async {
        resume_open_calls(delegate, context).await?;
        let config = AgenticLoopConfig {
            max_iterations: house.config.max_tool_iterations.saturating_add(1),
            ..AgenticLoopConfig::default()
        };
        run_agentic_loop(delegate, &house.reasoning, context, &config).await
    };
    let Some((route, channel)) = reply_to.and_then(|route| Some((route, house.channels.get(&route.channel)?))) else {
        return looping.await;
    };
    let working = channel.working(route, indicator.clone());
    tokio::pin!(looping, working);
    let outcome = tokio::select! {
        outcome = &mut looping => outcome,
        () = &mut working => looping.await,
    };
    indicator.cancel();
    outcome
}

/// An earlier attempt died between a call and its result: each such call gets its result before the model is asked.
async fn resume_open_calls(delegate: &mut ChatDelegate<'_>, context: &mut LoopContext) -> Result<(), LoopError> {
    let open = open_calls(&context.messages[delegate.turn_start.min(context.messages.len())..]);
    if open.is_empty() {
        return Ok(());
    }
    let house = delegate.house;
    let tools = house.reasoning.tools();
    let calls = open.into_iter().map(|call| house.gate.after_restart(tools, call)).collect();
    let caller = Caller {
        session: &delegate.run.session,
        run: delegate.run.id,
        tools,
        cancel: &delegate.run.cancel,
        journal: &mut delegate.journal,
    };
    house.gate.execute(caller, context, calls).await?;
    delegate.after_iteration(context.state.iteration, context).await
}

/// Calls of the last assistant message that have no result behind them.
fn open_calls(own: &[Arc<Message>]) -> Vec<ToolCall> {
    let Some(at) = own.iter().rposition(|message| !message.tool_calls().is_empty()) else { return Vec::new() };
    let answered = |call: &ToolCall| {
        own[at + 1..].iter().any(|m| matches!(&m.body, MessageBody::Tool(result) if result.call_id == call.id))
    };
    own[at].tool_calls().iter().filter(|call| !answered(call)).cloned().collect()
}

/// The one place where an outcome or an error becomes the run's end.
fn ending(delegate: &ChatDelegate<'_>, outcome: Result<LoopOutcome, LoopError>) -> (RunEnd, Option<String>) {
    let ChatDelegate { house, run, silent, cut_off, .. } = delegate;
    let error = match outcome {
        Ok(LoopOutcome::Response(_)) if *silent => {
            return (RunEnd::of(StopReason::FinalText).with("silent", true), None);
        }
        // A cap is never ok: nothing said because of a limit is not "nothing to say".
        Ok(LoopOutcome::Response(text)) if text.is_empty() => {
            return (RunEnd::of(cut_off.unwrap_or(StopReason::EmptyReply)), None);
        }
        Ok(LoopOutcome::Response(text)) => {
            let end = RunEnd::of(StopReason::FinalText);
            let end = match cut_off {
                Some(by) => end.with("cut_off", by.word()),
                None => end,
            };
            return (end, Some(text));
        }
        Ok(LoopOutcome::Stopped(reason)) => return (RunEnd::of(reason), None),
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            let end = RunEnd::of(StopReason::MaxIterations)
                .with("iterations", iterations)
                .with("max_tool_iterations", house.config.max_tool_iterations);
            return (end, None);
        }
        Ok(LoopOutcome::NeedApproval(pending)) => {
            // No tool of this version asks for approval; an outcome that cannot be honoured is a fault of ours.
            tracing::error!(run = %run.id, tool = %pending.call.name, "approval asked for, and no approvals exist");
            return (RunEnd::of(StopReason::Internal).with("cause", "approval unavailable"), None);
        }
        Err(error) => error,
    };
    tracing::warn!(run = %run.id, session = %run.session, %error, "run failed");
    let end = match error {
        LoopError::CostRefused { spent_micro_usd, limit_micro_usd, needed_micro_usd } => {
            RunEnd::of(StopReason::CostRefused)
                .with("needed_micro_usd", needed_micro_usd)
                .with("spent_micro_usd", spent_micro_usd)
                .with("limit_micro_usd", limit_micro_usd)
        }
        LoopError::Store(_) => RunEnd::of(StopReason::Internal).with("cause", "store"),
        LoopError::Model(error) => {
            let reason = match error.kind {
                ModelErrorKind::RateLimited { .. } => StopReason::RateLimited,
                ModelErrorKind::Overloaded { .. } => StopReason::Overloaded,
                ModelErrorKind::Auth => StopReason::ProviderAuth,
                ModelErrorKind::ContextTooLong => StopReason::ContextTooLong,
                ModelErrorKind::BadRequest => StopReason::BadRequest,
                ModelErrorKind::Network => StopReason::Network,
            };
            RunEnd::of(reason).with("requests", error.attempts).with("answers_begun", error.abandoned)
        }
    };
    (end, None)
}

/// The context of a conversation: a pinned summary, where there is one, and the messages.
pub(crate) fn context_of(summary: Option<&str>, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    match summary {
        Some(summary) => std::iter::once(compaction::pinned(summary)).chain(messages).collect(),
        None => messages,
    }
}
