//! Jobs and routines, and tools that are switched off.

use async_trait::async_trait;
use belay_protocol::{
    Aside, BootId, Claim, FiringEnd, FiringFilter, FiringId, FiringRecord, JobCaps, JobChange, JobChanged, JobCreated,
    JobFilter, JobId, JobNumbers, JobRecord, JobStore, NewEvent, NewFiring, NewJob, NewRoutine, PutRule, RoutineId,
    RoutineNumbers, RoutinePut, RoutineRecord, RoutineStore, RunId, Settled, StoreError, ToolSwitch, ToolSwitches,
    UnixMillis,
};

use super::{Faulty, StoreOp};

#[async_trait]
impl<S: JobStore> JobStore for Faulty<S> {
    async fn create(&self, job: NewJob, caps: JobCaps) -> Result<JobCreated, StoreError> {
        self.plan.around(StoreOp::CreateJob, self.store.create(job, caps)).await
    }

    async fn begin_next(&self, caps: JobCaps, at: UnixMillis) -> Result<Option<JobRecord>, StoreError> {
        self.plan.around(StoreOp::BeginJob, self.store.begin_next(caps, at)).await
    }

    async fn begin_again(&self, job: JobId, at: UnixMillis) -> Result<JobChanged, StoreError> {
        self.plan.around(StoreOp::BeginJobAgain, self.store.begin_again(job, at)).await
    }

    async fn note_run(&self, job: JobId, attempt: u32, run: RunId) -> Result<(), StoreError> {
        self.plan.around(StoreOp::NoteJob, self.store.note_run(job, attempt, run)).await
    }

    async fn change(&self, change: JobChange) -> Result<JobChanged, StoreError> {
        self.plan.around(StoreOp::ChangeJob, self.store.change(change)).await
    }

    async fn park(&self, at: UnixMillis) -> Result<(), StoreError> {
        self.plan.around(StoreOp::NoteJob, self.store.park(at)).await
    }

    async fn take_up(&self, boot: BootId, at: UnixMillis) -> Result<Vec<JobRecord>, StoreError> {
        self.plan.around(StoreOp::TakeUpJobs, self.store.take_up(boot, at)).await
    }

    async fn note_progress(&self, job: JobId) -> Result<(), StoreError> {
        self.plan.around(StoreOp::NoteJob, self.store.note_progress(job)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.plan.around(StoreOp::ReadJobs, self.store.job(id)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError> {
        self.plan.around(StoreOp::ReadJobs, self.store.jobs(filter)).await
    }

    async fn numbers(&self) -> Result<JobNumbers, StoreError> {
        self.plan.around(StoreOp::ReadJobs, self.store.numbers()).await
    }
}

#[async_trait]
impl<S: RoutineStore> RoutineStore for Faulty<S> {
    async fn put(&self, routine: NewRoutine, rule: PutRule) -> Result<RoutinePut, StoreError> {
        self.plan.around(StoreOp::ChangeRoutine, self.store.put(routine, rule)).await
    }

    async fn enable(
        &self,
        routine: RoutineId,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError> {
        self.plan.around(StoreOp::ChangeRoutine, self.store.enable(routine, on, why, next_at, at)).await
    }

    async fn delete(&self, name: &str, id: Option<RoutineId>) -> Result<bool, StoreError> {
        self.plan.around(StoreOp::ChangeRoutine, self.store.delete(name, id)).await
    }

    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError> {
        self.plan.around(StoreOp::ReadRoutines, self.store.routine(name)).await
    }

    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError> {
        self.plan.around(StoreOp::ReadRoutines, self.store.routine_at(path)).await
    }

    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError> {
        self.plan.around(StoreOp::ReadRoutines, self.store.routines()).await
    }

    async fn changes(&self) -> Result<u64, StoreError> {
        self.plan.around(StoreOp::ReadRoutines, self.store.changes()).await
    }

    async fn due(&self, now: UnixMillis, limit: u32) -> Result<Vec<RoutineRecord>, StoreError> {
        self.plan.around(StoreOp::DueRoutines, self.store.due(now, limit)).await
    }

    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError> {
        self.plan.around(StoreOp::DueRoutines, self.store.next_due()).await
    }

    async fn defer(&self, routine: RoutineId, aside: Aside) -> Result<(), StoreError> {
        self.plan.around(StoreOp::DeferRoutine, self.store.defer(routine, aside)).await
    }

    async fn claim(&self, firing: NewFiring, global: u32) -> Result<Claim, StoreError> {
        self.plan.around(StoreOp::ClaimFiring, self.store.claim(firing, global)).await
    }

    async fn miss(
        &self,
        routine: RoutineId,
        missed: Vec<UnixMillis>,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<(), StoreError> {
        self.plan.around(StoreOp::MissFirings, self.store.miss(routine, missed, next_at, at)).await
    }

    async fn note_work(&self, firing: FiringId, run: Option<RunId>, job: Option<JobId>) -> Result<(), StoreError> {
        self.plan.around(StoreOp::NoteFiring, self.store.note_work(firing, run, job)).await
    }

    async fn settle(&self, end: FiringEnd) -> Result<Settled, StoreError> {
        self.plan.around(StoreOp::SettleFiring, self.store.settle(end)).await
    }

    async fn firing(&self, id: FiringId) -> Result<Option<FiringRecord>, StoreError> {
        self.plan.around(StoreOp::ReadFirings, self.store.firing(id)).await
    }

    async fn firings(&self, filter: FiringFilter) -> Result<Vec<FiringRecord>, StoreError> {
        self.plan.around(StoreOp::ReadFirings, self.store.firings(filter)).await
    }

    async fn open_firings(&self) -> Result<Vec<FiringRecord>, StoreError> {
        self.plan.around(StoreOp::ReadFirings, self.store.open_firings()).await
    }

    async fn numbers(&self) -> Result<RoutineNumbers, StoreError> {
        self.plan.around(StoreOp::ReadRoutines, self.store.numbers()).await
    }
}

#[async_trait]
impl<S: ToolSwitches> ToolSwitches for Faulty<S> {
    async fn switches(&self) -> Result<Vec<ToolSwitch>, StoreError> {
        self.plan.around(StoreOp::ReadSwitches, self.store.switches()).await
    }

    async fn switch(&self, switch: ToolSwitch, events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.plan.around(StoreOp::SwitchTool, self.store.switch(switch, events)).await
    }
}
