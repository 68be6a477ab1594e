//! The chat commands `/job`, `/jobs` and `/cancel`: the same requests as the API, answered in text.

use belay_protocol::{
    Ack, Body, IdPrefix, IdempotencyKey, Inbound, JobFilter, JobId, JobOrder, JobProgress, JobRecord, JobState,
    Purpose, Refusal, RunRecord, RunWatch, RunsIn, StopReason, WorkGrant,
};
use uuid::Builder;

use super::requests::{JobRequester, cancel, create, find, is_theirs, revoke, unstored};
use super::service::JobService;
use super::{supervisor, text};
use crate::grants;

/// Most jobs that `/jobs` lists.
const LISTED: u32 = 20;

/// A chat command about jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobCommand {
    /// `/job TASK`: creates a job.
    Create(String),
    /// `/job --allow "GRANT" TASK`: shows the grants of a job before they are given.
    ShowGrants {
        /// The grants.
        allow: Vec<WorkGrant>,
        /// The text after `/job`.
        argument: String,
    },
    /// `/job --yes --allow "GRANT" TASK`: creates a job with grants.
    CreateAllowed {
        /// The grants.
        allow: Vec<WorkGrant>,
        /// The task.
        task: String,
    },
    /// `/job revoke ID N`: revokes the grant with the number N.
    Revoke(IdPrefix, usize),
    /// `/job ID`, or the first characters of an id: shows a job.
    Show(IdPrefix),
    /// `/job ID TEXT`: sends a message to a running job.
    Message(IdPrefix, String),
    /// `/job WORD TEXT`, where WORD could be the first characters of an id: a message if a visible job has such an id,
    /// otherwise a new task.
    MessageOrCreate {
        /// The first word, read as the first characters of an id.
        id: IdPrefix,
        /// The text after the first word.
        text: String,
        /// The whole text.
        task: String,
    },
    /// `/jobs`: lists jobs.
    List,
    /// `/cancel ID`: cancels a job.
    Cancel(IdPrefix),
}

/// The answer to a chat command.
pub struct JobReply {
    pub text: String,
    /// The message that was passed on to a job, if any.
    pub passed_on: Option<PassedOn>,
}

/// A message that was passed on to a job.
pub struct PassedOn {
    title: String,
    watch: RunWatch,
}

impl From<String> for JobReply {
    fn from(text: String) -> Self {
        Self { text, passed_on: None }
    }
}

/// Executes a chat command.
///
/// # Errors
/// Why the command was not executed.
pub async fn command(service: &JobService, command: JobCommand, by: &Inbound) -> Result<JobReply, Refusal> {
    match command {
        JobCommand::Create(task) => make(service, task, Vec::new(), by).await,
        JobCommand::CreateAllowed { allow, task } => make(service, task, allow, by).await,
        JobCommand::ShowGrants { allow, argument } => Ok(grants::shown(&allow, "/job", &argument).into()),
        JobCommand::Revoke(id, grant) => {
            let job = revoke(service, meant(service, &id, by).await?, grant, by).await?;
            Ok(format!("Revoked.{}", text::grants(&job)).into())
        }
        JobCommand::Show(id) => {
            let id = meant(service, &id, by).await?;
            let job = find(service, id, by).await?;
            let at_work = at_work(service, &job).await?;
            let result = job.result.as_ref().map(|result| format!("\n\n{result}")).unwrap_or_default();
            Ok((text::line(&job, at_work.as_ref()) + &text::grants(&job) + &result).into())
        }
        JobCommand::Message(id, said) => pass_on(service, meant(service, &id, by).await?, said, by).await,
        JobCommand::MessageOrCreate { id, text, task } => match beginning_so(service, &id, by).await? {
            Beginning::Nothing => make(service, task, Vec::new(), by).await,
            Beginning::One(job) => pass_on(service, job, text, by).await,
            Beginning::Several => Err(several(&id)),
        },
        JobCommand::List => list(service, by).await.map(JobReply::from),
        JobCommand::Cancel(id) => {
            let id = meant(service, &id, by).await?;
            let job = cancel(service, id, by).await?;
            Ok(format!("Job “{}” is cancelled.", job.title).into())
        }
    }
}

/// Creates a job. A redelivery of the same message finds the same job.
async fn make(service: &JobService, task: String, allow: Vec<WorkGrant>, by: &Inbound) -> Result<JobReply, Refusal> {
    let job_id = by.key.as_ref().map(|key| id_of(&[key.channel.as_str(), &key.account, &key.message_id]));
    let order = JobOrder { job_id, task, allow, ..JobOrder::default() };
    let job = create(service, order, JobRequester::of(by)).await?;
    Ok(text::made(&job).into())
}

/// The jobs that a person may see and whose ids begin with the same characters.
enum Beginning {
    Nothing,
    One(JobId),
    Several,
}

async fn beginning_so(service: &JobService, id: &IdPrefix, by: &Inbound) -> Result<Beginning, Refusal> {
    let filter = JobFilter { id: Some(id.clone()), ..JobFilter::default() };
    let found = service.jobs.jobs(filter).await.map_err(unstored)?;
    let mut own = found.iter().filter(|job| is_theirs(job, by)).map(|job| job.job_id);
    Ok(match (own.next(), own.next()) {
        (None, _) => Beginning::Nothing,
        (Some(job), None) => Beginning::One(job),
        (Some(_), Some(_)) => Beginning::Several,
    })
}

/// Finds a job by its id or the first characters of its id, among the jobs that the person may see.
async fn meant(service: &JobService, id: &IdPrefix, by: &Inbound) -> Result<JobId, Refusal> {
    if let Ok(whole) = id.as_str().parse() {
        return Ok(whole);
    }
    match beginning_so(service, id, by).await? {
        Beginning::One(job) => Ok(job),
        Beginning::Nothing => {
            Err(Refusal::Unknown(format!("No job of yours has an id that begins with {}.", id.as_str())))
        }
        Beginning::Several => Err(several(id)),
    }
}

fn several(id: &IdPrefix) -> Refusal {
    Refusal::Unknown(format!("Several jobs have an id that begins with {}: give more characters.", id.as_str()))
}

/// Lists the jobs that were requested in this session; an operator sees all jobs.
async fn list(service: &JobService, by: &Inbound) -> Result<String, Refusal> {
    let asked_in = (!by.principal.is_operator()).then(|| by.session.clone());
    list_by(service, JobFilter { asked_in, ..JobFilter::default() }).await
}

/// Lists the jobs of this creator.
pub(super) async fn list_own(service: &JobService, by: &Inbound) -> Result<String, Refusal> {
    let creator = Some((by.principal.id.to_string(), by.channel.clone()));
    list_by(service, JobFilter { creator, ..JobFilter::default() }).await
}

async fn list_by(service: &JobService, filter: JobFilter) -> Result<String, Refusal> {
    let jobs = service.jobs.jobs(JobFilter { limit: LISTED, ..filter }).await.map_err(unstored)?;
    if jobs.is_empty() {
        return Ok("There are no jobs. /job TASK creates one.".into());
    }
    let mut lines = Vec::with_capacity(jobs.len());
    for job in jobs {
        let at_work = at_work(service, &job).await?;
        lines.push(text::line(&job, at_work.as_ref()));
    }
    Ok(lines.join("\n"))
}

/// The newest attempt of a job that has a slot, and its progress.
async fn at_work(service: &JobService, job: &JobRecord) -> Result<Option<(RunRecord, JobProgress)>, Refusal> {
    let Some(run) = job.run_id.filter(|_| job.state.holds_slot()) else { return Ok(None) };
    let Some(record) = service.runs.run(run).await.map_err(unstored)? else { return Ok(None) };
    let progress = service.jobs.progress(run, job.runs_in).await.map_err(unstored)?;
    Ok(Some((record, progress)))
}

/// Passes a message on to a running job, whose run reads it at its next step.
async fn pass_on(service: &JobService, id: JobId, said: String, by: &Inbound) -> Result<JobReply, Refusal> {
    let job = find(service, id, by).await?;
    if job.runs_in == RunsIn::Worker {
        return Err(Refusal::Decided(text::deaf(&job.title)));
    }
    if job.state != JobState::InProgress {
        let what = format!("The job “{}” is not running: it is {}.", job.title, text::words(job.state));
        return Err(Refusal::Decided(what));
    }
    let key = by.key.as_ref().map(|key| IdempotencyKey {
        channel: Purpose::Job.channel(),
        account: id.to_string().into(),
        message_id: id_of(&[key.channel.as_str(), &key.account, &key.message_id]).to_string().into(),
    });
    let provenance = by.provenance.clone().filter(|provenance| provenance.is_untrusted());
    let message = Inbound { key, provenance, ..supervisor::message(&job, &job.creator, Body::Text(said)) };
    match service.submitter.send(message).await {
        Some(Ack::Accepted(accepted)) => {
            let title = job.title.clone();
            let passed_on = accepted.watch.map(|watch| PassedOn { title, watch });
            Ok(JobReply { text: format!("The message was passed to the job “{}”.", job.title), passed_on })
        }
        Some(Ack::Refused(refusal)) => Err(refusal),
        _ => Err(Refusal::ShuttingDown),
    }
}

impl PassedOn {
    /// Waits until the job has read the message. Returns a notice for the person when the job ended before it read the
    /// message.
    ///
    /// # Cancel safety
    /// Only this notice is lost.
    pub async fn unread(mut self) -> Option<String> {
        let read = self.watch.ended().await?.reason == Some(StopReason::Joined);
        (!read).then(|| format!("The job “{}” ended before it could read your message.", self.title))
    }
}

/// Derives a job id from the parts that identify a request, so that a repeated request finds the same job.
pub(super) fn id_of(parts: &[&str]) -> JobId {
    let mut hash = blake3::Hasher::new();
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    hash.finalize_xof().fill(&mut bytes);
    Builder::from_custom_bytes(bytes).into_uuid().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_twice_has_one_id() {
        assert_eq!(id_of(&["a", "b"]), id_of(&["a", "b"]));
        assert_ne!(id_of(&["a", "b"]), id_of(&["ab", ""]));
    }
}
