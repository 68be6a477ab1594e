//! `/api/v1/jobs`: work that outlives the request that started it. The agent makes all changes; reads come from the
//! store.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belay_protocol::{
    Ack, Body, Control, IdempotencyKey, Inbound, JobBudget, JobFilter, JobId, JobOrder, JobRecord, JobRequest,
    JobState, Principal, RunsIn, SessionKey, WorkGrant,
};
use serde::{Deserialize, Serialize};

use super::progress::{JobView, seen, used};
use super::resume::{Resume, as_response};
use super::runs::id_prefix;
use super::status::Nothing;
use crate::app::{App, Shared};
use crate::checks::{check_cursor, check_key, check_limit, check_text};
use crate::dates;
use crate::error::ApiError;
use crate::extract::{Caller, JobPath, JsonBody, OptionalBody, Params};
use crate::goal::NewGoal;
use crate::sse::{self, Feed, JobFeed};
use crate::visibility::Page;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// States, separated by commas.
    #[cfg_attr(test, schemars(with = "Option<crate::words::Words<JobState>>"))]
    state: Option<String>,
    /// The session that created the job.
    session: Option<String>,
    /// Created at this date or later.
    since: Option<String>,
    /// Created before this date.
    until: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
    /// A prefix of the id.
    id: Option<String>,
}

/// The request for a new job.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJob {
    job_id: Option<JobId>,
    title: Option<String>,
    task: String,
    #[serde(default)]
    plan: bool,
    #[serde(default)]
    runs_in: RunsIn,
    #[serde(default)]
    budget: JobBudget,
    /// The calls that it may make without an approval.
    #[serde(default)]
    allow: Vec<WorkGrant>,
    goal: Option<NewGoal>,
    /// The session that creates the job. Absent: the job belongs to no session.
    session: Option<String>,
}

/// A message to a job.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct JobMessage {
    text: String,
    idempotency_key: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct JobList {
    jobs: Vec<JobView>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<JobId>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "JobReply"))]
pub(crate) struct SaidBody {
    job_id: JobId,
    reply: String,
}

/// Lists jobs, newest first, in pages.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let asked_in = params.session.as_deref().map(session).transpose()?;
    let states = params.state.as_deref().map(states).transpose()?.unwrap_or_default();
    let creator = app.visibility(&principal).own_only().map(|id| (id.to_owned(), app.channel.clone()));
    let (now, limit) = (app.clock.now(), check_limit(params.limit)?);
    let filter = JobFilter {
        id: id_prefix(params.id.as_deref())?,
        states,
        asked_in,
        creator,
        since: dates::optional("since", params.since.as_deref(), now)?,
        until: dates::optional("until", params.until.as_deref(), now)?,
        before: check_cursor(params.after.as_deref())?,
        limit: limit.saturating_add(1),
    };
    let page = Page::cut(app.jobs.jobs(filter).await?, limit, |job| job.job_id);
    let mut jobs = Vec::new();
    for job in page.rows {
        // Only jobs that hold a slot get their current activity. They are few, and the others do nothing.
        jobs.push(if job.state.holds_slot() { seen(&app, job).await? } else { used(&app, job).await? });
    }
    Ok(Json(JobList { jobs, next: page.next }).into_response())
}

fn states(words: &str) -> Result<Vec<JobState>, ApiError> {
    let state = |word: &str| {
        JobState::from_word(word.trim()).ok_or_else(|| {
            let known: Vec<_> = JobState::ALL.iter().map(|state| state.word()).collect();
            ApiError::invalid(format!("state: there is no state {word:?}; there are {}", known.join(", ")))
        })
    };
    words.split(',').map(state).collect()
}

fn session(key: &str) -> Result<SessionKey, ApiError> {
    SessionKey::parse(key).map_err(|e| ApiError::invalid(format!("session: {e}")))
}

/// Shows one job and its current activity.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JobPath(id): JobPath,
) -> Result<Response, ApiError> {
    let job = find(&app, &principal, id).await?;
    Ok(Json(seen(&app, job).await?).into_response())
}

/// Creates a job: 202, because its work is not done yet. The same `job_id` again returns the same job.
pub(crate) async fn create(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JsonBody(new): JsonBody<NewJob>,
) -> Result<Response, ApiError> {
    let NewJob { job_id, title, task, plan, runs_in, budget, allow, goal, session: asked_in } = new;
    let task = match goal {
        Some(_) if plan => return Err(ApiError::invalid("goal: a job that makes a plan has no goal")),
        Some(goal) => goal.task(&task)?,
        None => task,
    };
    check_text(&task).map_err(|e| ApiError::invalid(format!("task: {e}")))?;
    let order = JobOrder { job_id, title, task, plan, runs_in, budget, allow };
    let body = Body::Control(Control::Job(JobRequest::Create(order)));
    let mut inbound = app.without_session(principal, body);
    if let Some(key) = asked_in {
        inbound.session = session(&key)?;
    }
    let job = ask_agent(&app, inbound).await?;
    Ok((StatusCode::ACCEPTED, Json(seen(&app, job).await?)).into_response())
}

/// Cancels a job.
pub(crate) async fn cancel(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JobPath(id): JobPath,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Response, ApiError> {
    change(&app, principal, id, JobRequest::Cancel).await
}

/// Accepts the result of a job.
pub(crate) async fn accept(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JobPath(id): JobPath,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Response, ApiError> {
    change(&app, principal, id, JobRequest::Accept).await
}

/// The body of a revocation.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Revocation {
    /// The number of the grant, from 1.
    grant: usize,
}

/// Revokes a grant of a job.
pub(crate) async fn revoke(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JobPath(id): JobPath,
    JsonBody(Revocation { grant }): JsonBody<Revocation>,
) -> Result<Response, ApiError> {
    change(&app, principal, id, |id| JobRequest::Revoke(id, grant)).await
}

async fn change(
    app: &App,
    principal: Principal,
    id: JobId,
    request: impl FnOnce(JobId) -> JobRequest,
) -> Result<Response, ApiError> {
    // The agent checks too. An operator skips this check, so that a job can be cancelled while the store does not
    // answer.
    if app.visibility(&principal).own_only().is_some() {
        find(app, &principal, id).await?;
    }
    let inbound = app.without_session(principal, Body::Control(Control::Job(request(id))));
    let job = ask_agent(app, inbound).await?;
    Ok(Json(seen(app, job).await?).into_response())
}

/// Sends a job request to the agent and returns the job after it.
async fn ask_agent(app: &App, inbound: Inbound) -> Result<JobRecord, ApiError> {
    match app.ask(inbound).await? {
        Ack::Job(job) => Ok(*job),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Sends a message to an active job. It is delivered like a message of a conversation.
pub(crate) async fn message(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JobPath(id): JobPath,
    JsonBody(said): JsonBody<JobMessage>,
) -> Result<Response, ApiError> {
    check_text(&said.text).map_err(|e| ApiError::invalid(format!("text: {e}")))?;
    let key = said.idempotency_key.as_deref().map(check_key).transpose();
    let key = key.map_err(|e| ApiError::invalid(format!("idempotency_key: {e}")))?.map(|key| IdempotencyKey {
        channel: app.channel.clone(),
        account: belay_protocol::job_session(id).as_str().into(),
        message_id: key.into(),
    });
    find(&app, &principal, id).await?;
    let text = Body::Text(format!("/job {id} {}", said.text));
    match app.ask(Inbound { key, ..app.without_session(principal, text) }).await? {
        Ack::Command(reply) if reply.refused => Err(ApiError::decided(reply.reply)),
        Ack::Command(reply) => Ok(Json(SaidBody { job_id: id, reply: reply.reply }).into_response()),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Streams the facts of a job's session, up to the fact that ends the job.
pub(crate) async fn events(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JobPath(id): JobPath,
    Resume { after, permit, reset }: Resume,
) -> Result<Response, ApiError> {
    let job = find(&app, &principal, id).await?;
    let followed = JobFeed { over: job.state.is_over(), session: job.session };
    let feed = Feed::new(app.events.clone(), after.unwrap_or_default(), None, app.draining.clone(), permit);
    Ok(as_response(reset, sse::events(feed.of_job(followed))).into_response())
}

/// Reads a job, if the principal may see it.
async fn find(app: &App, principal: &Principal, id: JobId) -> Result<JobRecord, ApiError> {
    let job = app.jobs.job(id).await?.filter(|job| app.visibility(principal).job(job));
    job.ok_or_else(|| ApiError::not_found(format!("no such job: {id}")))
}
