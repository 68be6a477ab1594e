//! A schedule: the instants at which something starts, parsed from text.
//!
//! | text | fires |
//! |---|---|
//! | `0 9 * * MON-FRI` | a cron line: minute, hour, day of month, month, day of week |
//! | `30 0 9 * * MON-FRI`, `0 0 9 1 1 * 2027` | the same with seconds in front, and with the year at the end |
//! | `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly` | short forms of cron lines |
//! | `every 15m`, `every 1h30m from 2026-12-01T09:00` | repeatedly, by elapsed time; first one interval after its creation, or at the given date |
//! | `at 2026-12-01T09:00`, `at 2026-12-01T09:00+01:00`, `in 20m` | once |
//!
//! In a cron line, if both day of month and day of week are restricted (neither is `*` nor `?`), a day matches if one
//! of them matches. Otherwise both must match. Names are `JAN`–`DEC` and `SUN`–`SAT` in any case; `L` is the last day
//! of a month, `15W` the weekday nearest to the 15th in its month, `MON#1` the first Monday, `FRIL` the last Friday.
//! Ranges do not run backwards.
//!
//! # Daylight-saving changes
//!
//! Cron lines, and dates without an offset, refer to the wall clock in the zone of the schedule.
//!
//! - **Fixed times** are lines with explicit minute and hour (numbers, lists, ranges). Each matching time on the clock
//!   fires once: *at the first instant at which the clock shows it or has passed it*. So a time that is skipped in
//!   spring fires at the first instant after the gap. All times in the same gap, and one that matches that very
//!   instant, fire together. A time that occurs twice in autumn fires the first time.
//! - **Interval-like** lines have `*` or `*/n` in minute or hour, also as a part of a list. They fire *at every instant
//!   at which the clock shows a matching time*. So `*/30 * * * *` keeps its 30 minutes of elapsed time through both
//!   changes, and a time that is skipped does not fire. Therefore a line like `*/15 2 * * *` fires eight times in the
//!   night in which the hour 2 occurs twice, and never in the night without it.
//! - **`at` with a date without offset** is a fixed time. **`every`** does not use the wall clock: it counts elapsed
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

/// Earliest instant from which a cron line is searched: two days before its first year begins, in any zone.
const EARLIEST: i64 = -2 * 86_400_000;

/// The times at which something fires, in a time zone.
///
/// Serialised as its text and the name of its zone. The text is self-contained, so that parsing it later gives the same
/// times: `every 15m` is stored with the instant that it counts from, and `in 20m` as `at` with that instant.
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

/// The stored form of a schedule.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    text: String,
    zone: String,
}

impl Schedule {
    /// Parses a text that was written at `now`, for an IANA zone such as `Europe/Berlin` (case-insensitive). `every`
    /// without `from`, and `in`, count from `now`.
    ///
    /// # Errors
    ///
    /// The problem, as a sentence for the author. A schedule without a time after `now` is refused too
    /// ([`ScheduleError::Never`], [`ScheduleError::Past`]).
    pub fn parse(text: &str, zone: &str, now: UnixMillis) -> Result<Self, ScheduleError> {
        let schedule = Self::read(text, zone, Some(now))?;
        if schedule.next_after(now).is_none() {
            return Err(ScheduleError::Past { text: schedule.text });
        }
        Ok(schedule)
    }

    /// Parses a schedule. Without `now`, a schedule that contains no instant to count from is refused.
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
                let rule = CronLine::parse(&text).map(Box::new).map(Rule::Cron)?;
                (text, rule)
            }
            _ => return Err(ScheduleError::Unknown { text }),
        };
        // The added instant must not make a text that could not be parsed again.
        check_length(&text)?;
        let schedule = Self { text, zone, rule };
        if schedule.next_after(UnixMillis(i64::MIN)).is_none() {
            return Err(ScheduleError::Never { text: schedule.text });
        }
        Ok(schedule)
    }

    /// Its self-contained text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The IANA name of its zone, in the spelling of the database.
    pub fn zone(&self) -> &str {
        &self.zone.name
    }

    /// Formats an instant as the local time of its zone, with the offset: `Mon 2026-11-30 09:00:00 +01:00`.
    pub fn local(&self, at: UnixMillis) -> String {
        match Timestamp::from_millisecond(at.0) {
            Ok(at) => at.to_zoned(self.zone.time.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
            Err(_) => at.0.to_string(), // outside of the calendar, which no schedule reaches
        }
    }

    /// Whether it fires only once.
    pub fn is_once(&self) -> bool {
        matches!(self.rule, Rule::Once(_))
    }

    /// Its first time after this instant. `None`: there is none.
    ///
    /// The result does not depend on the starting point: no time in between is skipped. The years of cron lines bound
    /// the search.
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

    /// Its times after `from` up to and including `until`, oldest first, at most `limit`.
    pub fn between(&self, from: UnixMillis, until: UnixMillis, limit: usize) -> Vec<UnixMillis> {
        let next = |after: &UnixMillis| self.next_after(*after).filter(|at| *at <= until);
        std::iter::successors(next(&from), next).take(limit).collect()
    }

    /// Its newest time after `from` up to and including `until`.
    ///
    /// Found by binary search, so that a month of seconds takes a few dozen searches.
    pub fn last_between(&self, from: UnixMillis, until: UnixMillis) -> Option<UnixMillis> {
        let next = |after: i64| self.next_after(UnixMillis(after)).filter(|at| *at <= until);
        let mut newest = next(from.0)?;
        // The newest time is not before `newest`, and there is none after `none_after`.
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

/// Parses `15m`, or `15m from 2026-12-01T09:00`. Returns the self-contained text, and the rule.
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

/// Parses `20m` from now. Returns the text with the instant, and the rule.
fn once_in(length: &str, now: Option<UnixMillis>, text: &str) -> Result<(String, Rule), ScheduleError> {
    let now = now.ok_or_else(|| ScheduleError::NoStart { text: text.to_owned() })?;
    let refused = || ScheduleError::Length { text: length.to_owned() };
    let at = now.0.checked_add(milliseconds(length)?).map(UnixMillis).ok_or_else(refused)?;
    Ok((format!("at {}", shown(at, text)?), Rule::Once(at)))
}

/// Parses a duration such as `2h`, `1h 30m`, `90 seconds` or `PT15M`, in whole milliseconds; never negative.
fn milliseconds(text: &str) -> Result<i64, ScheduleError> {
    let refused = || ScheduleError::Length { text: text.to_owned() };
    let length: SignedDuration = text.parse().map_err(|_| refused())?;
    if length.is_negative() {
        return Err(refused());
    }
    i64::try_from(length.as_millis()).map_err(|_| refused())
}

/// Parses a date with a time of day, with its own offset or in this zone.
fn instant(text: &str, zone: &Zone) -> Result<UnixMillis, ScheduleError> {
    let refused = || ScheduleError::Date { text: text.to_owned() };
    // A date alone would silently mean midnight, and a zone in brackets would silently be ignored.
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

/// Formats an instant as text that [`instant`] can parse.
fn shown(at: UnixMillis, text: &str) -> Result<Timestamp, ScheduleError> {
    // Only an instant outside of the calendar fails.
    Timestamp::from_millisecond(at.0).map_err(|_| ScheduleError::Date { text: text.to_owned() })
}
