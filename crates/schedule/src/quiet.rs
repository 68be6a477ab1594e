//! Hours of the day in which no heartbeat is started. Pure.
//!
//! They refer to the wall clock: an instant is quiet if the clock of the zone shows a time from the beginning up to,
//! but not including, the end. So in a night with a daylight-saving change, they are an hour shorter or longer. An hour
//! that occurs twice is quiet twice, and an hour that is skipped has no effect.

use belay_protocol::UnixMillis;
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

use crate::time_of_day;

/// From one time of day to another, possibly over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    start: Time,
    end: Time,
}

impl QuietHours {
    /// Parses `22:00-07:00`. `None`: there are no quiet hours, because the text is empty or its two times are equal.
    ///
    /// # Errors
    /// The problem, as the rest of a sentence.
    pub fn read(text: &str) -> Result<Option<Self>, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let (start, end) = text.split_once('-').ok_or_else(|| {
            format!("{text:?} must be two times of day, as in \"22:00-07:00\"; empty where there are no quiet hours")
        })?;
        let hours = Self { start: time_of_day(start.trim())?, end: time_of_day(end.trim())? };
        Ok(Some(hours).filter(|hours| hours.start != hours.end))
    }

    /// Whether a time of day is in the quiet hours.
    pub fn has(&self, time: Time) -> bool {
        if self.start < self.end {
            (self.start..self.end).contains(&time)
        } else {
            time >= self.start || time < self.end
        }
    }

    /// Whether an instant is in the quiet hours, in a zone.
    pub fn cover(&self, zone: &TimeZone, at: UnixMillis) -> bool {
        // An instant outside of the calendar is never quiet.
        Timestamp::from_millisecond(at.0).is_ok_and(|at| self.has(zone.to_datetime(at).time()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> UnixMillis {
        let instant: Timestamp = text.parse().expect("an instant");
        UnixMillis(instant.as_millisecond())
    }

    fn hours(text: &str) -> Option<QuietHours> {
        QuietHours::read(text).expect("hours")
    }

    #[test]
    fn they_may_go_over_midnight_and_end_before_their_end() {
        for (written, time, quiet) in [
            ("22:00-07:00", "2026-01-15T21:59:59Z", false),
            ("22:00-07:00", "2026-01-15T22:00:00Z", true),
            ("22:00-07:00", "2026-01-15T00:00:00Z", true),
            ("22:00-07:00", "2026-01-15T06:59:59Z", true),
            ("22:00-07:00", "2026-01-15T07:00:00Z", false),
            (" 12:00 - 13:00 ", "2026-01-15T12:30:00Z", true),
            ("12:00-13:00", "2026-01-15T11:59:59Z", false),
            ("12:00-13:00", "2026-01-15T13:00:00Z", false),
            ("00:00-23:59", "2026-01-15T23:59:30Z", false),
        ] {
            assert_eq!(hours(written).expect("some").cover(&TimeZone::UTC, at(time)), quiet, "{written} {time}");
        }
        assert_eq!((hours(""), hours("08:00-08:00")), (None, None), "never quiet");
        for wrong in ["22", "22:00", "22:00-7:00", "25:00-07:00", "22:00-07:00-08:00"] {
            assert!(QuietHours::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn when_clocks_are_changed_the_wall_decides() {
        // Berlin changes from 02:00 to 03:00 on 29 March and from 03:00 back to 02:00 on 25 October 2026. Santiago
        // changes from 24:00 back to 23:00 on 4 April and from 24:00 to 01:00 on 5 September.
        for (zone, written, time, quiet) in [
            ("Europe/Berlin", "22:00-07:00", "2026-03-29T00:59:59Z", true), // 01:59:59, the last second of winter
            ("Europe/Berlin", "22:00-07:00", "2026-03-29T04:59:59Z", true), // 06:59:59 in summer
            ("Europe/Berlin", "22:00-07:00", "2026-03-29T05:00:00Z", false),
            ("Europe/Berlin", "02:00-03:00", "2026-03-29T00:59:59Z", false), // the hour that is skipped
            ("Europe/Berlin", "02:00-03:00", "2026-03-29T01:00:00Z", false),
            ("Europe/Berlin", "02:30-03:30", "2026-03-29T01:29:59Z", true), // 03:29:59
            ("Europe/Berlin", "02:00-03:00", "2026-10-25T00:00:00Z", true), // the first 02:00
            ("Europe/Berlin", "02:00-03:00", "2026-10-25T01:59:59Z", true), // the second 02:59:59
            ("Europe/Berlin", "02:00-03:00", "2026-10-25T02:00:00Z", false),
            ("Europe/Berlin", "22:00-07:00", "2026-10-25T05:59:59Z", true),
            ("Europe/Berlin", "22:00-07:00", "2026-10-25T06:00:00Z", false),
            ("America/Santiago", "23:00-06:00", "2026-04-05T02:00:00Z", true), // the first 23:00
            ("America/Santiago", "23:00-06:00", "2026-04-05T03:59:59Z", true), // the second 23:59:59
            ("America/Santiago", "23:00-06:00", "2026-04-05T10:00:00Z", false),
            ("America/Santiago", "22:00-23:00", "2026-04-05T02:00:00Z", false),
            ("America/Santiago", "00:00-01:00", "2026-09-06T03:59:59Z", false), // 23:59:59 of the day before
            ("America/Santiago", "00:00-01:00", "2026-09-06T04:00:00Z", false), // 01:00: there was no midnight
        ] {
            let zone_time = crate::zone::Zone::named(zone).expect("a zone").time;
            assert_eq!(hours(written).expect("some").cover(&zone_time, at(time)), quiet, "{zone} {written} {time}");
        }
    }
}
