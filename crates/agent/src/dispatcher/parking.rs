//! Parking: sessions whose messages wait in the store, without a task.
//!
//! A run that waits for its turn costs memory: its task, the conversation, the text. So only as many sessions wait with
//! a task as there are wait permits ([`crate::agent_services::WAIT_PERMITS`]). A lane without a wait permit asks the
//! dispatcher to be parked. The dispatcher agrees if it knows of nothing that the lane does not know. A parked session
//! keeps the ids of its runs, so that they can be watched and stopped. It gets a task with a wait permit, in the order
//! of parking, or at once when somebody writes, stops one of its runs, or sends a command. A session whose task crashes
//! repeatedly is parked too, and retried after a pause.
//!
//! A start parks every session with unfinished runs, however many there are, and does not wait for their resumption:
//!
//! - a session with a paused run is opened before the daemon is ready, because "yes" is an answer only if the question
//!   is known;
//! - sessions whose run was interrupted are resumed after that, at most [`RESUMED_AT_ONCE`] at the same time, without
//!   waiting for a wait permit;
//! - all others wait for their wait permits.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use belay_protocol::store::UnfinishedRun;
use belay_protocol::{ClaimMode, RunStatus, SessionKey, SessionLifetime, StoreError};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep};

use super::{Dispatcher, LANE_RETRY, Lane, TaskEnd};
use belay_run::live::{LiveRun, RunOrigin};
use belay_run::metrics;

/// Number of parked sessions that are woken at once when their runs are stopped. The others are the next to get a wait
/// permit.
const WOKEN_AT_ONCE: usize = 64;

/// Number of sessions that a start resumes at the same time: the next one begins when one of them is open. 64: as many
/// fit into one commit of the store, and new messages do not wait behind more.
const RESUMED_AT_ONCE: usize = 64;

/// Sessions whose interrupted runs a start resumes.
#[derive(Default)]
pub(super) struct Resumption {
    /// Sessions that were not resumed yet, oldest first. An entry is outdated if its session has a task already.
    waiting: VecDeque<SessionKey>,
    /// Sessions that are being opened.
    opening: HashSet<SessionKey>,
}

impl Lane {
    /// A session with an unfinished run, as a start finds it in the store.
    fn parked(run: Arc<LiveRun>) -> Self {
        Self {
            mail: None,
            wake: Arc::new(Notify::new()),
            stale: Arc::default(),
            task: None,
            runs: vec![run],
            commands: 0,
            opening: false,
            crashes: 0,
            idle_since: Instant::now(),
            listed: false,
        }
    }

    /// Whether the session is parked.
    pub(super) fn is_parked(&self) -> bool {
        self.mail.is_none()
    }

    /// Whether no task reads its mailbox.
    pub(super) fn is_without_task(&self) -> bool {
        self.mail.as_ref().is_none_or(|mail| mail.is_closed())
    }
}

impl Dispatcher {
    /// Loads the state of earlier starts: parks the sessions with unfinished runs, and wakes those with a paused run.
    /// [`Self::resume_next`] resumes the others.
    pub(crate) async fn recover(&mut self) -> Result<(), StoreError> {
        let store = self.services.store.dispatcher.clone();
        self.keys.recall(store.acted_on().await?, store.recent_inputs().await?);
        // Before the first claim: an order is either carried out here, or read by the claim.
        let newest_order = match &self.services.cluster {
            Some(cluster) => cluster.orders.newest_order().await?,
            None => 0,
        };
        let unfinished = store.unfinished_runs().await?;
        self.adopt(unfinished);
        self.watch_nodes();
        self.watch_mail();
        self.watch_orders(newest_order);
        self.watch_freezes();
        self.watch_people();
        self.watch_tools();
        Ok(())
    }

    /// Parks the sessions of these runs, and wakes those with a paused run. The sessions are new.
    pub(super) fn adopt(&mut self, unfinished: Vec<UnfinishedRun>) {
        let (mut paused, mut interrupted) = (HashSet::new(), HashSet::new());
        let (mut order, mut cut_off) = (Vec::new(), Vec::new());
        for unfinished in unfinished {
            self.admission.recall(&unfinished);
            let session = unfinished.session;
            let origin = RunOrigin {
                work: unfinished.work,
                source: unfinished.source.map(Arc::new),
                channel: unfinished.channel,
                principal: unfinished.principal.into(),
            };
            let run = LiveRun::new(unfinished.run_id, session.clone(), origin, false);
            metrics::run_recovered();
            self.sessions.insert(run.id, session.clone());
            // A crash may have come between a freeze and the ends of the runs that it stopped.
            cut_off.extend((unfinished.status == RunStatus::Running).then(|| run.clone()));
            match self.lanes.get_mut(&session) {
                Some(lane) => lane.runs.push(run),
                None => {
                    order.push(session.clone());
                    self.lanes.insert(session.clone(), Lane::parked(run));
                }
            }
            match unfinished.status {
                RunStatus::Paused => paused.insert(session),
                RunStatus::Running => interrupted.insert(session),
                _ => false,
            };
        }
        for session in order {
            if paused.contains(&session) {
                self.wake(&session, SessionLifetime::Lasting, ClaimMode::Free, None);
            } else if interrupted.contains(&session) {
                self.resumption.waiting.push_back(session);
            } else {
                self.list(&session);
            }
        }
        self.seek_seat();
        self.stop_if_frozen(&cut_off);
        self.stop_revoked();
    }

    /// Resumes the next sessions whose run was interrupted, as far as [`RESUMED_AT_ONCE`] allows.
    pub(crate) fn resume_next(&mut self) {
        while self.resumption.opening.len() < RESUMED_AT_ONCE && !self.services.draining.is_cancelled() {
            let Some(session) = self.resumption.waiting.pop_front() else { return };
            if self.lanes.get(&session).is_some_and(Lane::is_parked) {
                self.resumption.opening.insert(session.clone());
                self.wake(&session, SessionLifetime::Lasting, ClaimMode::Free, None);
            }
        }
    }

    /// Notes that a session is open, or that its task has ended.
    pub(super) fn resumed(&mut self, session: &SessionKey) {
        if self.resumption.opening.remove(session) {
            self.resume_next();
        }
    }

    /// Parks a lane without a wait permit, if it knows every run of its session and nothing else is on the way to it.
    pub(super) fn park(&mut self, session: &SessionKey, runs: usize, go_on: oneshot::Sender<()>) {
        let draining = self.services.draining.is_cancelled();
        let lane = self.lanes.get_mut(session);
        match lane.filter(|lane| lane.runs.len() == runs && lane.commands == 0 && !lane.is_parked() && !draining) {
            Some(lane) => {
                // The lane is idle and its mailbox stays empty, so its task ends.
                lane.mail = None;
                self.list(session);
                self.seek_seat();
            }
            None => {
                let _ = go_on.send(()); // a lane that has ended meanwhile needs no answer
            }
        }
    }

    fn list(&mut self, session: &SessionKey) {
        if let Some(lane) = self.lanes.get_mut(session)
            && !std::mem::replace(&mut lane.listed, true)
        {
            self.parked.push_back(session.clone());
        }
    }

    /// Waits for a wait permit in a background task, if a session needs one.
    fn seek_seat(&mut self) {
        if self.awaiting_permit || self.parked.is_empty() || self.services.draining.is_cancelled() {
            return;
        }
        self.awaiting_permit = true;
        let (wait_permits, draining) = (self.services.wait_permits.clone(), self.services.draining.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased; // nothing begins after the drain has begun
                () = draining.cancelled() => TaskEnd::WaitPermit(None),
                wait_permit = wait_permits.acquire_owned() => TaskEnd::WaitPermit(wait_permit.ok()),
            }
        });
    }

    /// Gives a free wait permit to the session that has been parked longest.
    pub(super) fn wake_longest_parked(&mut self, wait_permit: Option<OwnedSemaphorePermit>) {
        self.awaiting_permit = false;
        let Some(wait_permit) = wait_permit else { return };
        while let Some(session) = self.parked.pop_front() {
            let Some(lane) = self.lanes.get_mut(&session) else { continue };
            lane.listed = false;
            if lane.is_parked() {
                self.wake(&session, SessionLifetime::Lasting, ClaimMode::Free, Some(wait_permit));
                break;
            }
        }
        self.seek_seat();
    }

    /// Parks a session whose task crashes repeatedly, and retries it after a pause.
    pub(super) fn retry_later(&mut self, session: SessionKey) {
        let Some(lane) = self.lanes.get_mut(&session) else { return };
        (lane.mail, lane.commands, lane.opening) = (None, 0, false);
        tracing::error!(%session, runs = lane.runs.len(), pause_s = LANE_RETRY.as_secs(), "a lane has crashed again and again");
        let draining = self.services.draining.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased; // nothing begins after the drain has begun
                () = draining.cancelled() => TaskEnd::Retry(None),
                () = sleep(LANE_RETRY) => TaskEnd::Retry(Some(session)),
            }
        });
    }

    /// Starts a task for such a session, unless it was woken meanwhile.
    pub(super) fn retry(&mut self, session: &SessionKey) {
        if self.lanes.get(session).is_some_and(Lane::is_parked) && !self.services.draining.is_cancelled() {
            self.wake(session, SessionLifetime::Lasting, ClaimMode::Free, None);
        }
    }

    /// Wakes parked sessions whose runs were stopped.
    pub(super) fn wake_parked(&mut self, mut sessions: Vec<SessionKey>) {
        let later = sessions.split_off(sessions.len().min(WOKEN_AT_ONCE));
        sessions.iter().for_each(|session| self.wake(session, SessionLifetime::Lasting, ClaimMode::Free, None));
        later.into_iter().rev().for_each(|session| self.parked.push_front(session));
    }

    /// Releases the parked sessions at shutdown: their runs stay in the store for the next start.
    pub(super) fn let_go_of_parked(&mut self) {
        self.parked.clear();
        self.resumption = Resumption::default();
        let parked = self.lanes.iter().filter(|(_, lane)| lane.is_parked());
        let runs: Vec<_> = parked.flat_map(|(_, lane)| lane.runs.iter().map(|run| run.id)).collect();
        runs.into_iter().for_each(|run| self.forget(run));
        self.lanes.retain(|_, lane| !lane.is_parked());
    }
}
