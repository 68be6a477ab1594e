//! Maps times on the wall clock to instants: implements the rule for daylight saving of [`crate::schedule`].

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::cron::{CronLine, Kind};

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The first instant after `after` (whole seconds) at which the line fires in this zone.
pub(crate) fn next_after(line: &CronLine, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    match line.kind() {
        Kind::FixedTime => next_fixed_time(line, zone, after),
        Kind::IntervalLike => next_interval_like(line, zone, after),
    }
}

/// Each matching time fires at the first instant at which the clock shows it or has passed it.
///
/// A later time is never reached before an earlier one. So the result is the first matching time that was not reached
/// by `after`. The time that the clock shows at `after` has been reached. If the clock was set back just before, later
/// times have been reached too. Those are skipped, at most as many as fit into the repeated hour.
fn next_fixed_time(line: &CronLine, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut wall = zone.to_datetime(after);
    loop {
        wall = line.next_from(wall.checked_add(SECOND).ok()?)?;
        let at = reached(zone, wall)?;
        if at > after {
            return Some(at);
        }
    }
}

/// The first instant at which the clock of this zone shows `wall`, or has jumped over it.
pub(crate) fn reached(zone: &TimeZone, wall: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(wall).ok()
        }
        AmbiguousOffset::Gap { before, .. } => {
            // If the clock had not been set forward, it would show `wall` at this instant, which is not before the
            // change. The change of this gap is the last one up to this instant before which the old offset was in use.
            let unchanged = before.to_timestamp(wall).ok()?;
            let mut changes = zone.preceding(unchanged.checked_add(SECOND).ok()?).map(|change| change.timestamp());
            changes.find(|at| at.checked_sub(SECOND).is_ok_and(|earlier| zone.to_offset(earlier) == before))
        }
    }
}

/// Fires at every instant at which the clock shows a matching time.
///
/// Between two changes the clock runs evenly, so one search of the wall clock is enough there. The number of steps is
/// the number of changes up to the result: a few hundred at most, up to the last year of a line.
fn next_interval_like(line: &CronLine, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut start = after.checked_add(SECOND).ok()?;
    let mut searched = zone.to_datetime(start);
    let mut wall = line.next_from(searched)?;
    loop {
        let offset = zone.to_offset(start);
        let shown = offset.to_datetime(start);
        // Every start between the last starting point and its result would give the same result.
        if !(searched..=wall).contains(&shown) {
            searched = shown;
            wall = line.next_from(shown)?;
        }
        let at = offset.to_timestamp(wall).ok()?;
        match zone.following(start).next() {
            Some(change) if change.timestamp() <= at => start = change.timestamp(),
            _ => return Some(at),
        }
    }
}
