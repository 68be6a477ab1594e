//! Stores one routine of the configuration, so that several nodes with the same settings write it once.

use belay_protocol::{
    Asker, Authority, NewRoutine, Purpose, PutBy, PutRule, RoutineId, RoutineOrigin, RoutinePut, RoutineRecord,
    RoutineSpec, StoreError, UnixMillis,
};

use super::check;
use super::service::RoutineService;

/// The result of storing a routine of the configuration.
pub(super) struct Stored {
    /// The routine, or why it is skipped.
    pub(super) routine: Result<Box<RoutineRecord>, String>,
    /// The routine of this name before, if any.
    pub(super) before: Option<RoutineRecord>,
    /// The next time of the routine if it is enabled now.
    pub(super) next_at: Option<UnixMillis>,
}

/// Stores a routine of the configuration. `before`: the stored routine of this name, as a list showed it. An unchanged
/// routine is not written. If another node has stored the routine after that list, this one keeps the start of its
/// interval.
///
/// # Errors
/// The store does not answer.
pub(super) async fn store(
    service: &RoutineService,
    spec: &RoutineSpec,
    origin: RoutineOrigin,
    before: Option<RoutineRecord>,
) -> Result<Stored, StoreError> {
    let is_new = before.is_none();
    let stored = put(service, spec, origin, before).await?;
    if is_new
        && stored.routine.is_err()
        && let Some(meanwhile) = service.routines.routine(&spec.name).await?
    {
        return put(service, spec, origin, Some(meanwhile)).await;
    }
    Ok(stored)
}

async fn put(
    service: &RoutineService,
    spec: &RoutineSpec,
    origin: RoutineOrigin,
    before: Option<RoutineRecord>,
) -> Result<Stored, StoreError> {
    let now = service.clock.now();
    let own = before.as_ref().filter(|before| before.origin == origin); // no other routine's schedule
    let (spec, schedule) = match check::written_out(spec.clone(), own, now) {
        Ok(written) => written,
        Err(error) => return Ok(Stored { routine: Err(error.to_string()), before, next_at: None }),
    };
    let next_at = schedule.and_then(|schedule| schedule.next_after(now));
    let purpose = if origin == RoutineOrigin::Heartbeat { Purpose::Heartbeat } else { Purpose::Routine };
    let new = NewRoutine {
        id: RoutineId::new(),
        spec,
        creator: Asker { principal: "config".into(), authority: Authority::Operator, relayed: false },
        channel: purpose.channel(),
        made_in: "config".into(),
        reply_to: None,
        origin,
        next_at,
        at: now,
    };
    let rule = PutRule { fresh: before.is_none(), by: PutBy::Config };
    let routine = match service.routine_store.put(new, rule).await? {
        RoutinePut::Done(routine) => Ok(routine),
        RoutinePut::Refused(why) | RoutinePut::Forbidden(why) => Err(why),
    };
    Ok(Stored { routine, before, next_at })
}
