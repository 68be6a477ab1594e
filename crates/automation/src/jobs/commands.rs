//! `/job`, `/jobs` and `/cancel`: the same requests, asked in a conversation and answered in words.

use belay_protocol::{
    Ack, Body, IdPrefix, IdempotencyKey, Inbound, JobFilter, JobId, JobOrder, JobProgress, JobRecord, JobState,
    Purpose, Refusal, RunRecord, RunWatch, RunsIn, StopReason,
};
use uuid::Builder;

use super::requests::{JobRequester, cancel, create, find, is_theirs, unstored};
use super::service::JobService;
use super::{supervisor, text};

/// Jobs in a list.
const LISTED: u32 = 20;

/// What a person says about jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobCommand {
    /// `/job TASK`: make one.
    Create(String),
    /// `/job ID`, or the beginning of an id: show it.
    Show(IdPrefix),
    /// `/job ID TEXT`: say something to one at work.
    Message(IdPrefix, String),
    /// `/job BEGINNING TEXT`: the same where a job of theirs has an id that begins so; otherwise a task.
    MessageOrCreate {
        /// The first word, read as the beginning of an id.
        id: IdPrefix,
        /// What follows it.
        text: String,
        /// All of it.
        task: String,
    },
    /// `/jobs`: list them.
    List,
    /// `/cancel ID`: take one back.
    Cancel(IdPrefix),
}

/// The answer to a person.
pub struct JobReply {
    pub text: String,
    /// The message that was passed on, if one was, and to which job.
    pub passed_on: Option<PassedOn>,
}

/// A message on its way into a job.
pub struct PassedOn {
    title: String,
    watch: RunWatch,
}

impl From<String> for JobReply {
    fn from(text: String) -> Self {
        Self { text, passed_on: None }
    }
}

/// Carries a command out.
///
/// # Errors
/// Why it is not done.
pub async fn command(service: &JobService, command: JobCommand, by: &Inbound) -> Result<JobReply, Refusal> {
    match command {
        JobCommand::Create(task) => make(service, task, by).await,
        JobCommand::Show(id) => {
            let id = meant(service, &id, by).await?;
            let job = find(service, id, by).await?;
            let at_work = at_work(service, &job).await?;
            let result = job.result.as_ref().map(|result| format!("\n\n{result}")).unwrap_or_default();
            Ok((text::line(&job, at_work.as_ref()) + &result).into())
        }
        JobCommand::Message(id, said) => pass_on(service, meant(service, &id, by).await?, said, by).await,
        JobCommand::MessageOrCreate { id, text, task } => match beginning_so(service, &id, by).await? {
            Beginning::Nothing => make(service, task, by).await,
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

/// Makes a job of a task; the same message again makes no second one.
async fn make(service: &JobService, task: String, by: &Inbound) -> Result<JobReply, Refusal> {
    let job_id = by.key.as_ref().map(|key| id_of(&[key.channel.as_str(), &key.account, &key.message_id]));
    let order = JobOrder { job_id, task, ..JobOrder::default() };
    let job = create(service, order, JobRequester::of(by)).await?;
    Ok(text::made(&job).into())
}

/// Jobs that a person may see and whose ids begin alike.
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

/// The job that is meant, by its id or the beginning of it, among those that the person may see.
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

/// Jobs that were asked for here; an operator sees all.
async fn list(service: &JobService, by: &Inbound) -> Result<String, Refusal> {
    let asked_in = (!by.principal.is_operator()).then(|| by.session.clone());
    let filter = JobFilter { asked_in, limit: LISTED, ..JobFilter::default() };
    let jobs = service.jobs.jobs(filter).await.map_err(unstored)?;
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

/// The newest attempt at a job that has a place, and what that does.
async fn at_work(service: &JobService, job: &JobRecord) -> Result<Option<(RunRecord, JobProgress)>, Refusal> {
    let Some(run) = job.run_id.filter(|_| job.state.takes_place()) else { return Ok(None) };
    let Some(record) = service.runs.run(run).await.map_err(unstored)? else { return Ok(None) };
    let progress = service.jobs.progress(run, job.runs_in).await.map_err(unstored)?;
    Ok(Some((record, progress)))
}

/// Passes a message on to a job at work, which reads it with its next step.
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
    match service.submitter.send(Inbound { key, ..supervisor::message(&job, &job.creator, Body::Text(said)) }).await {
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
    /// Waits until the job has read the message; what the person is told where it never does.
    ///
    /// # Cancel safety
    /// Nothing is lost but that word.
    pub async fn unread(mut self) -> Option<String> {
        let read = self.watch.ended().await?.reason == Some(StopReason::Joined);
        (!read).then(|| format!("The job “{}” ended before it could read your message.", self.title))
    }
}

/// An id made of what makes a request recognisable, so that whoever asks twice makes one job.
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
