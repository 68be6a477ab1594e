//! The grants of a routine, for its runs and for the jobs that it makes.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{RoutineReader, RoutineRunId, RunEnd, StoreError, WorkGrant};

use belay_run::core::WorkItem;
use belay_run::grants::WorkGrants;

/// The grants of the routine of this routine run. A routine of the same name that was made later has none for it.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn of_routine_run(
    routines: &dyn RoutineReader,
    id: RoutineRunId,
) -> Result<Vec<WorkGrant>, StoreError> {
    let Some(run) = routines.routine_run(id).await? else { return Ok(Vec::new()) };
    let routine = routines.routine(&run.routine).await?.filter(|routine| routine.routine_id == run.routine_id);
    let grants = routine.map(|routine| routine.spec.allow).unwrap_or_default();
    Ok(grants.into_iter().filter(|grant| !grant.revoked).collect())
}

/// A lightweight routine run, as the work that its run belongs to.
pub struct RoutineWork {
    /// Reads the routine.
    pub routines: Arc<dyn RoutineReader>,
    /// The routine run.
    pub id: RoutineRunId,
}

impl std::fmt::Debug for RoutineWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoutineWork").field("id", &self.id).finish_non_exhaustive()
    }
}

#[async_trait]
impl WorkGrants for RoutineWork {
    async fn grants(&self) -> Result<Vec<WorkGrant>, StoreError> {
        of_routine_run(&*self.routines, self.id).await
    }
}

#[async_trait]
impl WorkItem for RoutineWork {
    /// A routine run ends with its run.
    async fn ended(&self) -> Option<RunEnd> {
        None
    }

    async fn made_progress(&self, _number: u32) {}
}
