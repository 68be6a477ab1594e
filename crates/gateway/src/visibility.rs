//! Decides which autonomous work a principal may see: an operator all of it, everybody else only their own. Other work
//! does not exist for them. The agent uses the same rule for changes of such work.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use belay_protocol::{
    Asker, JobRecord, Principal, RoutineRecord, RoutineRunRecord, RunId, SessionKey, SessionOwner, StoreError,
};

use crate::app::{App, Shared};
use crate::checks::{no_such_run, no_such_session};
use crate::error::ApiError;
use crate::extract::{Caller, path_text};

/// Most rows of a list that are checked for visibility. 1,000: the store's page size.
const LOOKED_AT_MAX: u32 = 1000;

/// A page of a list.
pub(crate) struct Page<T, C> {
    /// Its rows.
    pub(crate) rows: Vec<T>,
    /// The cursor of the next page; absent on the last page.
    pub(crate) next: Option<C>,
}

impl<T, C> Page<T, C> {
    /// The first `limit` rows of these. The next page begins after the last one of them, if there are more.
    pub(crate) fn cut(mut rows: Vec<T>, limit: u32, cursor: impl Fn(&T) -> C) -> Self {
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = rows.last().filter(|_| more).map(cursor);
        Self { rows, next }
    }
}

/// The visibility of one principal.
pub(crate) struct Visibility<'a> {
    app: &'a App,
    asker: Asker,
}

impl App {
    /// The visibility of this principal.
    pub(crate) fn visibility(&self, principal: &Principal) -> Visibility<'_> {
        Visibility { app: self, asker: Asker::of(principal, false) }
    }
}

impl Visibility<'_> {
    /// The principal's id, unless the principal may see everything.
    pub(crate) fn own_only(&self) -> Option<&str> {
        (self.asker.authority != belay_protocol::Authority::Operator).then_some(&self.asker.principal)
    }

    /// Whether a job is visible.
    pub(crate) fn job(&self, job: &JobRecord) -> bool {
        self.asker.owns(&self.app.channel, &job.creator, &job.channel)
    }

    /// Whether a routine is visible.
    pub(crate) fn routine(&self, routine: &RoutineRecord) -> bool {
        self.asker.owns(&self.app.channel, &routine.creator, &routine.channel)
    }

    /// Whether a routine run is visible: like its routine. A run of a deleted routine has no owner, even if a new
    /// routine has the same name.
    pub(crate) async fn routine_run(&self, routine_run: &RoutineRunRecord) -> Result<bool, StoreError> {
        if self.own_only().is_none() {
            return Ok(true);
        }
        let routine = self.app.routines.routine(&routine_run.routine).await?;
        Ok(routine.is_some_and(|routine| routine.routine_id == routine_run.routine_id && self.routine(&routine)))
    }

    /// A page of the visible rows of a list. `read` returns that many rows of the list, hidden ones included. If a page
    /// is too short after filtering, the first [`LOOKED_AT_MAX`] rows are checked. A page may be shorter than `limit`,
    /// and even empty, although more rows follow: then that many rows in a row are hidden.
    pub(crate) async fn page<T, C, F>(
        &self,
        limit: u32,
        read: impl Fn(u32) -> F,
        session: impl Fn(&T) -> &SessionKey,
        cursor: impl Fn(&T) -> C,
    ) -> Result<Page<T, C>, StoreError>
    where
        F: Future<Output = Result<Vec<T>, StoreError>>,
    {
        // One row more than a page tells whether a page follows.
        let mut read_rows = limit.saturating_add(1);
        loop {
            let rows = read(read_rows).await?;
            let last = rows.last().filter(|_| rows.len() >= read_rows as usize).map(&cursor);
            let shown = self.rows(rows, &session).await?;
            if shown.len() > limit as usize {
                return Ok(Page::cut(shown, limit, cursor));
            }
            if last.is_none() || read_rows >= LOOKED_AT_MAX {
                return Ok(Page { rows: shown, next: last });
            }
            read_rows = LOOKED_AT_MAX;
        }
    }

    /// Filters the rows whose session is visible.
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

    /// Whether the events of a session are visible: every conversation, and of jobs and routine runs only the
    /// principal's own.
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

/// The id of a run that the principal may see, or of no existing run. Functions that read or change a run of a request
/// take this type, and only this module can make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisibleRun(RunId);

impl VisibleRun {
    /// The run's id.
    pub(crate) fn id(&self) -> RunId {
        self.0
    }
}

/// The key of a session that the principal may see, like [`VisibleRun`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VisibleSession(SessionKey);

impl VisibleSession {
    /// The session's key.
    pub(crate) fn key(&self) -> &SessionKey {
        &self.0
    }

    /// The session's key.
    pub(crate) fn into_key(self) -> SessionKey {
        self.0
    }
}

impl Visibility<'_> {
    /// Checks the run of that id. For an operator it does not read the store: a stop must work while the store does
    /// not.
    ///
    /// # Errors
    /// 404 as for a missing run; 503 if the store cannot answer.
    pub(crate) async fn visible_run(&self, id: RunId) -> Result<VisibleRun, ApiError> {
        if self.own_only().is_some()
            && let Some(run) = self.app.runs.run(id).await?
            && !self.session(&run.session).await?
        {
            return Err(no_such_run(id));
        }
        Ok(VisibleRun(id))
    }

    /// Checks the session of that key.
    ///
    /// # Errors
    /// As [`Visibility::visible_run`].
    pub(crate) async fn visible_session(&self, key: SessionKey) -> Result<VisibleSession, ApiError> {
        if self.session(&key).await? { Ok(VisibleSession(key)) } else { Err(no_such_session(&key)) }
    }

    /// Checks the session in a parameter, if there is one.
    ///
    /// # Errors
    /// 422 with the field's name for an invalid key; otherwise as [`Visibility::visible_run`].
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

/// The run in the path.
impl FromRequestParts<Shared> for VisibleRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Caller(principal) = Caller::from_request_parts(parts, app).await?;
        let id = path_text(parts, app, "id").await?.parse();
        let id = id.map_err(|_not_a_uuid| ApiError::not_found("no such run: its id is not a UUID"))?;
        app.visibility(&principal).visible_run(id).await
    }
}

/// The session in the path.
impl FromRequestParts<Shared> for VisibleSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let Caller(principal) = Caller::from_request_parts(parts, app).await?;
        let key = SessionKey::parse(&path_text(parts, app, "key").await?).map_err(ApiError::invalid)?;
        app.visibility(&principal).visible_session(key).await
    }
}
