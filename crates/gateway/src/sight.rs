//! What whoever asks is shown of work that goes on by itself: an operator all of it, everybody else what is their own. For them
//! the rest does not exist. It is the rule by which the agent lets such work be changed.

use belay_protocol::{
    Asker, FiringRecord, JobRecord, Principal, RoutineRecord, SessionKey, StoreError, firing_of, job_of,
};

use crate::app::App;

/// The eyes of whoever asks.
pub(crate) struct Sight<'a> {
    app: &'a App,
    asker: Asker,
}

impl App {
    /// What this principal is shown.
    pub(crate) fn sight(&self, principal: &Principal) -> Sight<'_> {
        Sight { app: self, asker: Asker::of(principal, false) }
    }
}

impl Sight<'_> {
    /// Their id, where they are shown no more than their own.
    pub(crate) fn own_only(&self) -> Option<&str> {
        (self.asker.place != belay_protocol::Place::Operator).then_some(&self.asker.principal)
    }

    /// Whether they are shown a job.
    pub(crate) fn job(&self, job: &JobRecord) -> bool {
        self.asker.owns(&self.app.channel, &job.creator, &job.channel)
    }

    /// Whether they are shown a routine.
    pub(crate) fn routine(&self, routine: &RoutineRecord) -> bool {
        self.asker.owns(&self.app.channel, &routine.creator, &routine.channel)
    }

    /// Whether they are shown a firing: as its routine. One whose routine is gone has no owner any more.
    pub(crate) async fn firing(&self, firing: &FiringRecord) -> Result<bool, StoreError> {
        if self.own_only().is_none() {
            return Ok(true);
        }
        let routine = self.app.routines.routine(&firing.routine).await?;
        Ok(routine.is_some_and(|routine| self.routine(&routine)))
    }

    /// Whether they are shown what happens in a session: every conversation, and of jobs and firings their own.
    pub(crate) async fn session(&self, session: &SessionKey) -> Result<bool, StoreError> {
        if self.own_only().is_none() {
            return Ok(true);
        }
        if let Some(id) = job_of(session) {
            return Ok(self.app.jobs.job(id).await?.is_some_and(|job| self.job(&job)));
        }
        match firing_of(session) {
            Some(id) => match self.app.routines.firing(id).await? {
                Some(firing) => self.firing(&firing).await,
                None => Ok(false),
            },
            None => Ok(true),
        }
    }
}
