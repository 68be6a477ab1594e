//! Why a schedule is refused: sentences for the one who wrote it, a person or the model.

use crate::bounds::{FIRST_YEAR, LAST_YEAR, MAX_TEXT_BYTES, MIN_INTERVAL};

/// What would be understood; the end of the sentences that can say nothing more precise.
const FORMS: &str =
    "write a cron line such as `0 9 * * MON-FRI`, or `@daily`, `every 15m`, `at 2026-12-01T09:00` or `in 20m`";

/// A schedule that cannot be used. None of these passes by itself: the text has to be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// There is no text.
    #[error("the schedule is empty; {FORMS}")]
    Empty,
    /// The text is longer than any schedule needs to be.
    #[error("the schedule has {bytes} bytes; {MAX_TEXT_BYTES} are enough for any")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The text has a control character in it.
    #[error("the schedule contains the control character {character:?}; {FORMS}")]
    Control {
        /// The first one.
        character: char,
    },
    /// The text begins like none of the forms.
    #[error("`{text}` is not a schedule; {FORMS}")]
    Unknown {
        /// What was written.
        text: String,
    },
    /// A cron line has too few fields, or too many.
    #[error(
        "a cron line has 5 fields (minute, hour, day of month, month, day of week), 6 with seconds in front, or 7 with \
         the year at the end; this one has {count}"
    )]
    Fields {
        /// How many it has.
        count: usize,
    },
    /// One field of a cron line cannot be read.
    #[error("the {field} field `{text}` cannot be read: {why}. It takes {takes}")]
    Field {
        /// Which one: "minute", "day of week".
        field: &'static str,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        why: String,
        /// What it takes instead.
        takes: &'static str,
    },
    /// The length in `every …` or `in …` cannot be read.
    #[error(
        "`{text}` is not a length of time; write hours, minutes and seconds, such as `2h`, `1h30m`, `15m` or `90s`"
    )]
    Length {
        /// What stands there.
        text: String,
    },
    /// An interval is too short.
    #[error("the interval `{text}` is too short; the shortest is {} s", MIN_INTERVAL.as_secs())]
    TooOften {
        /// What stands there.
        text: String,
    },
    /// A date in `at …` or `every … from …` cannot be read.
    #[error(
        "`{text}` is not a date with a time of day; write `2026-12-01T09:00`, read in the zone of the schedule, or with \
         an offset `2026-12-01T09:00+01:00`"
    )]
    Date {
        /// What stands there.
        text: String,
    },
    /// A stored schedule counts from an instant that is not in its text.
    #[error("`{text}` does not say from when it counts; a stored schedule says it: `every 15m from 2026-12-01T09:00Z`")]
    NoStart {
        /// What was written.
        text: String,
    },
    /// There is no such zone.
    #[error(
        "there is no time zone `{name}`.{near} Write a name of the IANA database, such as `Europe/Berlin` or `UTC`"
    )]
    Zone {
        /// What was written, shortened.
        name: String,
        /// The nearest names as a question with a space in front; empty when none is near.
        near: String,
    },
    /// No instant at all fits.
    #[error(
        "`{text}` never comes: no day from {FIRST_YEAR} to {LAST_YEAR} fits it; look at day, month and year together \
         (30 February does not exist)"
    )]
    Never {
        /// The schedule.
        text: String,
    },
    /// Every instant that fits has gone by.
    #[error("`{text}` is over: its last time has gone by, and it would never fire")]
    Past {
        /// The schedule.
        text: String,
    },
}
