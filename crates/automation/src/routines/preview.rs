//! Shows what a routine would do, before it is stored.

use belay_protocol::{RoutineSpec, Trigger, UnixMillis};
use serde::Serialize;

use super::check;
use belay_schedule::schedule::Schedule;

/// A time at which a routine would start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Upcoming {
    /// The time.
    pub at: UnixMillis,
    /// The same in the zone, with the offset: `Mon 2026-11-30 09:00:00 +01:00`.
    pub local: String,
    /// The time zone.
    pub zone: String,
}

/// Whether a routine would start at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tested {
    /// Whether it would start.
    pub fires: bool,
    /// The instant, also in the time zone of the routine.
    pub at: Upcoming,
    /// The first time after the instant. `None`: there is none.
    pub next: Option<Upcoming>,
    /// The kind of work: `lightweight` or `full_job`.
    pub mode: String,
}

/// The next `n` times after `from` at which a routine would start. Ignores guardrails.
///
/// # Errors
/// All problems of the routine, one per line; or the fact that it has no schedule.
pub fn preview(spec: &RoutineSpec, from: UnixMillis, n: usize) -> Result<Vec<Upcoming>, String> {
    let schedule = schedule(spec, from)?;
    let times = std::iter::successors(schedule.next_after(from), |at| schedule.next_after(*at));
    Ok(times.take(n).map(|at| upcoming(&schedule, at)).collect())
}

/// Tells whether a routine would start at this instant, to the second, and when it would start next.
///
/// # Errors
/// The same as those of [`preview`].
pub fn test_at(spec: &RoutineSpec, at: UnixMillis) -> Result<Tested, String> {
    let at = UnixMillis(at.0.div_euclid(1000) * 1000);
    let schedule = schedule(spec, at)?;
    let mode = match &spec.action {
        belay_protocol::RoutineAction::Lightweight { .. } => "lightweight",
        belay_protocol::RoutineAction::FullJob { .. } => "full_job",
    };
    Ok(Tested {
        fires: schedule.next_after(UnixMillis(at.0 - 1)) == Some(at),
        at: upcoming(&schedule, at),
        next: schedule.next_after(at).map(|next| upcoming(&schedule, next)),
        mode: mode.to_owned(),
    })
}

/// Reads the schedule of a valid routine. A schedule without a start of its own counts from `now`.
fn schedule(spec: &RoutineSpec, now: UnixMillis) -> Result<Schedule, String> {
    let problems = check::problems(spec);
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    let Trigger::Schedule { when, zone, .. } = &spec.trigger else {
        return Err(format!("the routine has no schedule: it is triggered by {}", by(&spec.trigger)));
    };
    Schedule::read(when, zone, Some(now)).map_err(|error| error.to_string())
}

fn by(trigger: &Trigger) -> &'static str {
    match trigger {
        Trigger::Schedule { .. } => "its schedule",
        Trigger::Event { .. } => "a message of its owner",
        Trigger::Webhook { .. } => "its webhook",
        Trigger::System { .. } => "an event",
        Trigger::Manual => "hand alone",
    }
}

fn upcoming(schedule: &Schedule, at: UnixMillis) -> Upcoming {
    Upcoming { at, local: schedule.local(at), zone: schedule.zone().to_owned() }
}
