//! Decides what must happen to a routine at a given time. Pure.

use std::time::Duration;

use belay_protocol::{Misfire, RoutineRecord, Trigger, UnixMillis};

use super::check::schedule_of;
use belay_schedule::ScheduleError;
use belay_schedule::misfire::{due, newest};

/// Most missed times that are recorded one by one. Of more, only the newest are recorded.
const MISSED_MAX: u32 = 32;

/// What must happen now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reckoning {
    /// The scheduled time to start. After its claim, the next one is computed.
    pub(super) fire: Option<UnixMillis>,
    /// Times to record as missed, oldest first. All of them lie before `fire`.
    pub(super) missed: Vec<UnixMillis>,
    /// When the routine is due next. It may lie in the past when several times must start.
    pub(super) next: Option<UnixMillis>,
    /// Whether `fire` is late and caught up. Such a start can wait for the end of the cooldown.
    pub(super) catches_up: bool,
}

/// Decides what must happen to a routine at `now`. `None`: the routine has no schedule.
///
/// # Errors
/// The stored schedule is no longer valid.
pub(super) fn reckon(
    routine: &RoutineRecord,
    grace: Duration,
    now: UnixMillis,
) -> Result<Option<Reckoning>, ScheduleError> {
    let Trigger::Schedule { misfire, .. } = &routine.spec.trigger else { return Ok(None) };
    let Some(schedule) = schedule_of(&routine.spec)? else { return Ok(None) };
    let settled = routine.claimed_to.unwrap_or(routine.created_at);
    let due = due(&schedule, *misfire, grace, settled, now);
    let fire = due.fire.first().copied();
    let missed = match (due.skipped, fire) {
        (false, _) => Vec::new(),
        (true, Some(first)) => newest(&schedule, settled, UnixMillis(first.0 - 1), MISSED_MAX),
        (true, None) => newest(&schedule, settled, due.claimed, MISSED_MAX),
    };
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    let late = fire.is_some_and(|time| now.0.saturating_sub(time.0) > grace_ms);
    Ok(Some(Reckoning {
        fire,
        missed,
        next: due.fire.get(1).copied().or(due.next),
        catches_up: late && matches!(misfire, Misfire::All(_)),
    }))
}

/// The end of the cooldown after the last trigger. A start by hand ignores the cooldown and does not begin one.
/// `None`: no cooldown applies. The same holds when the clock was set back to a time before the last trigger.
pub(super) fn cools_until(routine: &RoutineRecord, now: UnixMillis) -> Option<UnixMillis> {
    let fired = routine.set_off_at.filter(|fired| *fired <= now)?;
    let cooldown_ms = i64::try_from(routine.spec.guard.cooldown_s.saturating_mul(1000)).unwrap_or(i64::MAX);
    Some(UnixMillis(fired.0.saturating_add(cooldown_ms))).filter(|until| now < *until)
}
