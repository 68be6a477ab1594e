//! From the wall clock to instants: the rule for daylight saving that [`crate::schedule`] states, carried out.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::cron::{CronLine, Kind};

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The first instant after `after` (whole seconds) at which the line fires in this zone.
pub(crate) fn next_after(line: &CronLine, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    match line.kind() {
        Kind::FixedTime => next_reached(line, zone, after),
        Kind::IntervalLike => next_shown(line, zone, after),
    }
}

/// Each fitting time fires at the first instant at which the clock shows it or has passed it.
///
/// A later time is never reached before an earlier one, so the first fitting time that was not reached by `after` is
/// the answer. What the clock shows at `after` has been reached. More has been where the clock was set back just
/// before: those times are passed over, at most as many as fit into the hour that is lived twice.
fn next_reached(line: &CronLine, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
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
            // Had the clock not been set forward, it would show `wall` here, which is not before the change. Of the
            // changes up to here the gap's is the last at which the offset before was still in use.
            let unchanged = before.to_timestamp(wall).ok()?;
            let mut changes = zone.preceding(unchanged.checked_add(SECOND).ok()?).map(|change| change.timestamp());
            changes.find(|at| at.checked_sub(SECOND).is_ok_and(|earlier| zone.to_offset(earlier) == before))
        }
    }
}

/// Fires at every instant at which the clock shows a fitting time.
///
/// Between two changes the clock runs evenly, so there one search of the wall clock is enough. The steps are the
/// changes up to the answer, a few hundred at most up to the last year that a line can name.
fn next_shown(line: &CronLine, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut start = after.checked_add(SECOND).ok()?;
    let mut searched = zone.to_datetime(start);
    let mut wall = line.next_from(searched)?;
    loop {
        let offset = zone.to_offset(start);
        let shown = offset.to_datetime(start);
        // From anywhere between the place last searched from and what was found there, the same would be found.
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
