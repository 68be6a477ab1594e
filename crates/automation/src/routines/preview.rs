//! What a routine would do: for whoever writes one and wants to know before it is kept.

use belay_protocol::{RoutineSpec, Trigger, UnixMillis};
use serde::Serialize;

use super::check;
use belay_schedule::schedule::Schedule;

/// A time at which a routine would fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Upcoming {
    /// When.
    pub at: UnixMillis,
    /// The same as the clock of its zone shows it, with the offset: `Mon 2026-11-30 09:00:00 +01:00`.
    pub local: String,
    /// The zone.
    pub zone: String,
}

/// Whether a routine would fire at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tested {
    /// Whether it would.
    pub fires: bool,
    /// The instant, as the clock of its zone shows it.
    pub at: Upcoming,
    /// The first time after the instant; `None`: there is none any more.
    pub next: Option<Upcoming>,
    /// What it would do: `lightweight` or `full_job`.
    pub mode: String,
}

/// The next `n` times after `from` at which a routine would fire, guardrails aside.
///
/// # Errors
/// Everything that is wrong with the routine, one problem to a line; or that it has no schedule.
pub fn preview(spec: &RoutineSpec, from: UnixMillis, n: usize) -> Result<Vec<Upcoming>, String> {
    let schedule = schedule(spec, from)?;
    let times = std::iter::successors(schedule.next_after(from), |at| schedule.next_after(*at));
    Ok(times.take(n).map(|at| upcoming(&schedule, at)).collect())
}

/// Whether a routine would fire at this instant, to the second, and when after it.
///
/// # Errors
/// As [`preview`].
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

/// A schedule that counts from no instant of its own counts from `now`.
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
