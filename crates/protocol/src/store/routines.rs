//! Routines: the ports [`RoutineReader`], [`RoutineStore`], [`RoutineSchedule`] and [`RoutineRunStore`].
//!
//! A row that cannot be read stops no other: lists pass over it, a routine is switched off and a routine run is ended with that as the
//! reason, and the log names it.

use async_trait::async_trait;
use serde::Serialize;

use crate::ids::{JobId, RoutineId, RoutineRunId, RunId};
use crate::routine::{NewRoutine, PutRule, RoutinePut, RoutineRecord};
use crate::routine_run::{Claim, NewRoutineRun, RoutineRunEnd, RoutineRunFilter, RoutineRunRecord, Settled};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Reads routines and routine runs. Never blocks a writer.
#[async_trait]
pub trait RoutineReader: Send + Sync {
    /// The routine of that name.
    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError>;

    /// The routine whose webhook has this path. As it stands this looks through the whole list; a store with an index answers
    /// directly.
    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError>;

    /// The routines, by name.
    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError>;

    /// The routine run of that id.
    async fn routine_run(&self, id: RoutineRunId) -> Result<Option<RoutineRunRecord>, StoreError>;

    /// Routine runs, newest first.
    async fn routine_runs(&self, filter: RoutineRunFilter) -> Result<Vec<RoutineRunRecord>, StoreError>;

    /// How many routines there are that are on, and how many routine runs at work. Cheap.
    async fn numbers(&self) -> Result<RoutineNumbers, StoreError>;
}

/// Changes the definitions of routines. Every write is committed before it answers.
#[async_trait]
pub trait RoutineStore: Send + Sync {
    /// Makes a routine, switched on, or changes the one of that name. Where the spec differs its revision is raised, its times
    /// are new, and its failures are forgotten; where it does not, they stay, so that putting the same at every start forgets
    /// no time that was missed. Whether it is on stays as it is: who has switched it off switches it on. The rule is looked at in
    /// the same transaction.
    async fn put(&self, routine: NewRoutine, rule: PutRule) -> Result<RoutinePut, StoreError>;

    /// Switches the routine of this id on, with its next scheduled time and without its failures, or off, with the reason. Times that
    /// passed while it was off are not missed. `None`: there is none.
    async fn enable(
        &self,
        routine: RoutineId,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError>;

    /// Deletes the routine of that name; with an id, only where it is that one. Its routine runs stay as they are. Whether it was there.
    async fn delete(&self, name: &str, id: Option<RoutineId>) -> Result<bool, StoreError>;
}

/// The scheduled times of routines. Every write is committed before it answers.
#[async_trait]
pub trait RoutineSchedule: Send + Sync {
    /// A number that is another one after each [`Self::put`], [`Self::enable`] and [`Self::delete`], and after each end that
    /// switches a routine off, by whichever daemon: where it is the same, so is all that sets routines off.
    async fn changes(&self) -> Result<u64, StoreError>;

    /// Enabled routines whose next scheduled time has come and that are not laid aside, the longest overdue first.
    async fn due(&self, now: UnixMillis, limit: u32) -> Result<Vec<RoutineRecord>, StoreError>;

    /// When the next routine is due, those that are laid aside included.
    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError>;

    /// Lays a routine aside. The end of one of its routine runs, and whatever moves its next time, ends that. Nothing where there is no
    /// such routine, or it is not as [`Aside`] says.
    async fn defer(&self, routine: RoutineId, aside: Aside) -> Result<(), StoreError>;

    /// Records scheduled times as missed and goes on to the next one, where none of them is fired. Nothing where there is no
    /// such routine, or it is off.
    async fn miss(
        &self,
        routine: RoutineId,
        missed: Vec<UnixMillis>,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<(), StoreError>;
}

/// The life of a routine run. Every write is committed before it answers.
#[async_trait]
pub trait RoutineRunStore: Send + Sync {
    /// Claims a routine run: guardrails and cap are looked at, the row is written, and the routine's times go on, in one
    /// transaction. `global`: routine runs of all routines that may be at work.
    ///
    /// A key of this routine that was claimed before is [`Claim::Known`] whatever has become of the routine since, and so is one
    /// that [`NewRoutineRun::echo`] names. Routine runs of a deleted routine of that name are others'. A scheduled time at or
    /// before [`RoutineRecord::claimed_to`] whose row is gone is [`Claim::Off`]. In both cases the routine goes on to the next
    /// time all the same where it still waits for this one; a later time that it waits for already always stays. A routine run
    /// without a scheduled time leaves the times alone.
    async fn claim(&self, routine_run: NewRoutineRun, global: u32) -> Result<Claim, StoreError>;

    /// Notes the run, or the job, that does a routine run.
    async fn note_work(
        &self,
        routine_run: RoutineRunId,
        run: Option<RunId>,
        job: Option<JobId>,
    ) -> Result<(), StoreError>;

    /// Ends a routine run, once; counts failures, and switches its routine off where there were too many in a row. A routine that has
    /// only the name of the routine run's is not touched.
    async fn settle(&self, end: RoutineRunEnd) -> Result<Settled, StoreError>;

    /// Routine runs that have not ended, oldest first.
    async fn open_routine_runs(&self) -> Result<Vec<RoutineRunRecord>, StoreError>;
}

/// How many routines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoutineNumbers {
    /// Those that are on.
    pub enabled: u64,
    /// Routine runs at work.
    pub at_work: u64,
    /// The earliest next scheduled time; `None`: none has one.
    pub next_at: Option<UnixMillis>,
}

/// How a routine is laid aside that was read a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The time that it waited for when it was read; where it waits for another one by now, it is not laid aside.
    pub waits_for: UnixMillis,
    /// It is not due before this.
    pub until: UnixMillis,
    /// Only while so many of its routine runs are at work, or more; 0: whatever is at work.
    pub at_work: u32,
}
