//! Jobs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use belay_protocol::{
    Asker, BootId, ChannelId, EventKind, JobCaps, JobChange, JobChanged, JobCreated, JobFilter, JobId, JobNumbers,
    JobRecord, JobState, Message, NewEvent, NewJob, RunId, SessionKey, SessionLifetime, SessionNotice, StoreError,
    UnixMillis,
};

use super::state::State;
use crate::jobs::{Step, begun, changed, jobs_limit, no_job, pending, step, too_many, too_many_each};

#[derive(Clone, Debug, Default)]
pub(super) struct Jobs {
    /// In the order of commit.
    rows: BTreeMap<u64, Job>,
    places: HashMap<JobId, u64>,
    /// The number of the newest.
    newest: u64,
    /// Who has taken up jobs last.
    taken_up_by: Option<BootId>,
}

#[derive(Clone, Debug)]
struct Job {
    record: JobRecord,
    /// Laid aside by an orderly end of the daemon.
    parked: bool,
}

impl Jobs {
    fn row_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let place = self.places.get(&id)?;
        self.rows.get_mut(place)
    }

    fn records(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.rows.values().map(|job| &job.record)
    }

    pub(super) fn job(&self, id: JobId) -> Option<JobRecord> {
        self.rows.get(self.places.get(&id)?).map(|job| job.record.clone())
    }

    /// Whether a job that a session asked for is not over.
    pub(super) fn works_for(&self, session: &SessionKey) -> bool {
        self.records().any(|job| job.asked_in == *session && job.ended_at.is_none())
    }

    pub(super) fn jobs(&self, filter: &JobFilter) -> Vec<JobRecord> {
        let wanted = self.records().rev().filter(|job| {
            filter.id.as_ref().is_none_or(|id| id.begins(job.job_id.as_uuid()))
                && (filter.states.is_empty() || filter.states.contains(&job.state))
                && filter.asked_in.as_ref().is_none_or(|session| job.asked_in == *session)
                && filter
                    .creator
                    .as_ref()
                    .is_none_or(|(principal, channel)| job.creator.principal == *principal && job.channel == *channel)
        });
        wanted.take(jobs_limit(filter) as usize).cloned().collect()
    }

    pub(super) fn numbers(&self) -> JobNumbers {
        let mut numbers = JobNumbers::default();
        for job in self.records() {
            match job.state {
                JobState::Pending => {
                    numbers.pending += 1;
                    numbers.oldest_pending_at.get_or_insert(job.created_at);
                }
                JobState::InProgress => numbers.in_progress += 1,
                JobState::Stuck => numbers.stuck += 1,
                JobState::Completed
                | JobState::Submitted
                | JobState::Accepted
                | JobState::Failed
                | JobState::Cancelled => {}
            }
        }
        numbers
    }

    pub(super) fn note_run(&mut self, id: JobId, attempt: u32, run: RunId) -> Result<(), StoreError> {
        let record = &mut self.row_mut(id).ok_or_else(|| no_job(id))?.record;
        if record.attempt == attempt {
            record.run_id = Some(run);
        }
        Ok(())
    }

    pub(super) fn note_progress(&mut self, id: JobId) -> Result<(), StoreError> {
        self.row_mut(id).ok_or_else(|| no_job(id))?.record.crashes = 0;
        Ok(())
    }

    pub(super) fn park(&mut self) {
        self.rows.values_mut().filter(|job| job.record.state.takes_place()).for_each(|job| job.parked = true);
    }

    pub(super) fn take_up(&mut self, boot: BootId) -> Vec<JobRecord> {
        let first = self.taken_up_by.replace(boot) != Some(boot);
        let with_place = self.rows.values_mut().filter(|job| job.record.state.takes_place());
        with_place
            .map(|job| {
                if first && !std::mem::take(&mut job.parked) {
                    job.record.crashes = job.record.crashes.saturating_add(1);
                }
                job.record.clone()
            })
            .collect()
    }

    /// Jobs that were over before the date.
    pub(super) fn over_before(&self, date: UnixMillis, keys_before: UnixMillis) -> Vec<JobId> {
        let old = self.records().filter(|job| job.ended_at.is_some_and(|at| at < date) && job.created_at < keys_before);
        old.map(|job| job.job_id).collect()
    }

    pub(super) fn forget(&mut self, id: JobId) {
        if let Some(place) = self.places.remove(&id) {
            self.rows.remove(&place);
        }
    }
}

impl State {
    pub(super) fn create_job(&mut self, new: NewJob, caps: JobCaps) -> JobCreated {
        if let Some(known) = self.jobs.job(new.id) {
            return JobCreated::Known(Box::new(known));
        }
        let record = pending(new);
        let open = || self.jobs.records().filter(|job| !job.state.is_over());
        if open().count() >= caps.open as usize {
            return too_many(caps.open);
        }
        if open().filter(|job| creator(job) == creator(&record)).count() >= caps.open_each as usize {
            return too_many_each(caps.open_each);
        }
        self.jobs.newest += 1;
        self.jobs.places.insert(record.job_id, self.jobs.newest);
        self.jobs.rows.insert(self.jobs.newest, Job { record: record.clone(), parked: false });
        self.push_events(&[changed(&record, None)]);
        JobCreated::New(Box::new(record))
    }

    pub(super) fn begin_next_job(&mut self, caps: JobCaps, at: UnixMillis) -> Option<JobRecord> {
        let mut at_work: HashMap<Creator<'_>, u32> = HashMap::new();
        for job in self.jobs.records().filter(|job| job.state.takes_place()) {
            *at_work.entry(creator(job)).or_default() += 1;
        }
        if at_work.values().sum::<u32>() >= caps.at_work {
            return None;
        }
        let free = |job: &JobRecord| at_work.get(&creator(job)).copied().unwrap_or(0) < caps.at_work_each;
        let next = self.jobs.records().find(|job| job.state == JobState::Pending && free(job))?;
        let record = begun(next, at);
        self.keep_job(JobState::Pending, record.clone());
        Some(record)
    }

    pub(super) fn begin_job_again(&mut self, id: JobId, at: UnixMillis) -> JobChanged {
        let Some(job) = self.jobs.job(id) else { return JobChanged::Unknown };
        if job.state != JobState::Stuck {
            return JobChanged::Not(Box::new(job));
        }
        let record = begun(&job, at);
        self.keep_job(job.state, record.clone());
        JobChanged::Now(Box::new(record))
    }

    pub(super) fn change_job(&mut self, change: JobChange) -> Result<JobChanged, StoreError> {
        let Some(job) = self.jobs.job(change.job) else { return Ok(JobChanged::Unknown) };
        match step(&job, &change) {
            Step::No => Ok(JobChanged::Not(Box::new(job))),
            Step::Same => Ok(JobChanged::Now(Box::new(job))),
            Step::To(record) => {
                change.notice.into_iter().try_for_each(|notice| self.enqueue(notice))?;
                if let Some(notice) = change.told_in {
                    self.append_notice(notice, change.at);
                }
                self.keep_job(job.state, (*record).clone());
                Ok(JobChanged::Now(record))
            }
        }
    }

    /// Appends a notice to the active thread of a session, which is made where there is none.
    fn append_notice(&mut self, notice: SessionNotice, at: UnixMillis) {
        if !self.sessions.contains_key(&notice.session) {
            self.open_lane(&notice.session, SessionLifetime::Lasting, BootId::new(), at);
        }
        let Some(thread) = self.sessions.get(&notice.session).map(|session| session.thread) else { return };
        let message = Arc::new(Message::notice(&notice.text));
        let kind = EventKind::Notice { text: message.text().to_owned() };
        let thread = self.thread_mut(thread);
        thread.push(thread.turns, None, at, message);
        thread.touch(None, at);
        self.push_events(&[NewEvent { at, session: Some(notice.session), run_id: None, kind }]);
    }

    fn keep_job(&mut self, from: JobState, record: JobRecord) {
        self.push_events(&[changed(&record, Some(from))]);
        if let Some(job) = self.jobs.row_mut(record.job_id) {
            *job = Job { record, parked: false };
        }
    }
}

/// Whose cap a job counts for: whoever asked, through their channel.
type Creator<'a> = (&'a ChannelId, &'a str);

fn creator(job: &JobRecord) -> Creator<'_> {
    let Asker { principal, .. } = &job.creator;
    (&job.channel, principal)
}
