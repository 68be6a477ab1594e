//! Reports the state of the heartbeat to operators: what it would do now, when it beats next, and its last beats.

use belay_protocol::{HEARTBEAT, HeartbeatReport, RoutineOrigin, RoutineRunFilter, StoreError};

use super::look::Facts;
use super::text;
use crate::routines::RoutineService;

/// Most beats in the report.
const LAST: u32 = 10;

/// Makes the report. It evaluates the same facts as a scheduled beat.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn report(service: &RoutineService) -> Result<HeartbeatReport, StoreError> {
    let (heartbeat, store) = (&service.heartbeat, &service.routines);
    let config = &heartbeat.config;
    let routine = store.routine(HEARTBEAT).await?.filter(|routine| routine.origin == RoutineOrigin::Heartbeat);
    let filter = RoutineRunFilter { routine: Some(HEARTBEAT.into()), limit: LAST, ..RoutineRunFilter::default() };
    let last = if routine.is_some() { store.routine_runs(filter).await? } else { Vec::new() };
    let facts = Facts::gather(service, routine.as_ref(), service.clock.now()).await?;
    let (would_skip, would) = match facts.reason(heartbeat, false) {
        _ if !config.enabled => (None, "Nothing: the heartbeat is disabled (heartbeat.enabled).".to_owned()),
        Ok(None) => (None, format!("Ask the model about {}.", config.file)),
        Ok(Some(reason)) => (Some(reason), format!("Skip the beat. {}", text::why(reason))),
        Err(why) => (None, format!("Fail: {why}")),
    };
    Ok(HeartbeatReport {
        enabled: config.enabled,
        when: heartbeat.when(),
        zone: config.zone.clone(),
        quiet_hours: config.quiet_hours.clone(),
        file: config.file.clone(),
        deliver_to: heartbeat.route(),
        next_at: routine.as_ref().and_then(|routine| routine.next_at),
        would_skip,
        would,
        failures: routine.map_or(0, |routine| routine.failures),
        last,
    })
}
