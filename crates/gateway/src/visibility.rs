//! What whoever asks is shown of work that goes on by itself: an operator all of it, everybody else what is their own. For them
//! the rest does not exist. It is the rule by which the agent lets such work be changed.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use belay_protocol::{
    Asker, JobRecord, Principal, RoutineRecord, RoutineRunRecord, RunId, SessionKey, SessionOwner, StoreError,
};

use crate::app::{App, Shared};
use crate::checks::{no_such_run, no_such_session};
use crate::error::ApiError;
use crate::extract::{Caller, path_text};

/// Most rows of a list that are looked at for those that somebody is shown. 1,000: what the store reads at a time.
const LOOKED_AT_MAX: u32 = 1000;

/// The eyes of whoever asks.
pub(crate) struct Visibility<'a> {
    app: &'a App,
    asker: Asker,
}

impl App {
    /// What this principal is shown.
    pub(crate) fn visibility(&self, principal: &Principal) -> Visibility<'_> {
        Visibility { app: self, asker: Asker::of(principal, false) }
    }
}

impl Visibility<'_> {
    /// Their id, where they are shown no more than their own.
    pub(crate) fn own_only(&self) -> Option<&str> {
        (self.asker.place != belay_protocol::Authority::Operator).then_some(&self.asker.principal)
    }

    /// Whether they are shown a job.
    pub(crate) fn job(&self, job: &JobRecord) -> bool {
        self.asker.owns(&self.app.channel, &job.creator, &job.channel)
    }

    /// Whether they are shown a routine.
    pub(crate) fn routine(&self, routine: &RoutineRecord) -> bool {
        self.asker.owns(&self.app.channel, &routine.creator, &routine.channel)
    }

    /// Whether they are shown a routine run: as its routine. One whose routine is gone has no owner any more, whoever has taken
    /// its name since.
    pub(crate) async fn routine_run(&self, routine_run: &RoutineRunRecord) -> Result<bool, StoreError> {
        if self.own_only().is_none() {
            return Ok(true);
        }
        let routine = self.app.routines.routine(&routine_run.routine).await?;
        Ok(routine.is_some_and(|routine| routine.routine_id == routine_run.routine_id && self.routine(&routine)))
    }

    /// The first rows of a list that they are shown, at most `limit`. `read` gives that many rows of the list, what is hidden
    /// included. Where that leaves a page short, the newest [`LOOKED_AT_MAX`] rows are looked at.
    pub(crate) async fn page<T, F>(
        &self,
        limit: u32,
        read: impl Fn(u32) -> F,
        session: impl Fn(&T) -> &SessionKey,
    ) -> Result<Vec<T>, StoreError>
    where
        F: Future<Output = Result<Vec<T>, StoreError>>,
    {
        let rows = read(limit).await?;
        let more = rows.len() >= limit as usize && limit < LOOKED_AT_MAX;
        let mut shown = self.rows(rows, &session).await?;
        if more && shown.len() < limit as usize {
            shown = self.rows(read(LOOKED_AT_MAX).await?, &session).await?;
            shown.truncate(limit as usize);
        }
        Ok(shown)
    }

    /// Of these rows those whose session they are shown.
    pub(crate) async fn rows<T>(
        &self,
        rows: Vec<T>,
        session: impl Fn(&T) -> &SessionKey,
    ) -> Result<Vec<T>, StoreError> {
        if self.own_only().is_none() {
            return Ok(rows);
        }
        let mut shown = Vec::with_capacity(rows.len());
        for row in rows {
            if self.session(session(&row)).await? {
                shown.push(row);
            }
        }
        Ok(shown)
    }

    /// Whether they are shown what happens in a session: every conversation, and of jobs and routine runs their own.
    pub(crate) async fn session(&self, session: &SessionKey) -> Result<bool, StoreError> {
        if self.own_only().is_none() {
            return Ok(true);
        }
        match SessionOwner::of(session) {
            Some(SessionOwner::Job(id)) => Ok(self.app.jobs.job(id).await?.is_some_and(|job| self.job(&job))),
            Some(SessionOwner::RoutineRun(id)) => match self.app.routines.routine_run(id).await? {
                Some(routine_run) => self.routine_run(&routine_run).await,
                None => Ok(false),
            },
            None => Ok(true),
        }
    }
}

/// A run that hides nothing from whoever asks: it belongs to what they are shown, or there is none of that id. Whatever reads or
/// changes a run that a request names takes one of these, and there is no other way to come by one than to be looked at here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisibleRun(RunId);

impl VisibleRun {
    /// Its id.
    pub(crate) fn id(&self) -> RunId {
        self.0
    }
}

/// A session that hides nothing from whoever asks, as a [`VisibleRun`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisibleSession(SessionKey);

impl VisibleSession {
    /// Its key.
    pub(crate) fn key(&self) -> &SessionKey {
        &self.0
    }

    /// Its key.
    pub(crate) fn into_key(self) -> SessionKey {
        self.0
    }
}

impl Visibility<'_> {
    /// The run of that id. For an operator the store is not asked: a stop must work where that does not.
    ///
    /// # Errors
    /// 404, as for one that is not there; 503 where the store cannot say.
    pub(crate) async fn visible_run(&self, id: RunId) -> Result<VisibleRun, ApiError> {
        if self.own_only().is_some()
            && let Some(run) = self.app.runs.run(id).await?
            && !self.session(&run.session).await?
        {
            return Err(no_such_run(id));
        }
        Ok(VisibleRun(id))
    }

    /// The session of that key.
    ///
    /// # Errors
    /// As [`Visibility::visible_run`].
    pub(crate) async fn visible_session(&self, key: SessionKey) -> Result<VisibleSession, ApiError> {
        if self.session(&key).await? { Ok(VisibleSession(key)) } else { Err(no_such_session(&key)) }
    }

    /// The session that a parameter names, if it does.
    ///
    /// # Errors
    /// 422 with the field's name for what is no key; else as [`Visibility::visible_run`].
    pub(crate) async fn named_session(
        &self,
        field: &str,
        key: Option<&str>,
    ) -> Result<Option<VisibleSession>, ApiError> {
        let Some(key) = key else { return Ok(None) };
        let key = SessionKey::parse(key).map_err(|error| ApiError::invalid(format!("{field}: {error}")))?;
        self.visible_session(key).await.map(Some)
    }
}

/// The run that the path names.
impl FromRequestParts<Shared> for VisibleRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Caller(principal) = Caller::from_request_parts(parts, app).await?;
        let id = path_text(parts, app, "id").await?.parse();
        let id = id.map_err(|_not_a_uuid| ApiError::not_found("no such run: its id is not a UUID"))?;
        app.visibility(&principal).visible_run(id).await
    }
}

/// The session that the path names.
impl FromRequestParts<Shared> for VisibleSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Caller(principal) = Caller::from_request_parts(parts, app).await?;
        let key = SessionKey::parse(&path_text(parts, app, "key").await?).map_err(ApiError::invalid)?;
        app.visibility(&principal).visible_session(key).await
    }
}
