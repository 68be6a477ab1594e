//! Sessions whose messages wait in the store, without a task.
//!
//! A run that waits for a place in the global lane costs memory: its task, the conversation, the text. So only as many wait with
//! a task as there are seats ([`crate::agent_services::SEATS`]). A lane that finds none asks the dispatcher whether it may be parked; the
//! dispatcher lets go of it where it knows of everything that the lane knows of. A parked session keeps the ids of its runs, for
//! whoever watches or stops them. It gets a task again with a seat, in the order of parking, or at once when somebody writes,
//! stops a run of it, or gives a command. A start parks every session of which nothing had begun. A session whose task has crashed
//! again and again is parked as well, and tried again after a while.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{SessionKey, SessionLifetime, StoreError};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep};

use super::{Dispatcher, LANE_RETRY, Lane, TaskEnd};
use belay_run::live::{LiveRun, RunOrigin};
use belay_run::metrics;

/// Parked sessions that are woken at once when runs of them are stopped. Those beyond are the next to get a seat.
const WOKEN_AT_ONCE: usize = 64;

impl Lane {
    /// A session as a start finds it in the store.
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

    /// Whether its runs wait in the store.
    pub(super) fn is_parked(&self) -> bool {
        self.mail.is_none()
    }

    /// Whether no task takes its mail.
    pub(super) fn is_without_task(&self) -> bool {
        self.mail.as_ref().is_none_or(|mail| mail.is_closed())
    }
}

impl Dispatcher {
    /// Learns what an earlier start left unfinished: wakes the sessions of which something had begun, and parks the others.
    pub(crate) async fn recover(&mut self) -> Result<(), StoreError> {
        let store = self.services.store.dispatcher.clone();
        self.keys.recall(store.acted_on().await?, store.recent_inputs().await?);
        let mut begun: HashMap<SessionKey, bool> = HashMap::new();
        let mut order = Vec::new();
        for unfinished in store.unfinished_runs().await? {
            self.admission.recall(&unfinished);
            let session = unfinished.session;
            let origin = RunOrigin {
                work: unfinished.work,
                channel: unfinished.channel,
                principal: unfinished.principal.into(),
            };
            let run = LiveRun::new(unfinished.run_id, session.clone(), origin, false);
            metrics::run_recovered();
            self.sessions.insert(run.id, session.clone());
            match self.lanes.get_mut(&session) {
                Some(lane) => lane.runs.push(run),
                None => {
                    order.push(session.clone());
                    self.lanes.insert(session.clone(), Lane::parked(run));
                }
            }
            *begun.entry(session).or_default() |= unfinished.begun;
        }
        for session in order {
            match begun.get(&session) {
                Some(true) => self.wake(&session, SessionLifetime::Lasting, None),
                _ => self.list(&session),
            }
        }
        self.seek_seat();
        Ok(())
    }

    /// A lane has no seat and may be parked, if it knows of every run of its session and nothing else is on its way to it.
    pub(super) fn park(&mut self, session: &SessionKey, runs: usize, go_on: oneshot::Sender<()>) {
        let draining = self.services.draining.is_cancelled();
        let lane = self.lanes.get_mut(session);
        match lane.filter(|lane| lane.runs.len() == runs && lane.commands == 0 && !lane.is_parked() && !draining) {
            Some(lane) => {
                // The lane is idle, nothing is in its mailbox, and nothing more will be: it ends.
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

    /// Waits for a seat beside everything else, where a session wants one.
    fn seek_seat(&mut self) {
        if self.seating || self.parked.is_empty() || self.services.draining.is_cancelled() {
            return;
        }
        self.seating = true;
        let (seats, draining) = (self.services.seats.clone(), self.services.draining.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased; // nothing begins once the daemon ends
                () = draining.cancelled() => TaskEnd::Seat(None),
                seat = seats.acquire_owned() => TaskEnd::Seat(seat.ok()),
            }
        });
    }

    /// There is a seat: the session that has been parked longest gets it.
    pub(super) fn seated(&mut self, seat: Option<OwnedSemaphorePermit>) {
        self.seating = false;
        let Some(seat) = seat else { return };
        while let Some(session) = self.parked.pop_front() {
            let Some(lane) = self.lanes.get_mut(&session) else { continue };
            lane.listed = false;
            if lane.is_parked() {
                self.wake(&session, SessionLifetime::Lasting, Some(seat));
                break;
            }
        }
        self.seek_seat();
    }

    /// The task of a session has crashed again and again: its runs wait in the store, and it gets another task after a while.
    pub(super) fn retry_later(&mut self, session: SessionKey) {
        let Some(lane) = self.lanes.get_mut(&session) else { return };
        (lane.mail, lane.commands, lane.opening) = (None, 0, false);
        tracing::error!(%session, runs = lane.runs.len(), pause_s = LANE_RETRY.as_secs(), "a lane has crashed again and again");
        let draining = self.services.draining.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased; // nothing begins once the daemon ends
                () = draining.cancelled() => TaskEnd::Retry(None),
                () = sleep(LANE_RETRY) => TaskEnd::Retry(Some(session)),
            }
        });
    }

    /// Gives such a session its task, unless somebody has woken it meanwhile.
    pub(super) fn retry(&mut self, session: &SessionKey) {
        if self.lanes.get(session).is_some_and(Lane::is_parked) && !self.services.draining.is_cancelled() {
            self.wake(session, SessionLifetime::Lasting, None);
        }
    }

    /// Runs of these sessions were told to stop while they were parked.
    pub(super) fn wake_parked(&mut self, mut sessions: Vec<SessionKey>) {
        let later = sessions.split_off(sessions.len().min(WOKEN_AT_ONCE));
        sessions.iter().for_each(|session| self.wake(session, SessionLifetime::Lasting, None));
        later.into_iter().rev().for_each(|session| self.parked.push_front(session));
    }

    /// The daemon ends: what is parked stays in the store for the next start.
    pub(super) fn let_go_of_parked(&mut self) {
        self.parked.clear();
        let parked = self.lanes.iter().filter(|(_, lane)| lane.is_parked());
        let runs: Vec<_> = parked.flat_map(|(_, lane)| lane.runs.iter().map(|run| run.id)).collect();
        runs.into_iter().for_each(|run| self.forget(run));
        self.lanes.retain(|_, lane| !lane.is_parked());
    }
}
