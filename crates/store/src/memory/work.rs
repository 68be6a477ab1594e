//! The ports of jobs and routines, each one operation on the state.

use async_trait::async_trait;
use belay_protocol::{
    Aside, BootId, Claim, FiringEnd, FiringFilter, FiringId, FiringRecord, JobCaps, JobChange, JobChanged, JobCreated,
    JobFilter, JobId, JobNumbers, JobRecord, JobStore, NewFiring, NewJob, NewRoutine, PutRule, RoutineId,
    RoutineNumbers, RoutinePut, RoutineRecord, RoutineStore, RunId, Settled, StoreError, UnixMillis,
};

use super::MemoryStore;

#[async_trait]
impl JobStore for MemoryStore {
    async fn create(&self, job: NewJob, caps: JobCaps) -> Result<JobCreated, StoreError> {
        Ok(self.with(|state| state.create_job(job, caps)))
    }

    async fn begin_next(&self, caps: JobCaps, at: UnixMillis) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.with(|state| state.begin_next_job(caps, at)))
    }

    async fn begin_again(&self, job: JobId, at: UnixMillis) -> Result<JobChanged, StoreError> {
        Ok(self.with(|state| state.begin_job_again(job, at)))
    }

    async fn note_run(&self, job: JobId, attempt: u32, run: RunId) -> Result<(), StoreError> {
        self.lock().jobs.note_run(job, attempt, run)
    }

    async fn change(&self, change: JobChange) -> Result<JobChanged, StoreError> {
        self.with(|state| state.change_job(change))
    }

    async fn park(&self, _at: UnixMillis) -> Result<(), StoreError> {
        self.lock().jobs.park();
        Ok(())
    }

    async fn take_up(&self, boot: BootId, _at: UnixMillis) -> Result<Vec<JobRecord>, StoreError> {
        Ok(self.lock().jobs.take_up(boot))
    }

    async fn note_progress(&self, job: JobId) -> Result<(), StoreError> {
        self.lock().jobs.note_progress(job)
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.lock().jobs.job(id))
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError> {
        Ok(self.lock().jobs.jobs(&filter))
    }

    async fn numbers(&self) -> Result<JobNumbers, StoreError> {
        Ok(self.lock().jobs.numbers())
    }
}

#[async_trait]
impl RoutineStore for MemoryStore {
    async fn put(&self, routine: NewRoutine, rule: PutRule) -> Result<RoutinePut, StoreError> {
        Ok(self.lock().routines.put(routine, rule))
    }

    async fn enable(
        &self,
        routine: RoutineId,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError> {
        Ok(self.lock().routines.enable(routine, on, why, next_at, at))
    }

    async fn delete(&self, name: &str, id: Option<RoutineId>) -> Result<bool, StoreError> {
        Ok(self.lock().routines.delete(name, id))
    }

    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError> {
        Ok(self.lock().routines.routine(name))
    }

    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError> {
        Ok(self.lock().routines.routine_at(path))
    }

    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError> {
        Ok(self.lock().routines.routines())
    }

    async fn changes(&self) -> Result<u64, StoreError> {
        Ok(self.lock().routines.changes())
    }

    async fn due(&self, now: UnixMillis, limit: u32) -> Result<Vec<RoutineRecord>, StoreError> {
        Ok(self.lock().routines.due(now, limit))
    }

    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError> {
        Ok(self.lock().routines.next_due())
    }

    async fn defer(&self, routine: RoutineId, aside: Aside) -> Result<(), StoreError> {
        self.lock().routines.defer(routine, aside);
        Ok(())
    }

    async fn claim(&self, firing: NewFiring, global: u32) -> Result<Claim, StoreError> {
        Ok(self.with(|state| state.claim(firing, global)))
    }

    async fn miss(
        &self,
        routine: RoutineId,
        missed: Vec<UnixMillis>,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        self.with(|state| state.miss(routine, &missed, next_at, at));
        Ok(())
    }

    async fn note_work(&self, firing: FiringId, run: Option<RunId>, job: Option<JobId>) -> Result<(), StoreError> {
        self.lock().routines.note_work(firing, run, job)
    }

    async fn settle(&self, end: FiringEnd) -> Result<Settled, StoreError> {
        self.with(|state| state.settle_firing(end))
    }

    async fn firing(&self, id: FiringId) -> Result<Option<FiringRecord>, StoreError> {
        Ok(self.lock().routines.firing(id))
    }

    async fn firings(&self, filter: FiringFilter) -> Result<Vec<FiringRecord>, StoreError> {
        Ok(self.lock().routines.firings(&filter))
    }

    async fn open_firings(&self) -> Result<Vec<FiringRecord>, StoreError> {
        Ok(self.lock().routines.open_firings())
    }

    async fn numbers(&self) -> Result<RoutineNumbers, StoreError> {
        Ok(self.lock().routines.numbers())
    }
}
