//! Stores the routines of the configuration at each start, and disables stored ones that the configuration no longer
//! has.

use std::collections::BTreeMap;

use belay_protocol::{
    Asker, Authority, NewRoutine, Purpose, PutBy, PutRule, RoutineId, RoutineOrigin, RoutinePut, RoutineRecord,
    RoutineSpec, StoreError,
};

use super::check;
use super::engine::show;
use super::service::RoutineService;

/// Stores the routines of the configuration, and disables stored ones that it no longer has. A repetition changes
/// nothing.
///
/// # Errors
/// The store does not answer.
pub(super) async fn define(service: &RoutineService, defined: &[RoutineSpec]) -> Result<(), StoreError> {
    let (store, now) = (&service.routine_store, service.clock.now());
    let all = service.routines.routines().await?;
    let by_name: BTreeMap<&str, &RoutineRecord> = all.iter().map(|old| (old.spec.name.as_str(), old)).collect();
    for spec in defined {
        let old = by_name.get(spec.name.as_str()).copied();
        if old.is_some_and(|old| old.origin == RoutineOrigin::Made) {
            tracing::warn!(
                routine = spec.name,
                "somebody created a routine of this name; the configuration's routine has the name now"
            );
        }
        let old = old.filter(|old| old.origin == RoutineOrigin::Config); // no other routine's schedule or state
        let (spec, schedule) = match check::written_out(spec.clone(), old, now) {
            Ok(written) => written,
            Err(error) => {
                tracing::error!(routine = spec.name, %error, "a routine of the configuration is skipped");
                continue;
            }
        };
        let name = spec.name.clone();
        let new = NewRoutine {
            id: RoutineId::new(),
            spec,
            creator: Asker { principal: "config".into(), authority: Authority::Operator, relayed: false },
            channel: Purpose::Routine.channel(),
            made_in: "config".into(),
            reply_to: None,
            origin: RoutineOrigin::Config,
            next_at: schedule.and_then(|schedule| schedule.next_after(now)),
            at: now,
        };
        let (next_at, back) = (new.next_at, old.is_some_and(was_gone));
        match store.put(new, PutRule { fresh: false, by: PutBy::Config }).await? {
            RoutinePut::Done(routine) if back => {
                store.enable(routine.routine_id, true, "", next_at, now).await?;
            }
            RoutinePut::Done(_) => {}
            RoutinePut::Refused(why) | RoutinePut::Forbidden(why) => {
                tracing::error!(routine = name, why, "a routine of the configuration is skipped");
            }
        }
    }
    for routine in &all {
        let name = &routine.spec.name;
        if routine.origin == RoutineOrigin::Config && routine.enabled && !defined.iter().any(|spec| spec.name == *name)
        {
            tracing::info!(routine = name, "the configuration has no such routine any more; it is disabled");
            store.enable(routine.routine_id, false, GONE, None, now).await?;
        }
    }
    Ok(())
}

/// Replaces the routines of the configuration by these, and shows them to the engine.
///
/// # Errors
/// The store does not answer.
pub async fn redefine(service: &RoutineService, defined: Vec<RoutineSpec>) -> Result<(), StoreError> {
    if *service.registry.defined() == defined {
        return Ok(());
    }
    if service.registry.config.enabled {
        define(service, &defined).await?;
    }
    service.registry.adopt(defined);
    show(service, None).await?;
    service.registry.ring();
    Ok(())
}

/// Why a routine is disabled that the configuration no longer has.
const GONE: &str = "it is not part of the configuration any more";

/// Returns whether a routine was disabled only because the configuration no longer had it.
fn was_gone(routine: &RoutineRecord) -> bool {
    !routine.enabled && routine.disabled_detail == GONE
}
