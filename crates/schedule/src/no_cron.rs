//! A build without the feature `cron` reads no cron lines. A line has no values there, so no schedule has one.

use jiff::civil::DateTime;

use crate::error::ScheduleError;

/// The rules for daylight-saving changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "a build without cron lines")]
pub(crate) enum Kind {
    /// As in other builds.
    FixedTime,
    /// As in other builds.
    IntervalLike,
}

/// A line that cannot exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CronLine {}

impl CronLine {
    /// Refuses each text.
    ///
    /// # Errors
    /// Always [`ScheduleError::NoCron`].
    pub(crate) fn parse(text: &str) -> Result<Self, ScheduleError> {
        Err(ScheduleError::NoCron { text: text.to_owned() })
    }

    /// The rule of the line.
    pub(crate) fn kind(&self) -> Kind {
        match *self {}
    }

    /// The next time of the line.
    pub(crate) fn next_from(&self, _wall: DateTime) -> Option<DateTime> {
        match *self {}
    }
}
