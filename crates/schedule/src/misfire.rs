//! Missed times: scheduled times that passed without a routine run, because the daemon was down, the machine slept, or
//! its clock was set.
//!
//! One number is stored for each routine: its newest **claimed** time. A time is claimed durably before anything is
//! started for it, or when it is skipped. Before the first claim, the number is the instant at which the routine was
//! created. [`due`] examines only the times after it. That makes a clock that jumps harmless:
//!
//! - **Forward**, by an hour or a day: the times in between are missed, and the policy decides.
//! - **Back**: nothing is due until the clock has passed the newest claimed time again. So nothing fires twice. An
//!   hourly routine does not fire for five hours if the clock is set back by five hours.

use std::time::Duration;

use belay_protocol::{Misfire, UnixMillis};

use crate::schedule::Schedule;

/// How late a time may fire and still count as on time, unless the caller passes another value.
///
/// 60 s: ticks come every 15 s, and a loaded machine may be late by several ticks.
pub const GRACE: Duration = Duration::from_secs(60);

/// Most on-time routine runs that one call of [`due`] returns. The rest are due at once in the next call.
///
/// 64: one for each second of the usual grace.
pub const MAX_ON_TIME: usize = 64;

/// The result of [`due`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Scheduled times to fire now, oldest first. Each is after the given claimed time.
    pub fire: Vec<UnixMillis>,
    /// The newest time that fires or is skipped. It must be claimed before anything is started. If nothing was due, it
    /// is the given claimed time.
    pub claimed: UnixMillis,
    /// Whether times were skipped.
    pub skipped: bool,
    /// The first time after `claimed`; `None` if there is none. It is in the past only if more than [`MAX_ON_TIME`]
    /// times were due at once.
    pub next: Option<UnixMillis>,
}

/// Computes what a schedule requires at `now`. All times up to `claimed` are already settled.
///
/// A time that is at most `grace` ago is on time and fires under every policy.
pub fn due(schedule: &Schedule, policy: Misfire, grace: Duration, claimed: UnixMillis, now: UnixMillis) -> Due {
    let next = schedule.next_after(claimed);
    let Some(first) = next.filter(|first| *first <= now) else {
        return Due { fire: Vec::new(), claimed, skipped: false, next };
    };
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    // A time at the very end of the grace is on time: it is after this instant.
    let missed_until = UnixMillis(now.0.saturating_sub(grace_ms).saturating_sub(1).max(claimed.0));
    let on_time = schedule.between(missed_until, now, MAX_ON_TIME);
    let mut fire = match policy {
        Misfire::Skip => Vec::new(),
        Misfire::Once if !on_time.is_empty() => Vec::new(),
        Misfire::Once => newest(schedule, claimed, missed_until, 1),
        Misfire::All(most) => newest(schedule, claimed, missed_until, most),
    };
    fire.extend(on_time);
    let settled = fire.last().copied().or_else(|| schedule.last_between(claimed, missed_until));
    let claimed = settled.unwrap_or(claimed);
    Due { skipped: fire.first() != Some(&first), fire, claimed, next: schedule.next_after(claimed) }
}

/// The newest times after `from` up to and including `until`, oldest first.
pub fn newest(schedule: &Schedule, from: UnixMillis, until: UnixMillis, most: u32) -> Vec<UnixMillis> {
    let before = |later: &UnixMillis| schedule.last_between(from, UnixMillis(later.0 - 1));
    let backwards = std::iter::successors(schedule.last_between(from, until), before);
    let mut times: Vec<UnixMillis> = backwards.take(most as usize).collect();
    times.reverse();
    times
}
