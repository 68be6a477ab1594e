//! What whoever asks is shown of work that goes on by itself: an operator all of it, everybody else what is their own. For them
//! the rest does not exist. It is the rule by which the agent lets such work be changed.

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belay_protocol::{
    Asker, FiringRecord, JobRecord, Principal, RoutineRecord, SessionKey, StoreError, firing_of, job_of,
};

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::routes::{no_such_run, no_such_session};

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

    /// Whether they are shown a firing: as its routine. One whose routine is gone has no owner any more, whoever has taken
    /// its name since.
    pub(crate) async fn firing(&self, firing: &FiringRecord) -> Result<bool, StoreError> {
        if self.own_only().is_none() {
            return Ok(true);
        }
        let routine = self.app.routines.routine(&firing.routine).await?;
        Ok(routine.is_some_and(|routine| routine.routine_id == firing.routine_id && self.routine(&routine)))
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

/// Lets a request through to what is about one run or one session, unless that belongs to work which whoever asks is not shown.
pub(crate) async fn only_shown(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let hidden = match parts.extensions.get::<Principal>().cloned() {
        Some(principal) if app.sight(&principal).own_only().is_some() => {
            let params = RawPathParams::from_request_parts(&mut parts, &app).await.ok();
            hidden(&app, &principal, parts.uri.path(), params.as_ref()).await
        }
        _ => None,
    };
    match hidden {
        Some(error) => error.into_response(),
        None => next.run(Request::from_parts(parts, body)).await,
    }
}

/// What is said instead of what the path names, where that is not shown.
async fn hidden(app: &App, principal: &Principal, path: &str, params: Option<&RawPathParams>) -> Option<ApiError> {
    let named = |wanted: &str| {
        let mut params = params?.iter();
        params.find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned())
    };
    let (session, absent) = if path.starts_with("/api/v1/sessions/") {
        let session = SessionKey::parse(&named("key")?).ok()?;
        let absent = no_such_session(&session);
        (session, absent)
    } else if path.starts_with("/api/v1/runs/") {
        let run = named("id")?.parse().ok()?;
        match app.runs.run(run).await {
            Ok(record) => (record?.session, no_such_run(run)),
            Err(error) => return Some(error.into()),
        }
    } else {
        return None;
    };
    match app.sight(principal).session(&session).await {
        Ok(true) => None,
        Ok(false) => Some(absent),
        Err(error) => Some(error.into()),
    }
}
