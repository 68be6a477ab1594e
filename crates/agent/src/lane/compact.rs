//! `/compact` shortens the conversation between turns. `/summarize` shows a summary of it and changes nothing. Each may
//! take a model call, so it runs in a task of its own while the lane takes mail. Messages wait for its end, and a stop
//! ends it. The dispatcher treats it as a live run, so that `/stop` finds it. The store does not know it as a run.

use std::sync::Arc;

use belay_agent_loop::LoopContext;
use belay_crash_point::crash_point;
use belay_protocol::{
    Ack, ActedOn, CommandReply, EventKind, NewEvent, Refusal, RunEnd, RunId, RunRecord, RunUsage, StopReason,
    UnixMillis,
};
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument;

use super::port::{not_acted_on, note, refuse_command};
use super::state::LaneState;
use super::{CommandResult, Lane, LeaseLost, Undone, unchanged};
use crate::mail::{LaneCommand, LaneMail, LaneNote};
use belay_run::compaction::cut::Compacted;
use belay_run::compaction::{Cut, How, Shortened, context_of, shorten, summarize};
use belay_run::core::{RunCore, RunStart};
use belay_run::freeze;
use belay_run::live::LiveRun;
use belay_run::request::RunRequest;
use belay_run::tally::Tally;

/// Why a compaction cannot ask a person.
const ASKS_NOBODY: &str = "this conversation is being compacted; nobody can be asked now";

/// A compaction in progress.
pub(super) struct Compacting {
    command: LaneCommand,
    run: Arc<LiveRun>,
    begun_at: UnixMillis,
    /// The one task that does the work. Dropping this value aborts it.
    task: JoinSet<Made>,
}

impl Compacting {
    /// Whether it was told to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.run.control.cancel.is_cancelled()
    }

    /// Aborts the task. Its end is handled like the end of a stopped compaction.
    pub(super) fn abort(&mut self) {
        self.task.abort_all();
    }
}

/// The request of a person about the conversation.
pub(super) enum Compaction {
    /// The older part is replaced by a summary, which follows the person's request.
    Shorten(Option<String>),
    /// A summary of the whole is shown.
    Show,
}

/// The result of a finished request.
pub(super) enum CompactionResult {
    Shorter(Shortened),
    /// The summary for the person; `None`: no model gave a usable one.
    Summary(Option<String>),
}

/// The result of a compaction; `None`: it was told to stop.
pub(super) type Made = Option<CompactionResult>;

/// Waits for the result of the compaction in progress; `None` if there is none.
///
/// # Cancel safety
/// Nothing is lost.
pub(super) async fn compacted(state: &mut LaneState) -> Option<Result<Made, JoinError>> {
    state.compacting_mut()?.task.join_next().await
}

impl Lane {
    /// Starts a compaction. If nothing can be shortened, answers at once.
    pub(super) async fn begin_compaction(&mut self, command: LaneCommand, work: Compaction) {
        let context = LoopContext::new(context_of(self.summary.as_deref(), self.messages.clone()));
        let keep = self.services.run.compaction.keep(self.services.run.model.info().context_tokens);
        let cut = match &work {
            Compaction::Shorten(_) => {
                Cut::of(&context.messages, context.messages.len(), self.calibration.estimated(keep))
            }
            Compaction::Show => (!context.messages.is_empty()).then(|| Cut::whole(&context.messages)),
        };
        let Some(cut) = cut else {
            let nothing = match work {
                Compaction::Shorten(_) => "There is nothing to compact.",
                Compaction::Show => "There is nothing to summarize.",
            };
            return self.say(command, Ok(nothing.into())).await;
        };
        let run = LiveRun::new(RunId::new(), self.lease.session.clone(), command.origin.clone(), false);
        note(&self.port.notes, LaneNote::Recovered { run: run.clone() }).await;
        if let Some(freeze) = self.services.run.freezer.holds_begun(&run.origin) {
            run.control.stop(freeze::cause(freeze.id));
        }
        if matches!(work, Compaction::Shorten(_)) {
            let session = &self.lease.session;
            self.services.hooks.before_compaction(session, None, cut.messages().len(), cut.leaving());
        }
        let core = self.core_of_no_run(run.clone());
        if context.messages.iter().any(|message| message.untrusted) {
            core.tally.note_untrusted(); // marks the notes that the model may save
        }
        let calibration = self.calibration;
        let permits = self.services.permits.clone();
        let make = async move {
            let cancel = core.cancel.clone();
            let _permit = tokio::select! {
                biased; // it was told to stop while it waited for a permit
                () = cancel.cancelled() => return None,
                // The semaphore is never closed. Without a permit, only the global limit would be exceeded.
                permit = permits.acquire_owned() => permit.ok(),
            };
            core.live.activity.begin(); // the silence of a run that waits for a permit is not watched
            let made = match work {
                Compaction::Shorten(wish) => {
                    let how = How { calibration, by_model: true, notes: true, wish: wish.as_deref() };
                    CompactionResult::Shorter(shorten(&core, &context, &cut, how).await)
                }
                Compaction::Show => CompactionResult::Summary(summarize(&core, &context, &cut, calibration).await),
            };
            core.stopped().is_none().then_some(made)
        };
        let mut task = JoinSet::new();
        let span = tracing::info_span!("compact", session = %self.lease.session);
        task.spawn(make.instrument(span));
        let begun_at = self.services.clock.now();
        self.state = LaneState::Compacting(Box::new(Compacting { command, run, begun_at, task }));
    }

    /// Stores the result of a compaction and answers the command.
    pub(super) async fn end_compaction(&mut self, made: Result<Made, JoinError>) -> Result<(), LeaseLost> {
        let Some(Compacting { command, run, begun_at, .. }) = self.state.take_compacting() else { return Ok(()) };
        self.abort_at = None;
        let made = match made {
            Err(error) if error.is_cancelled() => Ok(None), // it did not return after a stop, and was aborted
            made => made,
        };
        let (reason, said) = match made {
            Ok(Some(CompactionResult::Shorter(shorter))) => {
                let Ok(said) = self.store_compaction(shorter).await else {
                    self.forget(&run, StopReason::Shutdown, begun_at).await;
                    return Err(self.keep_back(LaneMail::Command(Box::new(command))));
                };
                (StopReason::FinalText, said)
            }
            Ok(Some(CompactionResult::Summary(Some(text)))) => (StopReason::FinalText, Ok(text)),
            Ok(Some(CompactionResult::Summary(None))) => (
                StopReason::ProviderError,
                Err(Undone::Refused("The model gave no usable summary. The conversation is unchanged.".to_owned())),
            ),
            Ok(None) => (
                run.control.stopped_by().map_or(StopReason::UserStop, |cause| cause.reason),
                Err(Undone::Refused("Stopped: the conversation is unchanged.".to_owned())),
            ),
            Err(error) => {
                tracing::error!(%error, "shortening a conversation crashed");
                let why = "Compaction failed, and nothing has changed.".to_owned();
                (StopReason::Internal, Err(Undone::Refused(why)))
            }
        };
        self.forget(&run, reason, begun_at).await;
        self.say(command, said).await;
        Ok(())
    }

    /// Ends a compaction with a refusal of its command, because the lane ends.
    pub(super) async fn refuse_compacting(&mut self, refusal: Refusal) {
        if let Some(command) = self.give_back_compacting().await {
            refuse_command(&self.port.notes, command, refusal).await;
        }
    }

    /// Ends a compaction and returns its command. Nothing has changed.
    pub(super) async fn give_back_compacting(&mut self) -> Option<LaneCommand> {
        let Compacting { command, run, begun_at, task } = self.state.take_compacting()?;
        self.abort_at = None;
        drop(task);
        self.forget(&run, StopReason::Shutdown, begun_at).await;
        Some(command)
    }

    async fn store_compaction(&mut self, shorter: Shortened) -> Result<CommandResult, LeaseLost> {
        let compacted = shorter.fact(false);
        let Shortened { context, by, before, after, .. } = shorter;
        let Compacted { messages, summary, dropped, kept_of_earlier_turns: keep, .. } = context;
        let session = &self.lease.session;
        let fact =
            |kind| NewEvent { at: self.services.clock.now(), session: Some(session.clone()), run_id: None, kind };
        let started = EventKind::CompactionStarted { tokens: before, reason: "command".into() };
        let events = vec![fact(started), fact(compacted)];
        crash_point!("compaction.before-store");
        if let Err(error) = self.services.store.journal.compact(&self.lease, keep, summary.clone(), events).await {
            return unchanged(&error);
        }
        crash_point!("compaction.stored");
        self.services.hooks.after_compaction(session, None, messages.len(), dropped, Some(&summary));
        tracing::info!(%session, dropped, before, after, by = by.word(), "conversation shortened on request");
        self.messages = messages.into_iter().skip(1).collect();
        self.summary = Some(summary);
        Ok(Ok(format!(
            "Replaced {dropped} older messages by a summary: about {before} tokens before, {after} now. The store \
             keeps the originals."
        )))
    }

    /// Publishes the end of the compaction, and makes the dispatcher remove its run. Watchers that wait for the end
    /// after a stop are informed.
    async fn forget(&self, run: &LiveRun, reason: StopReason, begun_at: UnixMillis) {
        let end = RunEnd::of(reason);
        run.activity.finish(Arc::new(RunRecord {
            run_id: run.id,
            session: run.session.clone(),
            status: reason.status(),
            reason: Some(reason),
            evidence: end.evidence,
            reply: None,
            usage: RunUsage::default(),
            cost_micro_usd: 0,
            attempt: 1,
            accepted_at: begun_at,
            started_at: Some(begun_at),
            ended_at: Some(self.services.clock.now()),
            waiting_for: None,
            files: Vec::new(),
        }));
        note(&self.port.notes, LaneNote::Ended { run: run.id }).await;
    }

    /// The run core of a compaction. The store does not know the run, but it is metered, guarded and stopped like any
    /// other.
    fn core_of_no_run(&self, live: Arc<LiveRun>) -> RunCore {
        let request = RunRequest::without_message(&live, self.options.clone(), self.services.clock.now());
        let start = RunStart { lease: self.lease.clone(), stored: 0, tally: Tally::default(), spawned: 0 };
        let core = RunCore::root(self.services.run.clone(), live, Arc::new(request), start);
        RunCore { journal: core.journal.of_no_run(), may_ask: Err(ASKS_NOBODY), ..core }
    }

    /// Answers a command.
    pub(super) async fn say(&self, command: LaneCommand, said: CommandResult) {
        let refused = said.is_err();
        match &said {
            Err(Undone::Unstored(_)) => not_acted_on(&self.port.notes, command.sent.map(|sent| sent.key)).await,
            _ => self.remember(command.sent.map(|sent| ActedOn { refused, ..sent.into() })).await,
        }
        let (Ok(reply) | Err(Undone::Refused(reply) | Undone::Unstored(reply))) = said;
        let answer = CommandReply { command: command.word, reply: reply.clone(), resumes: None, refused };
        command.ack.send(Ack::Command(answer));
        let say = command.reply_to.map(|route| (route, reply));
        note(&self.port.notes, LaneNote::Commanded { session: command.session, say }).await;
    }
}
