//! Requests about jobs: create, cancel, accept a result. Requests are idempotent: a repeated request gets the same
//! answer and creates no second job.

use std::time::Duration;

use belay_protocol::grant::GRANTS_MAX;
use belay_protocol::job::{JOB_TASK_MAX_BYTES, JOB_TITLE_MAX_CHARS};
use belay_protocol::{
    Asker, Body, ChannelId, Control, GoalMessage, Inbound, JobChange, JobChanged, JobCreated, JobId, JobOrder,
    JobRecord, JobRequest, JobState, NewJob, Outbound, Refusal, ReplyRoute, RoutineRunId, RunId, RunsIn, SessionKey,
    StopTarget, StoreError, WorkGrant,
};

use super::service::JobService;
use super::{supervisor, text};
use belay_run::metrics;
use belay_run::request::RunRequest;
use belay_run::rights;

/// When a client that has too many jobs may try again.
const TOO_MANY_RETRY: Duration = Duration::from_secs(30);

/// The client that requests a job, and where the result goes.
#[derive(Clone, Debug)]
pub struct JobRequester {
    /// The principal in whose name the job runs.
    pub asker: Asker,
    /// The channel of the request.
    pub channel: ChannelId,
    /// The session of the request.
    pub session: SessionKey,
    /// Where the result goes.
    pub reply_to: Option<ReplyRoute>,
    /// The run that requests the job, if one does.
    pub parent: Option<RunId>,
    /// The routine run whose work the job is, if any.
    pub routine_run: Option<RoutineRunId>,
}

impl JobRequester {
    /// A run, in the name of the principal for whom it works.
    pub(crate) fn of_run(request: &RunRequest) -> Self {
        let RunRequest { asker, channel, session, .. } = request;
        Self {
            asker: asker.clone(),
            channel: channel.clone(),
            session: session.clone(),
            reply_to: request.conversation(),
            parent: Some(request.run),
            routine_run: None,
        }
    }

    /// The sender of this message.
    pub(super) fn of(inbound: &Inbound) -> Self {
        let Inbound { principal, channel, session, reply_to, relayed, .. } = inbound;
        let asker = Asker::of(principal, *relayed);
        // The result does not quote the message that requested the job, since it may come much later.
        let reply_to = reply_to.clone().map(|route| ReplyRoute { reply_to: None, ..route });
        Self { asker, channel: channel.clone(), session: session.clone(), reply_to, parent: None, routine_run: None }
    }
}

/// Executes the request of a program.
///
/// # Errors
/// Why the request was not executed.
pub async fn request(service: &JobService, request: JobRequest, by: &Inbound) -> Result<JobRecord, Refusal> {
    match request {
        JobRequest::Create(order) => create(service, order, JobRequester::of(by)).await,
        JobRequest::Cancel(id) => cancel(service, id, by).await,
        JobRequest::Accept(id) => accept(service, id, by).await,
        JobRequest::Revoke(id, grant) => revoke(service, id, grant, by).await,
    }
}

/// Commits a new job. It begins as soon as a slot is free.
///
/// # Errors
/// The job is invalid or not allowed, or there are too many jobs.
pub async fn create(service: &JobService, mut order: JobOrder, client: JobRequester) -> Result<JobRecord, Refusal> {
    let config = &service.config;
    if !config.enabled {
        return Err(Refusal::Forbidden("Jobs are disabled here (jobs.enabled).".into()));
    }
    if service.draining.is_cancelled() {
        return Err(Refusal::ShuttingDown);
    }
    let task = &order.task;
    if task.trim().is_empty() || task.contains('\0') || task.len() > JOB_TASK_MAX_BYTES {
        let what = format!("task: must have text, at most {JOB_TASK_MAX_BYTES} bytes of it, without NUL characters");
        return Err(Refusal::Invalid(what));
    }
    let goal = GoalMessage::request(task);
    if let Some(goal) = &goal {
        goal.check_for_job().map_err(|why| Refusal::Invalid(format!("task: {why}")))?;
    }
    let room = if order.runs_in == RunsIn::Worker { RunsIn::Worker } else { config.runs_in };
    if room == RunsIn::Worker && !service.has_workers {
        return Err(Refusal::Invalid(text::NO_WORKERS.into()));
    }
    if room == RunsIn::Worker && order.plan {
        return Err(Refusal::Invalid(text::NO_PLAN_THERE.into()));
    }
    if room == RunsIn::Worker && goal.is_some_and(|goal| !goal.until.outputs.is_empty()) {
        return Err(Refusal::Invalid(text::NO_OUTPUTS_THERE.into()));
    }
    let grants = grants_of(std::mem::take(&mut order.allow), &client)?;
    let new = NewJob {
        grants,
        id: order.job_id.unwrap_or_default(),
        title: text::title(&order, JOB_TITLE_MAX_CHARS),
        plan: order.plan || (config.plan && room == RunsIn::Local),
        runs_in: room,
        budget: order.budget.within(config.budget()),
        task: order.task,
        creator: client.asker,
        channel: client.channel,
        asked_in: client.session,
        reply_to: client.reply_to,
        parent: client.parent,
        routine_run: client.routine_run,
        at: service.clock.now(),
    };
    let (creator, channel) = (new.creator.principal.clone(), new.channel.clone());
    match service.job_store.create(new, config.caps()).await.map_err(unstored)? {
        JobCreated::New(job) => {
            tracing::info!(job = %job.job_id, session = %job.asked_in, "a job was made");
            metrics::count_job_state(job.state);
            service.bell.ring();
            Ok(*job)
        }
        JobCreated::Known(job) if job.creator.principal == creator && job.channel == channel => Ok(*job),
        JobCreated::Known(_) => Err(Refusal::Invalid("job_id: it is the id of another job; choose a new one".into())),
        JobCreated::TooMany(what) => Err(Refusal::Busy { what, retry_after: TOO_MANY_RETRY }),
    }
}

/// Checks the grants of a new job. Only a person or a program that could answer its questions may grant.
fn grants_of(allow: Vec<WorkGrant>, client: &JobRequester) -> Result<Vec<WorkGrant>, Refusal> {
    if allow.is_empty() {
        return Ok(allow);
    }
    if client.asker.relayed || client.parent.is_some() {
        return Err(Refusal::Forbidden("allow: a relayed message cannot grant anything; send it yourself.".into()));
    }
    if allow.len() > GRANTS_MAX {
        return Err(Refusal::Invalid(format!("allow: must be at most {GRANTS_MAX} grants")));
    }
    let checked = allow.into_iter().map(|grant| grant.check().map(|()| WorkGrant { revoked: false, ..grant }));
    checked.collect::<Result<_, _>>().map_err(Refusal::Invalid)
}

/// Revokes a grant of a job. The next call asks.
///
/// # Errors
/// The client has no such job, or the job has no such grant.
pub(super) async fn revoke(service: &JobService, id: JobId, grant: usize, by: &Inbound) -> Result<JobRecord, Refusal> {
    find(service, id, by).await?;
    match service.job_store.revoke(id, grant, &by.principal.id, service.clock.now()).await.map_err(unstored)? {
        JobChanged::Now(job) => {
            tracing::info!(job = %id, grant, actor = %by.principal.id, "a grant of a job was revoked");
            Ok(*job)
        }
        JobChanged::Not(job) => {
            Err(Refusal::Unknown(format!("The job “{}” has no grant {grant}; /job {id} lists them.", job.title)))
        }
        JobChanged::Unknown => Err(no_such(id)),
    }
}

/// Cancels a job: changes its row first, then stops the run that works on it.
///
/// # Errors
/// The client has no such job, or the job is over.
pub(super) async fn cancel(service: &JobService, id: JobId, by: &Inbound) -> Result<JobRecord, Refusal> {
    let job = find(service, id, by).await?;
    let mut change = change(service, &job, JobState::Cancelled, format!("Cancelled by {}.", by.principal.id));
    if by.session != job.asked_in {
        // Notifies the person who expects the result.
        let notice = |route| Outbound::new(job.run_id, route, format!("The job “{}” was cancelled.", job.title));
        change.notice = job.reply_to.clone().filter(|route| rights::may_tell(&service.access, route)).map(notice);
    }
    let cancelled = match service.job_store.change(change).await.map_err(unstored)? {
        JobChanged::Now(job) => {
            metrics::count_job_state(job.state);
            *job
        }
        JobChanged::Not(job) if job.state == JobState::Cancelled => return Ok(*job),
        JobChanged::Not(job) => {
            let what = format!("The job “{}” is {} already.", job.title, text::words(job.state));
            return Err(Refusal::Decided(what));
        }
        JobChanged::Unknown => return Err(no_such(id)),
    };
    // The stop may come too late or be lost: the run also sees at its next step that the job is over.
    let stop = Control::Stop(StopTarget::Session(job.session.clone()));
    let told =
        Inbound { principal: by.principal.clone(), ..supervisor::message(&job, &job.creator, Body::Control(stop)) };
    service.submitter.send(told).await;
    service.bell.ring();
    // Nothing may supervise it any more; otherwise its supervisor reports the end, too.
    service.bell.work_ended();
    Ok(cancelled)
}

/// Accepts the result of a job.
///
/// # Errors
/// The client has no such job, or the job has no result.
async fn accept(service: &JobService, id: JobId, by: &Inbound) -> Result<JobRecord, Refusal> {
    let job = find(service, id, by).await?;
    if job.state == JobState::Completed {
        supervisor::submit(service, &job).await;
    }
    match service.job_store.change(change(service, &job, JobState::Accepted, String::new())).await.map_err(unstored)? {
        JobChanged::Now(job) => {
            metrics::count_job_state(job.state);
            Ok(*job)
        }
        JobChanged::Not(job) if job.state == JobState::Accepted => Ok(*job),
        JobChanged::Not(job) => {
            let what = format!("The job “{}” has no result to accept: it is {}.", job.title, text::words(job.state));
            Err(Refusal::Decided(what))
        }
        JobChanged::Unknown => Err(no_such(id)),
    }
}

fn change(service: &JobService, job: &JobRecord, to: JobState, why: String) -> JobChange {
    JobChange {
        job: job.job_id,
        to,
        attempt: None,
        detail: why,
        result: None,
        notice: None,
        told_in: None,
        at: service.clock.now(),
    }
}

/// Finds a job that the client may see; an operator may see all jobs. The error does not reveal whether another
/// person's job exists.
pub(super) async fn find(service: &JobService, id: JobId, by: &Inbound) -> Result<JobRecord, Refusal> {
    let job = service.jobs.job(id).await.map_err(unstored)?;
    job.filter(|job| is_theirs(job, by)).ok_or_else(|| no_such(id))
}

/// Returns whether the client may see a job.
pub(super) fn is_theirs(job: &JobRecord, by: &Inbound) -> bool {
    Asker::of(&by.principal, by.relayed).owns(&by.channel, &job.creator, &job.channel)
}

fn no_such(id: JobId) -> Refusal {
    Refusal::Unknown(format!("There is no job {id} of yours."))
}

pub(super) fn unstored(error: StoreError) -> Refusal {
    Refusal::Store(error.to_string())
}
