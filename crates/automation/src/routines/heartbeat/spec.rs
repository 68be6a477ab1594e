//! The heartbeat's routine, stored from the configuration at every start.

use belay_protocol::{
    Guardrails, HEARTBEAT, Misfire, Notify, RoutineAction, RoutineOrigin, RoutineRecord, RoutineSpec, RunOptions,
    StoreError, Trigger,
};

use super::config::Heartbeat;
use super::text;
use crate::routines::RoutineService;
use crate::routines::stored::{Stored, store};

/// Why the routine is disabled.
const OFF: &str = "heartbeat.enabled is false";

/// Rounds of tool calls that the heartbeat requests; `routines.lightweight_max_iterations` also limits them.
const TOOL_ROUNDS: u32 = 20;

/// The routine for these settings.
pub(super) fn spec_of(heartbeat: &Heartbeat) -> RoutineSpec {
    let config = &heartbeat.config;
    RoutineSpec {
        name: HEARTBEAT.to_owned(),
        description: "looks at what the operator wants watched".to_owned(),
        // A missed beat is not caught up: the next one sees what there is to see.
        trigger: Trigger::Schedule { when: heartbeat.when(), zone: config.zone.clone(), misfire: Misfire::Skip },
        action: RoutineAction::Lightweight {
            prompt: text::task(&config.file),
            files: vec![config.file.clone()],
            use_tools: config.use_tools,
            max_tool_rounds: TOOL_ROUNDS,
        },
        // The heartbeat has limits of its own.
        guard: Guardrails { cooldown_s: 0, max_concurrent: 1, dedup_window_s: 0, max_failures: 0 },
        notify: Notify { to: heartbeat.route(), on_attention: true, on_failure: true, on_success: false },
        allow: Vec::new(),
    }
}

/// The options of its runs.
pub(crate) fn options(service: &RoutineService) -> RunOptions {
    RunOptions { model: service.heartbeat.config.model.clone(), ..RunOptions::default() }
}

/// Stores the heartbeat's routine, or disables it. A repetition changes nothing: an interval keeps its start, so that
/// frequent restarts do not delay beats, and the count of failures remains.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn set_up(service: &RoutineService) -> Result<(), StoreError> {
    let now = service.clock.now();
    let old = service.routines.routine(HEARTBEAT).await?;
    if !service.heartbeat.config.enabled {
        let is_on = |old: &RoutineRecord| old.origin == RoutineOrigin::Heartbeat && old.enabled;
        if let Some(old) = old.filter(is_on) {
            service.routine_store.enable(old.routine_id, false, OFF, None, now).await?;
        }
        return Ok(());
    }
    if old.as_ref().is_some_and(|old| old.origin == RoutineOrigin::Made) {
        // A person created the routine before the name was reserved. A setting must not delete it.
        tracing::error!(
            routine = HEARTBEAT,
            "the heartbeat does not beat: somebody has made a routine of this name, which stays as it is; make it anew under \
             another name, delete this one with `/routine delete heartbeat`, and start again"
        );
        return Ok(());
    }
    let Stored { routine, next_at, .. } =
        store(service, &spec_of(&service.heartbeat), RoutineOrigin::Heartbeat, old).await?;
    match routine {
        Ok(routine) if !routine.enabled => {
            service.routine_store.enable(routine.routine_id, true, "", next_at, now).await?;
        }
        Ok(_) => {}
        Err(why) => tracing::error!(why, "the heartbeat does not beat"),
    }
    Ok(())
}
