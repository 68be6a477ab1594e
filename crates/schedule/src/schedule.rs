//! A schedule: the instants at which something begins, read from text.
//!
//! | written | fires |
//! |---|---|
//! | `0 9 * * MON-FRI` | a cron line: minute, hour, day of month, month, day of week |
//! | `30 0 9 * * MON-FRI`, `0 0 9 1 1 * 2027` | the same with seconds in front, and with the year at the end |
//! | `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly` | short for cron lines |
//! | `every 15m`, `every 1h30m from 2026-12-01T09:00` | again and again, by elapsed time; the first time one interval after it was made, or at the date it counts from |
//! | `at 2026-12-01T09:00`, `at 2026-12-01T09:00+01:00`, `in 20m` | once |
//!
//! In a cron line, a day fits when day of month or day of week fits, if both are restricted (neither is `*` nor `?`);
//! else both have to. Names are `JAN`–`DEC` and `SUN`–`SAT` in any case; `L` is the last day of a month, `15W` the
//! weekday nearest to the 15th in its month, `MON#1` the first Monday, `FRIL` the last Friday. Ranges do not run
//! backwards.
//!
//! # When clocks are changed
//!
//! Cron lines, and dates without an offset, are about the clock on the wall in the zone of the schedule.
//!
//! - **Fixed times** are lines whose minute and hour are written out (numbers, lists, ranges). Each fitting time on the
//!   clock fires once: *at the first instant at which the clock shows it or has passed it*. So a time that is skipped
//!   in spring fires at the first instant after the gap, together with others in the same gap and with one that fits
//!   that very instant; a time that is shown twice in autumn fires the first time.
//! - **Interval-like** lines have `*` or `*/n` in minute or hour, also as a part of a list. They fire *at every instant
//!   at which the clock shows a fitting time*. So `*/30 * * * *` keeps its 30 minutes of elapsed time through both
//!   changes, and a time that is skipped does not fire. A line like `*/15 2 * * *` therefore fires eight times on the
//!   night with two second hours and never on the night without one.
//! - **`at` with a date without offset** is a fixed time. **`every`** knows no clock on the wall: it counts elapsed
//!   time.

use std::fmt;
use std::time::Duration;

use belay_protocol::UnixMillis;
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::bounds::{MAX_TEXT_BYTES, MIN_INTERVAL};
use crate::cron::CronLine;
use crate::error::ScheduleError;
use crate::wall;
use crate::zone::Zone;

/// Earliest instant a cron line is searched from: two days before its first year begins, in any zone.
const EARLIEST: i64 = -2 * 86_400_000;

/// When something fires, in a time zone.
///
/// Serialised as its text and the name of its zone. The text is complete by itself, so that reading it again later
/// gives the same times: `every 15m` is kept with the instant it counts from, and `in 20m` as `at` and that instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Schedule {
    text: String,
    zone: Zone,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Cron(Box<CronLine>),
    Every { anchor: UnixMillis, interval_ms: i64 },
    Once(UnixMillis),
}

/// A schedule as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    text: String,
    zone: String,
}

impl Schedule {
    /// Reads what somebody wrote at `now`, for an IANA zone such as `Europe/Berlin`; case does not count. `every`
    /// without `from`, and `in`, count from `now`.
    ///
    /// # Errors
    ///
    /// What is wrong, as a sentence for the one who wrote it. A schedule that has no time after `now` is refused as
    /// well ([`ScheduleError::Never`], [`ScheduleError::Past`]).
    pub fn parse(text: &str, zone: &str, now: UnixMillis) -> Result<Self, ScheduleError> {
        let schedule = Self::read(text, zone, Some(now))?;
        if schedule.next_after(now).is_none() {
            return Err(ScheduleError::Past { text: schedule.text });
        }
        Ok(schedule)
    }

    /// Reads a schedule; without `now`, one that counts from no instant of its own is refused.
    pub fn read(text: &str, zone: &str, now: Option<UnixMillis>) -> Result<Self, ScheduleError> {
        check_length(text)?;
        if let Some(character) = text.chars().find(|c| c.is_control() && !c.is_whitespace()) {
            return Err(ScheduleError::Control { character });
        }
        let zone = Zone::named(zone)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        let Some((first, rest)) = words.split_first() else { return Err(ScheduleError::Empty) };
        let (text, rule) = match first.to_ascii_lowercase().as_str() {
            "every" => every(rest, &zone, now, &text)?,
            "at" => (format!("at {}", rest.join(" ")), Rule::Once(instant(&rest.join(" "), &zone)?)),
            "in" => once_in(&rest.join(" "), now, &text)?,
            word if text.contains('*') || !word.starts_with(char::is_alphabetic) => {
                let line = CronLine::parse(&text)?;
                (text, Rule::Cron(Box::new(line)))
            }
            _ => return Err(ScheduleError::Unknown { text }),
        };
        // What was added must not make it a text that could not be read again.
        check_length(&text)?;
        let schedule = Self { text, zone, rule };
        if schedule.next_after(UnixMillis(i64::MIN)).is_none() {
            return Err(ScheduleError::Never { text: schedule.text });
        }
        Ok(schedule)
    }

    /// What it says, complete by itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The IANA name of its zone, as the database writes it.
    pub fn zone(&self) -> &str {
        &self.zone.name
    }

    /// An instant as the clock of its zone shows it, with the offset: `Mon 2026-11-30 09:00:00 +01:00`.
    pub fn local(&self, at: UnixMillis) -> String {
        match Timestamp::from_millisecond(at.0) {
            Ok(at) => at.to_zoned(self.zone.time.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
            Err(_) => at.0.to_string(), // beyond the calendar, where no schedule leads
        }
    }

    /// Whether it fires once and never again.
    pub fn is_once(&self) -> bool {
        matches!(self.rule, Rule::Once(_))
    }

    /// Its first time after this instant. `None`: there is none any more.
    ///
    /// It is the same from wherever one asks: no time before it is passed over. The search is bounded by the years that
    /// a cron line can name.
    pub fn next_after(&self, after: UnixMillis) -> Option<UnixMillis> {
        match &self.rule {
            Rule::Once(at) => (*at > after).then_some(*at),
            Rule::Every { anchor, .. } if after < *anchor => Some(*anchor),
            Rule::Every { anchor, interval_ms } => {
                let into_interval = after.0.checked_sub(anchor.0)? % interval_ms;
                after.0.checked_add(interval_ms - into_interval).map(UnixMillis)
            }
            Rule::Cron(line) => {
                let after = Timestamp::from_second(after.0.max(EARLIEST).div_euclid(1000)).ok()?;
                wall::next_after(line, &self.zone.time, after).map(|at| UnixMillis(at.as_millisecond()))
            }
        }
    }

    /// Its times after `from` up to and including `until`, oldest first, no more than `limit`.
    pub fn between(&self, from: UnixMillis, until: UnixMillis, limit: usize) -> Vec<UnixMillis> {
        let next = |after: &UnixMillis| self.next_after(*after).filter(|at| *at <= until);
        std::iter::successors(next(&from), next).take(limit).collect()
    }

    /// Its newest time after `from` up to and including `until`.
    ///
    /// It is found by halving, so that a month of seconds takes a few dozen searches.
    pub fn last_between(&self, from: UnixMillis, until: UnixMillis) -> Option<UnixMillis> {
        let next = |after: i64| self.next_after(UnixMillis(after)).filter(|at| *at <= until);
        let mut newest = next(from.0)?;
        // The newest is not before `newest`, and none lies after `none_after`.
        let mut none_after = until.0;
        while newest.0 < none_after {
            let middle = newest.0 + none_after.saturating_sub(newest.0) / 2;
            match next(middle) {
                Some(later) => newest = later,
                None => none_after = middle,
            }
        }
        Some(newest)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.zone.name)
    }
}

impl TryFrom<Stored> for Schedule {
    type Error = ScheduleError;

    fn try_from(stored: Stored) -> Result<Self, ScheduleError> {
        Self::read(&stored.text, &stored.zone, None)
    }
}

impl From<Schedule> for Stored {
    fn from(schedule: Schedule) -> Self {
        Self { text: schedule.text, zone: schedule.zone.name }
    }
}

fn check_length(text: &str) -> Result<(), ScheduleError> {
    if text.len() > MAX_TEXT_BYTES { Err(ScheduleError::TooLong { bytes: text.len() }) } else { Ok(()) }
}

/// `15m`, or `15m from 2026-12-01T09:00`; the text that says both, and the rule.
fn every(words: &[&str], zone: &Zone, now: Option<UnixMillis>, text: &str) -> Result<(String, Rule), ScheduleError> {
    let mut parts = words.splitn(2, |word| word.eq_ignore_ascii_case("from"));
    let length = parts.next().unwrap_or_default().join(" ");
    let anchor = match parts.next() {
        Some(date) => instant(&date.join(" "), zone)?,
        None => now.ok_or_else(|| ScheduleError::NoStart { text: text.to_owned() })?,
    };
    let interval_ms = milliseconds(&length)?;
    if Duration::from_millis(interval_ms.unsigned_abs()) < MIN_INTERVAL {
        return Err(ScheduleError::TooOften { text: length });
    }
    Ok((format!("every {length} from {}", shown(anchor, text)?), Rule::Every { anchor, interval_ms }))
}

/// `20m` from now; the text that says when that is, and the rule.
fn once_in(length: &str, now: Option<UnixMillis>, text: &str) -> Result<(String, Rule), ScheduleError> {
    let now = now.ok_or_else(|| ScheduleError::NoStart { text: text.to_owned() })?;
    let refused = || ScheduleError::Length { text: length.to_owned() };
    let at = now.0.checked_add(milliseconds(length)?).map(UnixMillis).ok_or_else(refused)?;
    Ok((format!("at {}", shown(at, text)?), Rule::Once(at)))
}

/// A length of time as `2h`, `1h 30m`, `90 seconds` or `PT15M`, in whole milliseconds; never negative.
fn milliseconds(text: &str) -> Result<i64, ScheduleError> {
    let refused = || ScheduleError::Length { text: text.to_owned() };
    let length: SignedDuration = text.parse().map_err(|_| refused())?;
    if length.is_negative() {
        return Err(refused());
    }
    i64::try_from(length.as_millis()).map_err(|_| refused())
}

/// A date with a time of day, read with its own offset or else in this zone.
fn instant(text: &str, zone: &Zone) -> Result<UnixMillis, ScheduleError> {
    let refused = || ScheduleError::Date { text: text.to_owned() };
    // A date alone would silently mean midnight, and a zone in brackets would silently be passed over.
    if !text.contains(':') || text.contains('[') {
        return Err(refused());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(UnixMillis(at.as_millisecond()));
    }
    let date: DateTime = text.parse().map_err(|_| refused())?;
    let at = wall::reached(&zone.time, date).ok_or_else(refused)?;
    Ok(UnixMillis(at.as_millisecond()))
}

/// An instant as text that [`instant`] reads again.
fn shown(at: UnixMillis, text: &str) -> Result<Timestamp, ScheduleError> {
    // Only a clock beyond the calendar gets here.
    Timestamp::from_millisecond(at.0).map_err(|_| ScheduleError::Date { text: text.to_owned() })
}
