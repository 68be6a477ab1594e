//! Tests every change of every zone's clock in two years, against an oracle that walks the minutes.
//!
//! The oracle shares nothing with the tested code except the zones. It has its own tables of matching times, examines
//! the clock once a minute, and records the latest time that the clock has shown so far.

use std::collections::BTreeSet;

use belay_protocol::UnixMillis;
use jiff::civil::{DateTime, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::schedule::Schedule;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// The examined time before and after a change. The greatest changes of these years are two hours.
const BEFORE: SignedDuration = SignedDuration::from_mins(150);
const AFTER: SignedDuration = SignedDuration::from_mins(200);

/// Minutes from a change from which the next time is searched too: before the change, at the change, and during the
/// second occurrence of an hour.
const QUERY_OFFSETS_MIN: [i64; 6] = [-35, 0, 5, 25, 55, 115];

/// Whether a time on the clock matches.
type Matches = fn(&DateTime) -> bool;

/// Lines with explicit minute and hour, and their matching times.
const FIXED: &[(&str, Matches)] = &[
    ("@daily", |t| t.hour() == 0 && t.minute() == 0),
    ("30 0 * * *", |t| t.hour() == 0 && t.minute() == 30),
    ("0 1 * * *", |t| t.hour() == 1 && t.minute() == 0),
    ("59 1 * * *", |t| t.hour() == 1 && t.minute() == 59),
    ("0 2 * * *", |t| t.hour() == 2 && t.minute() == 0),
    ("15 2 * * *", |t| t.hour() == 2 && t.minute() == 15),
    ("30 2 * * *", |t| t.hour() == 2 && t.minute() == 30),
    ("0 3 * * *", |t| t.hour() == 3 && t.minute() == 0),
    ("1 3 * * *", |t| t.hour() == 3 && t.minute() == 1),
    ("30 4 * * *", |t| t.hour() == 4 && t.minute() == 30),
    ("30 22 * * *", |t| t.hour() == 22 && t.minute() == 30),
    ("0 23 * * *", |t| t.hour() == 23 && t.minute() == 0),
    ("59 23 * * *", |t| t.hour() == 23 && t.minute() == 59),
    ("0 0-4 * * *", |t| t.hour() <= 4 && t.minute() == 0),
    ("10,20,50 1-3 * * *", |t| (1..=3).contains(&t.hour()) && [10, 20, 50].contains(&t.minute())),
    ("0-59 2 * * *", |t| t.hour() == 2),
    ("45 0-23 * * *", |t| t.minute() == 45),
    ("30 2 * * SUN", |t| t.hour() == 2 && t.minute() == 30 && t.weekday() == Weekday::Sunday),
    ("0 0 * * FRIL", |t| {
        t.hour() == 0 && t.minute() == 0 && t.weekday() == Weekday::Friday && t.day() + 7 > t.days_in_month()
    }),
    ("30 1,2 1-7 * SAT", |t| {
        [1, 2].contains(&t.hour()) && t.minute() == 30 && (t.day() <= 7 || t.weekday() == Weekday::Saturday)
    }),
];

/// Lines with `*` in minute or hour, and their matching times.
const INTERVAL_LIKE: &[(&str, Matches)] = &[
    ("* * * * *", |_| true),
    ("*/7 * * * *", |t| t.minute() % 7 == 0),
    ("*/15 * * * *", |t| t.minute() % 15 == 0),
    ("*/30 * * * *", |t| t.minute() % 30 == 0),
    ("@hourly", |t| t.minute() == 0),
    ("30 * * * *", |t| t.minute() == 30),
    ("0 */2 * * *", |t| t.minute() == 0 && t.hour() % 2 == 0),
    ("*/10 2 * * *", |t| t.minute() % 10 == 0 && t.hour() == 2),
    ("5,*/20 0-3 * * *", |t| (t.minute() == 5 || t.minute() % 20 == 0) && t.hour() <= 3),
    ("* 1 * * SUN", |t| t.hour() == 1 && t.weekday() == Weekday::Sunday),
    ("20 */3 L * *", |t| t.minute() == 20 && t.hour() % 3 == 0 && t.day() == t.days_in_month()),
];

/// One minute of the walk.
struct Tick {
    at: Timestamp,
    shown: DateTime,
    /// Times that the clock has reached with this tick and never before: usually one, more after a gap, none during the
    /// second occurrence of an hour.
    reached: Vec<DateTime>,
}

fn walk(zone: &TimeZone, from: Timestamp, until: Timestamp) -> Vec<Tick> {
    let mut latest = zone.to_datetime(from);
    let mut at = from;
    let mut ticks = Vec::new();
    while at < until {
        at += MINUTE;
        let shown = zone.to_datetime(at);
        let mut reached = Vec::new();
        while latest < shown {
            latest = latest.checked_add(MINUTE).unwrap();
            reached.push(latest);
        }
        ticks.push(Tick { at, shown, reached });
    }
    ticks
}

fn millis(at: Timestamp) -> UnixMillis {
    UnixMillis(at.as_millisecond())
}

fn times<'a>(ticks: &'a [Tick], fires: impl Fn(&Tick) -> bool + 'a) -> Vec<UnixMillis> {
    ticks.iter().filter(|tick| fires(tick)).map(|tick| millis(tick.at)).collect()
}

/// The changes of a zone in 2026 and 2027, and one hour without a change.
fn tested_instants(zone: &TimeZone) -> Vec<Timestamp> {
    let quiet: Timestamp = "2026-07-01T00:00:00Z".parse().unwrap();
    let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let end: Timestamp = "2028-01-01T00:00:00Z".parse().unwrap();
    let changes = zone.following(first).map(|change| change.timestamp()).take_while(|at| *at < end);
    changes.chain([quiet]).collect()
}

/// The properties of a change that schedules can see. Zones with equal clocks around it need not be walked again.
fn change_key(zone: &TimeZone, moment: Timestamp) -> (Timestamp, i32, i32) {
    (moment, zone.to_offset(moment - MINUTE).seconds(), zone.to_offset(moment).seconds())
}

#[test]
fn every_change_of_every_zone_in_two_years_is_kept_by_the_rule() {
    let database = TimeZoneDatabase::bundled();
    let made_at = millis("2025-12-31T00:00:00Z".parse().unwrap());
    let mut seen = BTreeSet::new();
    let (mut zones, mut changes) = (0, 0);
    for name in database.available() {
        let zone = database.get(name.as_str()).unwrap();
        zones += 1;
        let new: Vec<Timestamp> =
            tested_instants(&zone).into_iter().filter(|at| seen.insert(change_key(&zone, *at))).collect();
        if new.is_empty() {
            continue;
        }
        let read = |text: &str| Schedule::parse(text, name.as_str(), made_at).unwrap();
        let fixed: Vec<(Schedule, Matches)> = FIXED.iter().map(|(text, matches)| (read(text), *matches)).collect();
        let interval_like: Vec<(Schedule, Matches)> =
            INTERVAL_LIKE.iter().map(|(text, matches)| (read(text), *matches)).collect();
        for moment in new {
            changes += 1;
            let (from, until) = (moment - BEFORE, moment + AFTER);
            let ticks = walk(&zone, from, until);
            let check = |schedule: &Schedule, expected: Vec<UnixMillis>| {
                let found = schedule.between(millis(from), millis(until), usize::MAX);
                assert_eq!(found, expected, "{schedule} around {moment}");
                for asked in QUERY_OFFSETS_MIN.map(|minutes| millis(moment + SignedDuration::from_mins(minutes))) {
                    let next = schedule.next_after(asked).filter(|at| *at <= millis(until));
                    let first = expected.iter().copied().find(|at| *at > asked);
                    assert_eq!(next, first, "{schedule} around {moment}, asked at {}", asked.to_rfc3339());
                }
            };
            for (schedule, matches) in &fixed {
                check(schedule, times(&ticks, |tick| tick.reached.iter().any(matches)));
            }
            for (schedule, matches) in &interval_like {
                check(schedule, times(&ticks, |tick| matches(&tick.shown)));
            }
        }
    }
    // The bundled database has more zones than this. With fewer, it would be the wrong one.
    assert!(zones > 400, "{zones} zones");
    assert!(changes > 100, "{changes} changes");
}

#[test]
fn a_daily_time_fires_once_for_each_day_of_the_calendar_in_every_zone() {
    let database = TimeZoneDatabase::bundled();
    let made_at = millis("2025-12-31T00:00:00Z".parse().unwrap());
    let mut seen = BTreeSet::new();
    for name in database.available() {
        let zone = database.get(name.as_str()).unwrap();
        // Zones with the same changes are equal here.
        let changes: Vec<_> = tested_instants(&zone).into_iter().map(|at| change_key(&zone, at)).collect();
        if changes.len() == 1 || !seen.insert(changes) {
            continue;
        }
        for line in ["0 0 * * *", "30 2 * * *"] {
            let schedule = Schedule::parse(line, name.as_str(), made_at).unwrap();
            let midnight = |year: i16| zone.to_timestamp(jiff::civil::date(year, 1, 1).at(0, 0, 0, 0)).unwrap();
            let (from, until) = (millis(midnight(2026) - MINUTE), millis(midnight(2028) - MINUTE));
            let dates: BTreeSet<_> = schedule
                .between(from, until, usize::MAX)
                .into_iter()
                .map(|at| zone.to_datetime(Timestamp::from_millisecond(at.0).unwrap()).date())
                .collect();
            assert_eq!(schedule.between(from, until, usize::MAX).len(), 730, "{schedule}");
            assert_eq!(dates.len(), 730, "{schedule}");
        }
    }
}
