//! Stores the routines of the configuration at each start, and disables stored ones that the configuration no longer
//! has.

use std::collections::BTreeMap;

use belay_protocol::{RoutineOrigin, RoutineRecord, RoutineSpec, StoreError};

use super::engine::show;
use super::service::RoutineService;
use super::stored::{Stored, store};

/// Stores the routines of the configuration, and disables stored ones that it no longer has. A repetition writes
/// nothing, on this node or on another one with the same settings.
///
/// # Errors
/// The store does not answer.
pub(super) async fn define(service: &RoutineService, defined: &[RoutineSpec]) -> Result<(), StoreError> {
    let now = service.clock.now();
    let all = service.routines.routines().await?;
    let by_name: BTreeMap<&str, &RoutineRecord> = all.iter().map(|old| (old.spec.name.as_str(), old)).collect();
    for spec in defined {
        let old = by_name.get(spec.name.as_str()).copied().cloned();
        if old.as_ref().is_some_and(|old| old.origin == RoutineOrigin::Made) {
            tracing::warn!(
                routine = spec.name,
                "somebody created a routine of this name; the configuration's routine has the name now"
            );
        }
        let Stored { routine, before, next_at } = store(service, spec, RoutineOrigin::Config, old).await?;
        match routine {
            Ok(routine) if before.as_ref().is_some_and(was_gone) => {
                service.routine_store.enable(routine.routine_id, true, "", next_at, now).await?;
            }
            Ok(_) => {}
            Err(why) => tracing::error!(routine = spec.name, why, "a routine of the configuration is skipped"),
        }
    }
    for routine in &all {
        let name = &routine.spec.name;
        if routine.origin == RoutineOrigin::Config && routine.enabled && !defined.iter().any(|spec| spec.name == *name)
        {
            tracing::info!(routine = name, "the configuration has no such routine any more; it is disabled");
            service.routine_store.enable(routine.routine_id, false, GONE, None, now).await?;
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

/// Returns whether a routine of the configuration was disabled only because the configuration no longer had it.
fn was_gone(routine: &RoutineRecord) -> bool {
    routine.origin == RoutineOrigin::Config && !routine.enabled && routine.disabled_detail == GONE
}
