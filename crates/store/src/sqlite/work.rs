//! The ports of jobs and routines, each a job for the writer or a question to the readers.

use async_trait::async_trait;
use belay_protocol::{
    Aside, BootId, Claim, Durability, FiringEnd, FiringFilter, FiringId, FiringRecord, JobCaps, JobChange, JobChanged,
    JobCreated, JobFilter, JobId, JobNumbers, JobRecord, JobStore, NewFiring, NewJob, NewRoutine, PutRule, RoutineId,
    RoutineNumbers, RoutinePut, RoutineRecord, RoutineStore, RunId, Settled, StoreError, UnixMillis,
};

use super::{SqliteStore, damaged, firings, jobs, routines};
use Durability::Committed;

#[async_trait]
impl JobStore for SqliteStore {
    async fn create(&self, job: NewJob, caps: JobCaps) -> Result<JobCreated, StoreError> {
        self.write(Committed, move |tx| jobs::create(tx, &job, caps)).await
    }

    async fn begin_next(&self, caps: JobCaps, at: UnixMillis) -> Result<Option<JobRecord>, StoreError> {
        self.write(Committed, move |tx| jobs::begin_next(tx, caps, at)).await
    }

    async fn begin_again(&self, job: JobId, at: UnixMillis) -> Result<JobChanged, StoreError> {
        self.write(Committed, move |tx| jobs::begin_again(tx, job, at)).await
    }

    async fn note_run(&self, job: JobId, attempt: u32, run: RunId) -> Result<(), StoreError> {
        self.write(Committed, move |tx| jobs::note_run(tx, job, attempt, run)).await
    }

    async fn change(&self, change: JobChange) -> Result<JobChanged, StoreError> {
        self.write(Committed, move |tx| jobs::change(tx, &change)).await
    }

    async fn park(&self, _at: UnixMillis) -> Result<(), StoreError> {
        self.write(Committed, jobs::park).await
    }

    async fn take_up(&self, boot: BootId, _at: UnixMillis) -> Result<Vec<JobRecord>, StoreError> {
        self.write(Committed, move |tx| jobs::take_up(tx, boot)).await
    }

    async fn note_progress(&self, job: JobId) -> Result<(), StoreError> {
        self.write(Committed, move |tx| jobs::note_progress(tx, job)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.read(move |conn| jobs::job(conn, id)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError> {
        self.read(move |conn| jobs::jobs(conn, &filter)).await
    }

    async fn numbers(&self) -> Result<JobNumbers, StoreError> {
        self.read(jobs::numbers).await
    }
}

#[async_trait]
impl RoutineStore for SqliteStore {
    async fn put(&self, routine: NewRoutine, rule: PutRule) -> Result<RoutinePut, StoreError> {
        self.write(Committed, move |tx| routines::put(tx, &routine, rule)).await
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
        self.write(Committed, move |tx| routines::enable(tx, routine, on, &why, next_at, at)).await
    }

    async fn delete(&self, name: &str, id: Option<RoutineId>) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.write(Committed, move |tx| routines::delete(tx, &name, id)).await
    }

    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError> {
        let name = name.to_owned();
        let found = self.read(move |conn| routines::routine(conn, &name)).await?;
        Ok(self.pass_over(found, damaged::routine).await.pop())
    }

    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError> {
        let path = path.to_owned();
        let found = self.read(move |conn| routines::routine_at(conn, &path)).await?;
        Ok(self.pass_over(found, damaged::routine).await.pop())
    }

    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError> {
        let found = self.read(routines::routines).await?;
        Ok(self.pass_over(found, damaged::routine).await)
    }

    async fn changes(&self) -> Result<u64, StoreError> {
        self.read(routines::changes).await
    }

    async fn due(&self, now: UnixMillis, limit: u32) -> Result<Vec<RoutineRecord>, StoreError> {
        let found = self.read(move |conn| routines::due(conn, now, limit)).await?;
        Ok(self.pass_over(found, damaged::routine).await)
    }

    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError> {
        self.read(routines::next_due).await
    }

    async fn defer(&self, routine: RoutineId, aside: Aside) -> Result<(), StoreError> {
        self.write(Committed, move |tx| routines::defer(tx, routine, aside)).await
    }

    async fn claim(&self, firing: NewFiring, global: u32) -> Result<Claim, StoreError> {
        self.write(Committed, move |tx| firings::claim(tx, &firing, global)).await
    }

    async fn miss(
        &self,
        routine: RoutineId,
        missed: Vec<UnixMillis>,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        self.write(Committed, move |tx| firings::miss(tx, routine, &missed, next_at, at)).await
    }

    async fn note_work(&self, firing: FiringId, run: Option<RunId>, job: Option<JobId>) -> Result<(), StoreError> {
        self.write(Committed, move |tx| firings::note_work(tx, firing, run, job)).await
    }

    async fn settle(&self, end: FiringEnd) -> Result<Settled, StoreError> {
        self.write(Committed, move |tx| firings::settle(tx, &end)).await
    }

    async fn firing(&self, id: FiringId) -> Result<Option<FiringRecord>, StoreError> {
        self.read(move |conn| firings::firing(conn, id)).await
    }

    async fn firings(&self, filter: FiringFilter) -> Result<Vec<FiringRecord>, StoreError> {
        let found = self.read(move |conn| firings::firings(conn, &filter)).await?;
        Ok(self.pass_over(found, damaged::firing).await)
    }

    async fn open_firings(&self) -> Result<Vec<FiringRecord>, StoreError> {
        let found = self.read(firings::open_firings).await?;
        Ok(self.pass_over(found, damaged::firing).await)
    }

    async fn numbers(&self) -> Result<RoutineNumbers, StoreError> {
        self.read(routines::numbers).await
    }
}
