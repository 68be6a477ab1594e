//! What is to be done about a routine whose time has come. Pure.

use std::time::Duration;

use belay_protocol::{Misfire, RoutineRecord, Trigger, UnixMillis};

use super::check::schedule_of;
use belay_schedule::ScheduleError;
use belay_schedule::misfire::{due, newest};

/// Most missed times that are recorded one by one; of more, the newest are.
const MISSED_MAX: u32 = 32;

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reckoning {
    /// The time to fire; the next one is reckoned after it is claimed.
    pub(super) fire: Option<UnixMillis>,
    /// Times to record as missed, oldest first; all of them before the one that fires.
    pub(super) missed: Vec<UnixMillis>,
    /// When the routine is due next, after that; perhaps in the past, where several times are to fire.
    pub(super) next: Option<UnixMillis>,
    /// Whether it fires a time that is late: it can wait until it would not be held back.
    pub(super) catches_up: bool,
}

/// Reckons what a routine wants done at `now`; `None`: it has no schedule.
///
/// # Errors
/// The schedule cannot be read any more.
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
    let missed = match (due.passed_over, fire) {
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

/// Until when a routine that was set off lately would be held back; by hand it may always be fired, and that holds nothing back.
/// `None`: it would not, nor where the clock was set back behind that.
pub(super) fn cools_until(routine: &RoutineRecord, now: UnixMillis) -> Option<UnixMillis> {
    let fired = routine.set_off_at.filter(|fired| *fired <= now)?;
    let cooldown_ms = i64::try_from(routine.spec.guard.cooldown_s.saturating_mul(1000)).unwrap_or(i64::MAX);
    Some(UnixMillis(fired.0.saturating_add(cooldown_ms))).filter(|until| now < *until)
}
