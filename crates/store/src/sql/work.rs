//! The ports of jobs and routines. Each method is a job for the writer or a query for the readers.

use async_trait::async_trait;
use belay_protocol::cluster::Topic;
use belay_protocol::{
    BootId, Claim, Deferral, Durability, EventQuery, HeldJobs, JobAttempts, JobCaps, JobChange, JobChanged, JobCreated,
    JobFilter, JobId, JobNumbers, JobProgress, JobReader, JobRecord, JobStore, NewJob, NewRoutine, NewRoutineRun,
    PutRule, RoutineId, RoutineNumbers, RoutinePut, RoutineReader, RoutineRecord, RoutineRunEnd, RoutineRunFilter,
    RoutineRunId, RoutineRunRecord, RoutineRunStore, RoutineSchedule, RoutineStore, RunId, RunsIn, Seq, Settled,
    StoreError, UnixMillis,
};

use super::{SqlStore, damaged, jobs, reads, routine_runs, routines};
use Durability::Committed;
use belay_protocol::store::PROGRESS_EVENTS_MAX;

/// Events that one query of the progress of a job reads.
const PROGRESS_PAGE: u32 = 256;

#[async_trait]
impl JobReader for SqlStore {
    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.read(move |conn| jobs::job(conn, id)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError> {
        self.read(move |conn| jobs::jobs(conn, &filter)).await
    }

    async fn progress(&self, run: RunId, runs_in: RunsIn) -> Result<JobProgress, StoreError> {
        let (mut progress, mut after, mut left) =
            (JobProgress::running_in(runs_in), Seq::default(), PROGRESS_EVENTS_MAX);
        // In pages, so that other reads do not wait for the events of a long job.
        while left > 0 {
            let query = EventQuery { after, run: Some(run), session: None, limit: left.min(PROGRESS_PAGE) };
            let page = self.read(move |conn| reads::events(conn, &query)).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            left = left.saturating_sub(page.len() as u32);
            page.into_iter().for_each(|event| progress.take(event.at, event.kind));
        }
        Ok(progress)
    }

    async fn numbers(&self) -> Result<JobNumbers, StoreError> {
        self.read(jobs::numbers).await
    }
}

#[async_trait]
impl JobStore for SqlStore {
    async fn create(&self, job: NewJob, caps: JobCaps) -> Result<JobCreated, StoreError> {
        self.write(Committed, move |tx| jobs::create(tx, &job, caps)).await.inspect(|_| self.hint(Topic::Jobs))
    }

    async fn change(&self, change: JobChange) -> Result<JobChanged, StoreError> {
        self.write(Committed, move |tx| jobs::change(tx, &change)).await.inspect(|_| self.hint(Topic::Jobs))
    }

    async fn revoke(&self, job: JobId, grant: usize, by: &str, at: UnixMillis) -> Result<JobChanged, StoreError> {
        let by = by.to_owned();
        self.write(Committed, move |tx| jobs::revoke(tx, job, grant, &by, at)).await.inspect(|_| self.hint(Topic::Jobs))
    }
}

#[async_trait]
impl JobAttempts for SqlStore {
    async fn begin_next(
        &self,
        caps: JobCaps,
        held: HeldJobs,
        boot: BootId,
        at: UnixMillis,
    ) -> Result<Option<JobRecord>, StoreError> {
        self.write(Committed, move |tx| jobs::begin_next(tx, caps, &held, boot, at)).await
    }

    async fn begin_again(&self, job: JobId, boot: BootId, at: UnixMillis) -> Result<JobChanged, StoreError> {
        self.write(Committed, move |tx| jobs::begin_again(tx, job, boot, at)).await
    }

    async fn note_run(&self, job: JobId, attempt: u32, run: RunId) -> Result<(), StoreError> {
        self.write(Committed, move |tx| jobs::note_run(tx, job, attempt, run)).await
    }

    async fn note_progress(&self, job: JobId) -> Result<(), StoreError> {
        self.write(Committed, move |tx| jobs::note_progress(tx, job)).await
    }

    async fn suspend(&self, boot: BootId) -> Result<(), StoreError> {
        self.write(Committed, move |tx| jobs::suspend(tx, boot)).await
    }

    /// Nodes of a cluster call it each second. So it writes only if there is a job to take over.
    async fn reclaim(&self, boot: BootId) -> Result<Vec<JobRecord>, StoreError> {
        if self.read(move |conn| jobs::has_takeable(conn, boot)).await? {
            return self.write(Committed, move |tx| jobs::reclaim(tx, boot)).await;
        }
        self.read(move |conn| jobs::owned(conn, boot)).await
    }
}

#[async_trait]
impl RoutineReader for SqlStore {
    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError> {
        let name = name.to_owned();
        let found = self.read(move |conn| routines::routine(conn, &name)).await?;
        Ok(self.valid_rows(found, damaged::routine).await.pop())
    }

    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError> {
        let path = path.to_owned();
        let found = self.read(move |conn| routines::routine_at(conn, &path)).await?;
        Ok(self.valid_rows(found, damaged::routine).await.pop())
    }

    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError> {
        let found = self.read(routines::routines).await?;
        Ok(self.valid_rows(found, damaged::routine).await)
    }

    async fn routine_run(&self, id: RoutineRunId) -> Result<Option<RoutineRunRecord>, StoreError> {
        self.read(move |conn| routine_runs::routine_run(conn, id)).await
    }

    async fn routine_runs(&self, filter: RoutineRunFilter) -> Result<Vec<RoutineRunRecord>, StoreError> {
        let found = self.read(move |conn| routine_runs::routine_runs(conn, &filter)).await?;
        Ok(self.valid_rows(found, damaged::routine_run).await)
    }

    async fn numbers(&self) -> Result<RoutineNumbers, StoreError> {
        self.read(routines::numbers).await
    }
}

#[async_trait]
impl RoutineStore for SqlStore {
    async fn put(&self, routine: NewRoutine, rule: PutRule) -> Result<RoutinePut, StoreError> {
        self.write(Committed, move |tx| routines::put(tx, &routine, rule)).await.inspect(|_| self.hint(Topic::Routines))
    }

    async fn enable(
        &self,
        routine: RoutineId,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError> {
        let why = why.to_owned();
        self.write(Committed, move |tx| routines::enable(tx, routine, on, &why, next_at, at))
            .await
            .inspect(|_| self.hint(Topic::Routines))
    }

    async fn revoke_grant(
        &self,
        routine: RoutineId,
        grant: usize,
        by: &str,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError> {
        let by = by.to_owned();
        self.write(Committed, move |tx| routines::revoke(tx, routine, grant, &by, at))
            .await
            .inspect(|_| self.hint(Topic::Routines))
    }

    async fn delete(&self, name: &str, id: Option<RoutineId>) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.write(Committed, move |tx| routines::delete(tx, &name, id)).await.inspect(|_| self.hint(Topic::Routines))
    }
}

#[async_trait]
impl RoutineSchedule for SqlStore {
    async fn changes(&self) -> Result<u64, StoreError> {
        self.read(routines::changes).await
    }

    async fn due(&self, now: UnixMillis, limit: u32) -> Result<Vec<RoutineRecord>, StoreError> {
        let found = self.read(move |conn| routines::due(conn, now, limit)).await?;
        Ok(self.valid_rows(found, damaged::routine).await)
    }

    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError> {
        self.read(routines::next_due).await
    }

    async fn defer(&self, routine: RoutineId, aside: Deferral) -> Result<(), StoreError> {
        self.write(Committed, move |tx| routines::defer(tx, routine, aside)).await
    }

    async fn miss(
        &self,
        routine: RoutineId,
        missed: Vec<UnixMillis>,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        self.write(Committed, move |tx| routine_runs::miss(tx, routine, &missed, next_at, at)).await
    }
}

#[async_trait]
impl RoutineRunStore for SqlStore {
    async fn claim(&self, routine_run: NewRoutineRun, global: u32) -> Result<Claim, StoreError> {
        self.write(Committed, move |tx| routine_runs::claim(tx, &routine_run, global)).await
    }

    async fn note_work(
        &self,
        routine_run: RoutineRunId,
        run: Option<RunId>,
        job: Option<JobId>,
    ) -> Result<(), StoreError> {
        self.write(Committed, move |tx| routine_runs::note_work(tx, routine_run, run, job)).await
    }

    async fn settle(&self, end: RoutineRunEnd) -> Result<Settled, StoreError> {
        self.write(Committed, move |tx| routine_runs::settle(tx, &end)).await
    }

    /// Nodes of a cluster call it each second. So it writes only if there is a routine run to take over.
    async fn open_routine_runs(&self, boot: BootId) -> Result<Vec<RoutineRunRecord>, StoreError> {
        let found = if self.read(move |conn| routine_runs::has_takeable(conn, boot)).await? {
            self.write(Committed, move |tx| routine_runs::take_over(tx, boot)).await?
        } else {
            self.read(move |conn| routine_runs::owned(conn, boot)).await?
        };
        Ok(self.valid_rows(found, damaged::routine_run).await)
    }
}
