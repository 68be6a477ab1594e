//! Routines: the ports [`RoutineReader`], [`RoutineStore`], [`RoutineSchedule`] and [`RoutineRunStore`].
//!
//! A damaged row affects no other row: lists omit it, a damaged routine is disabled and a damaged routine run is ended
//! with that as the reason, and the log names it.

use async_trait::async_trait;
use serde::Serialize;

use crate::ids::{BootId, JobId, RoutineId, RoutineRunId, RunId};
use crate::routine::{NewRoutine, PutRule, RoutinePut, RoutineRecord};
use crate::routine_run::{Claim, NewRoutineRun, RoutineRunEnd, RoutineRunFilter, RoutineRunRecord, Settled};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// Reads routines and routine runs. Never blocks a writer.
#[async_trait]
pub trait RoutineReader: Send + Sync {
    /// The routine with this name.
    async fn routine(&self, name: &str) -> Result<Option<RoutineRecord>, StoreError>;

    /// The routine whose webhook has this path.
    async fn routine_at(&self, path: &str) -> Result<Option<RoutineRecord>, StoreError>;

    /// The routines, by name.
    async fn routines(&self) -> Result<Vec<RoutineRecord>, StoreError>;

    /// The routine run with this id.
    async fn routine_run(&self, id: RoutineRunId) -> Result<Option<RoutineRunRecord>, StoreError>;

    /// Routine runs, newest first.
    ///
    /// # Errors
    /// [`StoreError::InvalidCursor`] if the routine run `filter.before` does not exist, or is not of
    /// `filter.routine_ids`.
    async fn routine_runs(&self, filter: RoutineRunFilter) -> Result<Vec<RoutineRunRecord>, StoreError>;

    /// The numbers of enabled routines and of running routine runs. Cheap.
    async fn numbers(&self) -> Result<RoutineNumbers, StoreError>;
}

/// Changes the specifications of routines. Every write is committed before it returns.
#[async_trait]
pub trait RoutineStore: Send + Sync {
    /// Creates a routine, enabled, or changes the one of that name. If the specification differs, the revision is
    /// raised, the times are computed anew, and the failures are reset. Otherwise all three stay, so that storing the
    /// same specification at every start loses no missed time. If nothing differs, nothing is written. An existing
    /// routine stays enabled or disabled: only [`enable`](Self::enable) changes that. The rule is checked in the same
    /// transaction.
    async fn put(&self, routine: NewRoutine, rule: PutRule) -> Result<RoutinePut, StoreError>;

    /// Enables the routine with this id, with its next scheduled time and without failures, or disables it, with the
    /// reason. Times that passed while it was disabled are not missed. `None`: there is no such routine.
    async fn enable(
        &self,
        routine: RoutineId,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError>;

    /// Revokes the grant with this number, from 1, of the routine with this id. Its times and its revision stay. `None`:
    /// there is no such routine or no such grant.
    async fn revoke_grant(
        &self,
        routine: RoutineId,
        grant: usize,
        by: &str,
        at: UnixMillis,
    ) -> Result<Option<RoutineRecord>, StoreError>;

    /// Deletes the routine with this name; with an id, only if the routine has that id. Its routine runs stay. Returns
    /// whether it existed.
    async fn delete(&self, name: &str, id: Option<RoutineId>) -> Result<bool, StoreError>;
}

/// Keeps the scheduled times of routines. Every write is committed before it returns.
#[async_trait]
pub trait RoutineSchedule: Send + Sync {
    /// A number that changes with each [`RoutineStore::put`] and [`RoutineStore::enable`] that changes a routine, each
    /// [`RoutineStore::delete`], and each end that disables a routine, by any daemon. While it is the same, all triggers are the same.
    async fn changes(&self) -> Result<u64, StoreError>;

    /// The enabled routines whose next scheduled time has come and that are not deferred, the longest overdue first.
    async fn due(&self, now: UnixMillis, limit: u32) -> Result<Vec<RoutineRecord>, StoreError>;

    /// The time at which the next routine is due, including deferred ones.
    async fn next_due(&self) -> Result<Option<UnixMillis>, StoreError>;

    /// Defers a routine. The end of one of its routine runs, or a change of its next time, ends that. Nothing happens
    /// if there is no such routine, or its state differs from [`Deferral`].
    async fn defer(&self, routine: RoutineId, aside: Deferral) -> Result<(), StoreError>;

    /// Records scheduled times as missed and moves on to the next one, if none of them is run. Nothing happens if there
    /// is no such routine, or it is disabled.
    async fn miss(
        &self,
        routine: RoutineId,
        missed: Vec<UnixMillis>,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Result<(), StoreError>;
}

/// Claims routine runs and records their work and their end. Every write is committed before it returns.
#[async_trait]
pub trait RoutineRunStore: Send + Sync {
    /// Claims a routine run: checks guardrails and limits, writes the row, and moves the routine's times on, in one
    /// transaction. `global`: the maximum number of running routine runs of all routines.
    ///
    /// A key of this routine that was claimed before is [`Claim::Known`], whatever has happened to the routine since,
    /// and so is a key in [`NewRoutineRun::echo`]. Routine runs of a deleted routine with this name do not count. A
    /// scheduled time at or before [`RoutineRecord::claimed_to`] whose row is deleted is [`Claim::Off`]. In both cases
    /// the routine moves on to the next time if it still waits for this one; a later time that it waits for already
    /// stays. A routine run without a scheduled time does not change the times.
    async fn claim(&self, routine_run: NewRoutineRun, global: u32) -> Result<Claim, StoreError>;

    /// Records the run or the job that carries out a routine run.
    async fn note_work(
        &self,
        routine_run: RoutineRunId,
        run: Option<RunId>,
        job: Option<JobId>,
    ) -> Result<(), StoreError>;

    /// Ends a routine run, once. Counts failures, and disables the routine after too many in a row. A newer routine
    /// with the same name is unchanged.
    async fn settle(&self, end: RoutineRunEnd) -> Result<Settled, StoreError>;

    /// Takes over the routine runs that have not ended and whose claimant is neither alive nor `boot`. A claimant is
    /// alive while `nodes` has its row without an end. Returns all open routine runs that belong to `boot` now, oldest
    /// first. A routine run that another transaction is changing at this moment is left to the next call.
    async fn open_routine_runs(&self, boot: BootId) -> Result<Vec<RoutineRunRecord>, StoreError>;
}

/// The numbers of routines and routine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoutineNumbers {
    /// Enabled routines.
    pub enabled: u64,
    /// Running routine runs.
    pub running: u64,
    /// The earliest next scheduled time; `None`: no routine has one.
    pub next_at: Option<UnixMillis>,
}

/// The deferral of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The scheduled time of the routine when the caller read it. A routine that waits for another time by now is not
    /// deferred.
    pub waits_for: UnixMillis,
    /// The time before which it is not due.
    pub until: UnixMillis,
    /// Defers only while at least this many of its routine runs are running; 0: always.
    pub at_work: u32,
}
