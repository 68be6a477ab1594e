//! The ends of runs of a lane: each end is committed first and published after.

use std::sync::Arc;

use belay_crash_point::crash_point;
use belay_protocol::store::joined_end;
use belay_protocol::{
    ClaimMode, HookPoint, JoinedRun, LaneClaim, Message, MessageBody, PendingRun, RunEnd, RunId, RunRecord, RunUsage,
    SessionLifetime, StopReason, StoreError,
};
use tokio::task::JoinError;

use super::port::{note, until_stored};
use super::state::Running;
use super::{Lane, LeaseLost, pause};
use crate::mail::LaneNote;
use crate::queued_run::{QueuedRun, RunEnding};
use crate::turn::{Conversation, TurnEnd, TurnOutcome, end_processes};
use belay_run::approvals::Answers;
use belay_run::compaction;
use belay_run::live::LiveRun;
use belay_run::metrics;
use belay_run::progress::RunProgress;
use belay_run::reply::CUT_SHORT;

impl Lane {
    /// Handles the end of the running turn. Messages that have joined it end too; other messages keep waiting.
    pub(super) async fn end_turn(&mut self, ended: Result<TurnEnd, JoinError>) -> Result<(), LeaseLost> {
        self.abort_at = None;
        self.end_joined().await;
        let Some(Running { waiting, joining }) = self.state.take_running() else { return Ok(()) };
        let unsure = joining.close();
        Box::pin(self.conclude(waiting, ended)).await?; // large: a lane waits most of its time
        // On drain, the next start settles them.
        if !unsure.is_empty() && !self.services.draining.is_cancelled() {
            Box::pin(self.settle_unsure(unsure)).await?;
        }
        self.end_stopped_in_queue().await
    }

    /// Commits the end of the turn that ran, or pauses its run.
    async fn conclude(&mut self, mut current: QueuedRun, ended: Result<TurnEnd, JoinError>) -> Result<(), LeaseLost> {
        self.instructions.clear();
        if let Ok(ended) = &ended {
            self.calibration = ended.conversation.calibration;
        }
        let TurnEnd { conversation, progress, outcome } = match ended {
            Ok(ended) => ended,
            Err(error) => return self.end_crashed(current, &error).await,
        };
        let mut ending = match outcome {
            TurnOutcome::LeaseLost => return Err(LeaseLost),
            TurnOutcome::Deferred => {
                self.deferred = Some(current.run.id);
                return Ok(());
            }
            TurnOutcome::Paused(asking, unstored) => {
                current.progress = progress;
                return Box::pin(self.pause(current, conversation, *asking, unstored)).await;
            }
            TurnOutcome::Ended(ending) => ending,
        };
        current.progress = progress;
        let begun = current.progress.begun_at.is_some();
        if !begun && current.progress.in_thread {
            // It was stopped before its next attempt began. The thread has its messages, and the reload reads them.
            return self.end_early(vec![(current, RunEnding::early(ending.end))]).await;
        }
        if !begun {
            ending.unstored.messages.clear();
        }
        self.commit_ends(vec![(current, ending)]).await?;
        let Conversation { history: mut messages, own, .. } = conversation;
        match begun {
            // Steering messages that only concern this run are of no use to the next one.
            true => messages.extend(own.into_iter().filter(|message| message.scope.is_thread())),
            false => messages.truncate(messages.len() - self.brought),
        }
        self.keep(messages);
        Ok(())
    }

    /// Publishes the ends of messages that have joined the running turn and are committed.
    pub(super) async fn end_joined(&mut self) {
        let Some(joining) = self.state.joining().cloned() else { return };
        for JoinedRun { run, how, at } in joining.joined() {
            let Some(place) = self.queue.iter().position(|waiting| waiting.run.id == run) else { continue };
            let Some(waiting) = self.queue.remove(place) else { continue };
            let (_, record) = waiting.finish(RunEnding::early(joined_end(joining.into, how)), at);
            self.publish(&waiting.run, Arc::new(record)).await;
        }
    }

    /// Finds out whether messages joined a turn that took them and then ended. Opening the lane again is a write of its
    /// own: an earlier write of the turn comes before it, and a later one is refused.
    async fn settle_unsure(&mut self, unsure: Vec<RunId>) -> Result<(), LeaseLost> {
        let unfinished = self.reload().await?;
        let goes_on = |run: &RunId| unfinished.iter().any(|pending| pending.run_id == *run);
        for run in unsure.into_iter().filter(|run| !goes_on(run)) {
            let Some(place) = self.queue.iter().position(|waiting| waiting.run.id == run) else { continue };
            let Some(waiting) = self.queue.remove(place) else { continue };
            match self.services.store.runs.run(run).await {
                Ok(Some(record)) => self.publish(&waiting.run, Arc::new(record)).await,
                // It has ended. Its watchers are told to read the store.
                unread => {
                    tracing::error!(%run, read = ?unread.err(), "the end of a message that was joined cannot be read");
                    note(&self.port.notes, LaneNote::Ended { run }).await;
                }
            }
        }
        Ok(())
    }

    /// Takes the conversation back from a turn. If the first message is a pinned summary, it becomes the lane's
    /// summary.
    pub(super) fn keep(&mut self, mut messages: Vec<Arc<Message>>) {
        if messages.first().is_some_and(|message| compaction::is_pinned(message)) {
            self.summary = Some(messages.remove(0).text().to_owned());
        }
        self.messages = messages;
    }

    /// Ends a run whose turn panicked, or was aborted because it did not return after a stop. Its stored messages
    /// remain, and the conversation is read again.
    async fn end_crashed(&mut self, mut current: QueuedRun, error: &JoinError) -> Result<(), LeaseLost> {
        tracing::error!(run = %current.run.id, %error, "a turn crashed");
        end_processes(&self.services, current.run.id).await;
        let stored = self.services.store.runs.run(current.run.id).await.ok().flatten();
        let end = match current.run.control.stopped_by().filter(|_| error.is_cancelled()) {
            Some(cause) => cause.end().with("aborted", true),
            None => RunEnd::of(StopReason::Internal).with("cause", "panic"),
        };
        let mut ending = RunEnding::early(end);
        // The crash has dropped the state that the turn was lent. The handles of its calls were stored before they were
        // used.
        let mut unfinished = self.reload().await?;
        if let Some(pending) = unfinished.iter_mut().find(|pending| pending.run_id == current.run.id) {
            current.progress.state = RunProgress::restored(pending, Answers::default()).state;
        }
        if let Some(record) = stored {
            (current.progress.usage, current.progress.cost_micro_usd) = (record.usage, record.cost_micro_usd);
            // It had begun, unless it crashed before the store recorded that.
            if let Some(at) = record.started_at {
                current.progress.begin(at);
            }
        }
        // Before the run began, its own message is not in the thread.
        if error.is_cancelled() && current.progress.begun_at.is_some() {
            ending.unstored.messages = self.said_last(&current.run).await;
        }
        self.commit_ends(vec![(current, ending)]).await?;
        self.reload().await.map(|_| ())
    }

    /// The last text of an aborted turn's model, if the store does not have it and no hook has to check it.
    async fn said_last(&self, run: &LiveRun) -> Vec<Arc<Message>> {
        let said = run.output.partial().text.trim().to_owned();
        if said.is_empty() || self.services.hooks.is_bound(HookPoint::MessageSending) {
            return Vec::new();
        }
        let says =
            |message: &Message| matches!(&message.body, MessageBody::Assistant { text, .. } if text.contains(&said));
        match self.services.store.runs.run_messages(run.id).await {
            Ok(stored) if !stored.iter().any(|message| says(message)) => {
                vec![Arc::new(Message::assistant(format!("{said}{CUT_SHORT}")))]
            }
            Ok(_) => Vec::new(),
            // Losing the text is better than repeating it.
            Err(error) => {
                tracing::error!(run = %run.id, %error, "the messages of an aborted turn cannot be read");
                Vec::new()
            }
        }
    }

    /// Ends all waiting runs that were told to stop, in one commit.
    pub(super) async fn end_stopped_in_queue(&mut self) -> Result<(), LeaseLost> {
        let joining = self.state.joining().cloned();
        // A message that the running turn has taken ends with the turn, or comes back.
        let is_here = |run: RunId| joining.as_ref().is_none_or(|joining| joining.withdraw(run));
        let (stopped, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|waiting| waiting.run.control.cancel.is_cancelled() && is_here(waiting.run.id));
        self.queue = waiting.into();
        let waited = stopped.into_iter().map(|waiting| {
            let ending = pause::stopped(&waiting);
            (waiting, ending)
        });
        let endings = self.stopped_while_paused().into_iter().chain(waited.collect::<Vec<_>>());
        self.end_early(endings.collect()).await
    }

    /// Ends runs without a turn. If an earlier attempt of one of them began, the thread is read again, because it
    /// contains that attempt's messages.
    pub(super) async fn end_early(&mut self, ends: Vec<(QueuedRun, RunEnding)>) -> Result<(), LeaseLost> {
        let reload = ends.iter().any(|(waiting, _)| waiting.progress.in_thread) && self.state.running().is_none();
        self.commit_ends(ends).await?;
        if reload { self.reload().await.map(|_| ()) } else { Ok(()) }
    }

    /// Commits ends, then publishes them. If the store fails, the commit is repeated until it succeeds, or until the
    /// daemon shuts down and the next start resumes the runs. An end is never published before it is durable.
    pub(super) async fn commit_ends(&mut self, ends: Vec<(QueuedRun, RunEnding)>) -> Result<(), LeaseLost> {
        if ends.is_empty() {
            return Ok(());
        }
        let at = self.services.clock.now();
        let mut finished = Vec::with_capacity(ends.len());
        let (mut records, mut left) = (Vec::with_capacity(ends.len()), Vec::new());
        for (mut waiting, mut ending) in ends {
            self.settle_unclear(&mut ending).await?;
            left.extend(waiting.progress.state.take().map(|mut state| state.take_handles()).unwrap_or_default());
            let (row, record) = waiting.finish(ending, at);
            finished.push(row);
            records.push((waiting.run, Arc::new(record)));
        }
        crash_point!("run.before-end");
        let runs = &self.services.store.run_store;
        let what = "the end of a run could not be stored";
        until_stored(&mut self.port, what, || runs.finish_runs(&self.lease, finished.clone())).await?;
        crash_point!("run.ended");
        for (run, record) in records {
            self.publish(&run, record).await;
        }
        // After the commit under the lease: no other node continues these calls.
        if !left.is_empty() {
            let run = self.services.run.clone();
            note(&self.port.notes, LaneNote::Background(Box::pin(async move { run.abandon(left).await }))).await;
        }
        Ok(())
    }

    /// Finds out whether the last write of a run was done, so that its end does not store a part of it again.
    async fn settle_unclear(&mut self, ending: &mut RunEnding) -> Result<(), LeaseLost> {
        let Some(unclear) = ending.unstored.unclear.take() else { return Ok(()) };
        let done = || async {
            match unclear.is_done().await {
                Err(StoreError::NotFound(_)) => Ok(false), // it has ended, so this end changes nothing
                done => done,
            }
        };
        if until_stored(&mut self.port, "the last step of a run could not be read", done).await? {
            ending.unstored.without_stored(&unclear);
        }
        Ok(())
    }

    /// Publishes an end that is committed.
    async fn publish(&self, run: &Arc<LiveRun>, record: Arc<RunRecord>) {
        log_end(&record);
        metrics::run_ended(&record);
        if let (Some(reason), Some(took)) = (record.reason, run.control.since_stop()) {
            metrics::stop_acknowledged(reason, took);
        }
        let hooks = &self.services.hooks;
        if hooks.is_bound(HookPoint::AgentEnd) {
            let messages = self.services.store.runs.run_messages(run.id).await;
            if let Err(error) = &messages {
                tracing::warn!(run = %run.id, %error, "hooks at the end of the run get no messages");
            }
            hooks.agent_end(&record, &messages.unwrap_or_default());
        }
        run.activity.finish(record);
        note(&self.port.notes, LaneNote::Ended { run: run.id }).await;
    }

    /// Reads the thread again. Returns the runs that have not ended.
    ///
    /// The lane is opened again as its own: a lane that another node has taken must not be taken back.
    pub(super) async fn reload(&mut self) -> Result<Vec<PendingRun>, LeaseLost> {
        self.reopen(ClaimMode::Own(self.lease.epoch)).await
    }

    /// Opens the lane again, as far as the claim allows it.
    pub(super) async fn reopen(&mut self, mode: ClaimMode) -> Result<Vec<PendingRun>, LeaseLost> {
        let now = self.services.clock.now();
        let (lanes, session, owner) = (&self.services.store.lanes, &self.lease.session, self.services.boot);
        let open = || async {
            let claim = LaneClaim { owner, mode };
            let opening = lanes.open_lane(session, SessionLifetime::Lasting, claim, now).await?;
            opening.opened().ok_or_else(|| StoreError::LeaseLost(session.clone()))
        };
        let opened = until_stored(&mut self.port, "the thread could not be read", open).await?;
        self.lease = opened.lease;
        self.show(opened.thread);
        Ok(opened.unfinished)
    }
}

/// The log line of an ended run.
fn log_end(record: &RunRecord) {
    let reason = record.reason.map_or("", StopReason::word);
    let ended_at = record.ended_at.unwrap_or(record.accepted_at);
    let duration_ms = ended_at.0.saturating_sub(record.accepted_at.0).max(0);
    let RunUsage { input, output, model_calls, tool_calls, .. } = record.usage;
    tracing::info!(
        run = %record.run_id, session = %record.session, status = record.status.word(), reason, duration_ms, model_calls,
        tool_calls, input_tokens = input, output_tokens = output, cost_micro_usd = record.cost_micro_usd, "run ended"
    );
}
