//! Times of answers: local ones on a terminal, and as the daemon writes them elsewhere.

use belay_program::output::Output;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How times are shown.
pub(super) struct TimeText {
    /// The zone of the person; `None`: a program reads the times, in UTC with a `Z`.
    zone: Option<TimeZone>,
}

/// The times of an output: those of the machine's zone on a terminal.
pub(super) fn times(out: Output<'_>) -> TimeText {
    TimeText { zone: out.is_terminal().then(TimeZone::system) }
}

impl TimeText {
    /// Times of this zone.
    #[cfg(test)]
    pub(super) fn of_zone(zone: TimeZone) -> Self {
        Self { zone: Some(zone) }
    }

    /// Times as the daemon writes them.
    #[cfg(test)]
    pub(super) fn of_program() -> Self {
        Self { zone: None }
    }

    /// A date with its time and offset.
    pub(super) fn whole(&self, rfc3339: &str) -> String {
        self.written(rfc3339, "%Y-%m-%d %H:%M:%S %:z")
    }

    /// The day and the time, without year and zone, for a narrow column.
    pub(super) fn brief(&self, rfc3339: &str) -> String {
        self.written(rfc3339, "%m-%d %H:%M:%S")
    }

    /// A text that is no time, such as an empty one, is shown as it is.
    fn written(&self, rfc3339: &str, format: &str) -> String {
        match (&self.zone, rfc3339.parse::<Timestamp>()) {
            (Some(zone), Ok(time)) => time.to_zoned(zone.clone()).strftime(format).to_string(),
            _ => rfc3339.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_local_times_and_programs_those_of_the_daemon() {
        let at = "2026-11-20T23:43:00.125Z";
        let local = TimeText::of_zone(TimeZone::fixed(jiff::tz::offset(1)));
        assert_eq!((local.whole(at), local.brief(at)), ("2026-11-21 00:43:00 +01:00".into(), "11-21 00:43:00".into()));
        let plain = TimeText::of_program();
        assert_eq!((plain.whole(at), plain.brief(at), local.whole("")), (at.into(), at.into(), String::new()));
    }
}
