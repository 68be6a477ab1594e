//! Handles one due routine: a decision without waiting, and an action that can run concurrently with others.

use belay_protocol::{
    Claim, Deferral, Held, NewRoutineRun, RoutineId, RoutineRecord, RoutineRunId, RoutineRunRecord, StoreError,
    UnixMillis,
};

use super::reckon::{Reckoning, cools_until, reckon};
use super::registry::Handed;
use super::service::RoutineService;
use belay_run::metrics;

/// The action on a due routine.
pub(super) enum Step {
    /// Claim a time.
    Claim(Box<NewRoutineRun>),
    /// Record times as missed.
    Miss { routine: RoutineId, times: Vec<UnixMillis>, next: Option<UnixMillis>, at: UnixMillis },
    /// Defer the routine. Its time is late anyway and waits until no guardrail blocks it.
    Defer { routine: RoutineId, aside: Deferral },
    /// Disable the routine.
    Off { routine: RoutineId, why: String, at: UnixMillis },
}

impl Step {
    /// Returns whether the step uses a slot.
    pub(super) fn is_claim(&self) -> bool {
        matches!(self, Self::Claim(_))
    }
}

/// Decides what happens to a due routine. `busy_until`: until when to defer a late time because the routine's own
/// routine runs use its concurrency; `None`: they do not.
pub(super) fn decide(
    service: &RoutineService,
    routine: &RoutineRecord,
    busy_until: Option<UnixMillis>,
    now: UnixMillis,
) -> Step {
    let (id, name) = (routine.routine_id, &routine.spec.name);
    let Reckoning { fire, missed, next, catches_up } = match reckon(routine, service.registry.config.grace(), now) {
        Ok(Some(reckoning)) => reckoning,
        // The routine no longer has a schedule.
        Ok(None) => return Step::Miss { routine: id, times: Vec::new(), next: None, at: now },
        Err(error) => {
            tracing::error!(%error, routine = name, "the schedule of a routine cannot be read; it is disabled");
            let why = format!("its schedule cannot be read: {error}");
            return Step::Off { routine: id, why, at: now };
        }
    };
    let Some(time) = fire else { return Step::Miss { routine: id, times: missed, next, at: now } };
    if catches_up && let Some(waits_for) = routine.next_at {
        // The engine may count routine runs that have ended in the store; `Deferral::at_work` lets the store check again.
        let busy = busy_until.map(|until| (until, routine.spec.guard.max_concurrent));
        if let Some((until, at_work)) = busy.or_else(|| Some((cools_until(routine, now)?, 0))) {
            return Step::Defer { routine: id, aside: Deferral { waits_for, until, at_work } };
        }
    }
    Step::Claim(Box::new(NewRoutineRun {
        id: RoutineRunId::new(),
        routine_id: id,
        routine: name.clone(),
        by: routine.spec.trigger.word(),
        key: time.0.to_string(),
        echo: None,
        scheduled_at: Some(time),
        by_hand: false,
        detail: String::new(),
        payload: None,
        content: None,
        missed,
        next_at: next,
        boot: service.boot,
        at: now,
    }))
}

/// The result of a step.
pub(super) enum Done {
    /// A routine run was claimed.
    Fired(Box<RoutineRunRecord>),
    /// All slots for routine runs are in use; the time can be claimed later.
    NoRoom,
    /// There is no new routine run.
    Settled,
}

/// Executes the action.
///
/// # Errors
/// The store does not answer. If the action was a claim, the engine asks later whether it succeeded.
///
/// # Cancel safety
/// The next start finds a routine run that was claimed.
pub(super) async fn carry_out(service: &RoutineService, step: Step) -> Result<Done, StoreError> {
    match step {
        Step::Claim(routine_run) => return claim(service, *routine_run).await,
        Step::Miss { routine, times, next, at } => {
            let missed = times.len();
            service.schedule.miss(routine, times, next, at).await?;
            metrics::scheduled_missed(missed);
        }
        Step::Defer { routine, aside } => service.schedule.defer(routine, aside).await?,
        Step::Off { routine, why, at } => drop(service.routine_store.enable(routine, false, &why, None, at).await?),
    }
    Ok(Done::Settled)
}

async fn claim(service: &RoutineService, routine_run: NewRoutineRun) -> Result<Done, StoreError> {
    let NewRoutineRun { id, scheduled_at, .. } = routine_run;
    let (name, skipped) = (routine_run.routine.clone(), routine_run.missed.len());
    let claimed = service.routine_run_store.claim(routine_run, service.registry.config.max_concurrent).await;
    match claimed.inspect_err(|_| service.registry.hand_over(Handed::Unsure(id)))? {
        Claim::Claimed(routine_run) => {
            let late_ms = scheduled_at.map_or(0, |time| service.clock.now().0.saturating_sub(time.0));
            metrics::scheduled_fired(late_ms);
            metrics::scheduled_missed(skipped);
            return Ok(Done::Fired(routine_run));
        }
        Claim::Held(Held::Global) => return Ok(Done::NoRoom),
        Claim::Held(held) => {
            metrics::scheduled_missed(skipped + 1);
            tracing::info!(routine = name, held = held.word(), "a scheduled time is held back");
        }
        Claim::Known(_) => tracing::debug!(routine = name, "this time was claimed before"),
        Claim::Off(why) => tracing::debug!(routine = name, why, "a scheduled time does not fire"),
    }
    Ok(Done::Settled)
}
