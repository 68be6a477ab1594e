//! Starts a lane: opens it in the store and restores its unfinished runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_crash_point::crash_point;
use belay_protocol::cluster::StopOrder;
use belay_protocol::{
    ApprovalState, ClaimMode, LaneClaim, MessageScope, OpenedLane, Opening, PendingRun, Refusal, RunEnd, RunId,
    RunStatus, SessionKey, SessionLifetime, StopReason, ThreadSnapshot, ToolStatus, Work,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::next::Parking;
use super::place::Taken;
use super::plan::PlanCommands;
use super::port::{note, refuse_all, refuse_for, refuse_mail, until_stored};
use super::remote::Next;
use super::state::LaneState;
use super::{Lane, LeaseLost, remote};
use crate::agent_services::AgentServices;
use crate::mail::{LaneMail, LaneNote, LanePort};
use crate::queued_run::{QueuedRun, RunEnding};
use crate::stop_orders;
use crate::turn::end_processes;
use belay_run::approvals::{Answers, ApprovalAnswer};
use belay_run::estimate::Calibration;
use belay_run::live::{LiveRun, RunOrigin};
use belay_run::metrics;
use belay_run::retry::STORE;

/// Number of attempts after which a run is given up. 5: a crash that a message causes repeats at once, while four
/// restarts during an upgrade do not reach the limit. In a cluster each take-over of a begun run by another node is an
/// attempt, also after a drain: a rolling restart of n nodes may move one run n times. An attempt that a shutdown
/// suspends while it waits for a form is taken back.
const MAX_ATTEMPTS: u32 = 5;
/// The result of a call that a crash interrupted.
const UNKNOWN: &str = "outcome unknown: this was interrupted; check before you repeat it";

/// The start values of a lane.
pub(crate) struct LaneStart {
    pub(crate) session: SessionKey,
    /// The lifetime of the session, if the lane creates it.
    pub(crate) lifetime: SessionLifetime,
    /// From whom the lane may be taken.
    pub(crate) claim: ClaimMode,
    /// Mail that an earlier task of this lane had not accepted. It comes before all other mail.
    pub(crate) mail: Vec<LaneMail>,
    /// Runs that an earlier task of this lane left unfinished.
    pub(crate) adopted: Vec<Arc<LiveRun>>,
    /// Whether unfinished work waits for the lane. If so, the lane repeats the opening until it succeeds.
    pub(crate) insist: bool,
    /// Number of crashes of the lane's task. The lane waits one second for each before it starts.
    pub(crate) crashes: u32,
    /// The wait permit of the first run while it waits for a permit, if the session was parked.
    pub(crate) wait_permit: Option<OwnedSemaphorePermit>,
}

/// Runs a lane until the dispatcher retires it. Thousands of lanes may wait at the same time, so futures that run only
/// at the beginning or at the end are boxed.
pub(crate) async fn run_lane(services: Arc<AgentServices>, start: LaneStart, mut port: LanePort) {
    let LaneStart { session, lifetime, claim, mail, mut adopted, insist, crashes, wait_permit } = start;
    let claim = match services.cluster {
        Some(_) => claim,
        None => ClaimMode::Free, // nobody else has lanes
    };
    sleep(Duration::from_secs(u64::from(crashes))).await;
    crash_point!("lane.before-open");
    let mut pauses = STORE.pauses();
    let mut claim = claim;
    let mut mail = VecDeque::from(mail);
    let opened = loop {
        let as_owner = LaneClaim { owner: services.boot, mode: claim };
        let error = match services.store.lanes.open_lane(&session, lifetime, as_owner, services.clock.now()).await {
            Ok(Opening::Opened(opened)) => {
                let Some(cluster) = &services.cluster else { break *opened };
                // Another node may have begun a new conversation since this one had the lane.
                services.briefings.snapshots.forget(&session);
                match Box::pin(remote::find_mail(&services, cluster, &port, &mut mail)).await {
                    Ok(()) => break *opened,
                    Err(error) => error,
                }
            }
            Ok(Opening::OwnedBy(owner)) => {
                let runs = std::mem::take(&mut adopted).iter().map(|run| run.id).collect();
                note(&port.notes, LaneNote::Foreign { session: session.clone(), runs }).await;
                let Some(cluster) = &services.cluster else {
                    return Box::pin(refuse_all(&mut port, Refusal::ShuttingDown)).await; // a daemon that is alone owns all
                };
                match Box::pin(remote::forward(&services, cluster, &mut port, &mut mail, owner)).await {
                    Next::Claim => {
                        claim = ClaimMode::Idle; // for the mail that came meanwhile
                        continue;
                    }
                    Next::End => return,
                }
            }
            Err(error) => error,
        };
        tracing::error!(%error, %session, "a lane could not be opened");
        let refusal = Refusal::Store(error.to_string());
        for mail in std::mem::take(&mut mail) {
            Box::pin(refuse_mail(&port, mail, refusal.clone())).await;
        }
        if !insist || services.draining.is_cancelled() {
            return Box::pin(refuse_all(&mut port, refusal)).await;
        }
        Box::pin(refuse_for(&mut port, refusal, pauses.next_pause())).await;
    };
    crash_point!("lane.opened");
    let OpenedLane { lease, thread, unfinished, loop_detection, options, fresh, spoken_at } = opened;
    let mut lane = Lane {
        services,
        port,
        lease,
        summary: None,
        messages: Vec::new(),
        queue: VecDeque::new(),
        state: LaneState::Idle,
        receiving: None,
        calibration: Calibration::default(),
        has_skills: false,
        fresh,
        instructions: Vec::new(),
        brought: 0,
        loop_detection,
        options,
        parking: Parking::No { refused: 0 },
        stale: false,
        wait_permit,
        read_again_at: None,
        individually: false,
        abort_at: None,
        held: mail,
        taken: Taken::default(),
        plan_commands: PlanCommands::default(),
        spoken_at,
        announce: false,
        deleted: false,
        deferred: None,
        turn: JoinSet::new(),
    };
    lane.show(thread);
    if Box::pin(lane.restore(unfinished, adopted)).await.is_err() || lane.run().await.is_err() {
        return Box::pin(lane.lose()).await;
    }
    Box::pin(lane.let_go()).await;
    Box::pin(lane.release()).await;
}

impl Lane {
    /// Ends the lane, because another owner has its lease. The dispatcher ends the processes of its runs. It gets the
    /// mail that was not accepted back; a daemon that is alone refuses the mail.
    async fn lose(mut self) {
        let session = &self.lease.session;
        match self.services.cluster {
            Some(_) => tracing::info!(%session, "another node has the lane now"),
            None => tracing::error!(%session, "the lane belongs to another owner and is let go"),
        }
        self.turn.shutdown().await;
        self.end_plan_commands().await;
        let mut mail = Vec::new();
        if self.services.cluster.is_some() && !self.services.draining.is_cancelled() {
            mail.extend(self.give_back_compacting().await.map(|command| LaneMail::Command(Box::new(command))));
            mail.extend(self.plan_commands.take().map(|command| LaneMail::Command(Box::new(command))));
            mail.extend(self.give_back_receiving().map(|input| LaneMail::Input(Box::new(input))));
            mail.extend(std::mem::take(&mut self.held));
            // Mail of other nodes stays in the store, for the new owner.
            for foreign in mail.extract_if(.., |mail| mail.forwarded().is_some()) {
                remote::leave_open(&self.port, foreign).await;
            }
        } else {
            self.let_go().await;
        }
        let LanePort { session, mail: mailbox, notes, .. } = self.port;
        note(&notes, LaneNote::LeaseLost { session, mail, mailbox }).await;
    }

    /// Refuses all mail that was not accepted, because the lane ends.
    async fn let_go(&mut self) {
        self.refuse_receiving(Refusal::ShuttingDown).await;
        self.refuse_compacting(Refusal::ShuttingDown).await;
        self.refuse_plan_commands(Refusal::ShuttingDown).await;
        for mail in std::mem::take(&mut self.held) {
            refuse_mail(&self.port, mail, Refusal::ShuttingDown).await;
        }
        refuse_all(&mut self.port, Refusal::ShuttingDown).await;
    }

    /// Releases the lane of a node that drains, so that another node takes it with its unfinished runs. Their processes end
    /// before: what they do must not meet what the other node does.
    async fn release(&self) {
        if self.services.cluster.is_none() || !self.services.draining.is_cancelled() {
            return;
        }
        let paused = self.state.paused().map(|paused| paused.waiting.run.id);
        for run in self.deferred.into_iter().chain(paused) {
            end_processes(&self.services, run).await;
        }
        let session = &self.lease.session;
        match self.services.store.lanes.release_lane(&self.lease).await {
            Ok(()) => tracing::debug!(%session, run = self.deferred.map(tracing::field::display), "lane released"),
            Err(error) => {
                belay_run::log_failure!(warn, error, %session, %error, "the lane is released with the other work of this node")
            }
        }
    }

    /// Replaces the conversation by the one in the store. A call that a crash left without a result gets one. That
    /// result has the scope of a run, because it is not in the store.
    pub(super) fn show(&mut self, thread: ThreadSnapshot) {
        self.summary = thread.summary;
        self.has_skills = thread.has_skills;
        let mut context = LoopContext::new(thread.messages.into_iter().map(|(_, message)| message).collect());
        context.answer_open_calls(ToolStatus::OutcomeUnknown, UNKNOWN, MessageScope::Run);
        self.messages = context.messages;
    }

    /// Queues the runs that an earlier boot, or an earlier task of this lane, left unfinished.
    async fn restore(&mut self, unfinished: Vec<PendingRun>, adopted: Vec<Arc<LiveRun>>) -> Result<(), LeaseLost> {
        for ghost in adopted.iter().filter(|run| unfinished.iter().all(|pending| pending.run_id != run.id)) {
            note(&self.port.notes, LaneNote::Lost { run: ghost.id }).await;
        }
        let mut given_up = Vec::new();
        let orders = self.orders_for(&unfinished).await?;
        for pending in unfinished {
            let known = adopted.iter().find(|run| run.id == pending.run_id).cloned();
            let run = match known {
                Some(run) => run,
                None => {
                    let principal = pending.asker.principal.as_str().into();
                    let (work, source) = (pending.work, pending.source.clone().map(Arc::new));
                    let origin = RunOrigin { work, source, channel: pending.channel.clone(), principal };
                    let run = LiveRun::new(pending.run_id, self.lease.session.clone(), origin, false);
                    metrics::run_recovered();
                    note(&self.port.notes, LaneNote::Recovered { run: run.clone() }).await;
                    run
                }
            };
            stop_orders::apply(&orders, &run, &pending);
            if pending.status != RunStatus::Queued {
                let attempt = pending.attempt + 1;
                tracing::info!(run = %run.id, session = %run.session, attempt, "run resumed");
            }
            // The registry of jobs limits how often a job may crash, and a paused run did not crash.
            let counts = pending.status != RunStatus::Paused && !matches!(pending.work, Work::Job { .. });
            let exhausted = pending.attempt >= MAX_ATTEMPTS && counts;
            let asked = pending.approval.clone();
            let answers = match &asked {
                Some(_) => self.answers_of(run.id).await?,
                None => Answers::new(),
            };
            let rules = self.rules_of(&pending.options, &pending.channel);
            let waiting = QueuedRun::restored(run, pending, answers, rules);
            if let Some(approval) =
                asked.filter(|approval| approval.state == ApprovalState::Waiting && waiting.progress.resumed)
            {
                self.restore_paused(waiting, approval).await;
                continue;
            }
            if exhausted {
                let end = RunEnd::of(StopReason::RestartLimit).with("attempts", waiting.progress.attempt);
                given_up.push((waiting, RunEnding::early(end)));
            } else {
                self.queue.push_back(waiting);
            }
        }
        self.end_early(given_up).await?;
        if !orders.is_empty() {
            self.end_stopped_in_queue().await?;
        }
        note(&self.port.notes, LaneNote::Opened { session: self.lease.session.clone() }).await;
        crash_point!("lane.restored");
        Ok(())
    }

    /// The stops that these runs may have missed: their earlier owner may have ended before it read them.
    async fn orders_for(&mut self, unfinished: &[PendingRun]) -> Result<Vec<StopOrder>, LeaseLost> {
        let Some(cluster) = self.services.cluster.clone().filter(|_| !unfinished.is_empty()) else {
            return Ok(Vec::new());
        };
        until_stored(&mut self.port, "the stops of runs could not be read", || stop_orders::all(&cluster)).await
    }

    /// The answers of people to approval requests of a run.
    pub(super) async fn answers_of(&mut self, run: RunId) -> Result<Answers, LeaseLost> {
        let approvals = &self.services.store.approvals;
        let read =
            until_stored(&mut self.port, "the answers of a run could not be read", || approvals.approvals_of(run));
        Ok(ApprovalAnswer::of(read.await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of the future that a function returns, in bytes.
    fn bytes_of<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_lane_that_waits_is_small() {
        let bytes = bytes_of(run_lane);
        assert!(bytes < 4 << 10, "{bytes} bytes for each conversation that is awake; box what is large and rare");
    }
}
