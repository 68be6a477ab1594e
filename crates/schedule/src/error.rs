//! Why a schedule is refused. The messages are for its author, a person or the model.

use crate::bounds::{FIRST_YEAR, LAST_YEAR, MAX_TEXT_BYTES, MIN_INTERVAL};

/// The accepted forms, for messages that cannot be more precise.
const FORMS: &str =
    "write a cron line such as `0 9 * * MON-FRI`, or `@daily`, `every 15m`, `at 2026-12-01T09:00` or `in 20m`";

/// Why a schedule cannot be used. A retry never helps: the text must be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is empty.
    #[error("the schedule is empty; {FORMS}")]
    Empty,
    /// The text is longer than any schedule needs to be.
    #[error("the schedule has {bytes} bytes; {MAX_TEXT_BYTES} are enough for any")]
    TooLong {
        /// The length of the text in bytes.
        bytes: usize,
    },
    /// The text contains a control character.
    #[error("the schedule contains the control character {character:?}; {FORMS}")]
    Control {
        /// The first one.
        character: char,
    },
    /// The text has none of the accepted forms.
    #[error("`{text}` is not a schedule; {FORMS}")]
    Unknown {
        /// The text.
        text: String,
    },
    /// The text may be a cron line, which this build cannot read.
    #[error(
        "`{text}` is a cron line, and this build of Belay reads none (feature cron); write `every 15m`, \
         `at 2026-12-01T09:00` or `in 20m`, or use a build with it: `belay --version --long` lists the parts"
    )]
    NoCron {
        /// The text.
        text: String,
    },
    /// A cron line has too few or too many fields.
    #[error(
        "a cron line has 5 fields (minute, hour, day of month, month, day of week), 6 with seconds in front, or 7 with \
         the year at the end; this one has {count}"
    )]
    Fields {
        /// The number of its fields.
        count: usize,
    },
    /// One field of a cron line cannot be parsed.
    #[error("the {field} field `{text}` cannot be read: {why}. It takes {takes}")]
    Field {
        /// The name of the field: "minute", "day of week".
        field: &'static str,
        /// The text of the field.
        text: String,
        /// The problem.
        why: String,
        /// The accepted values.
        takes: &'static str,
    },
    /// The duration in `every …` or `in …` cannot be parsed.
    #[error(
        "`{text}` is not a length of time; write hours, minutes and seconds, such as `2h`, `1h30m`, `15m` or `90s`"
    )]
    Length {
        /// The text of the duration.
        text: String,
    },
    /// The interval is too short.
    #[error("the interval `{text}` is too short; the shortest is {} s", MIN_INTERVAL.as_secs())]
    TooOften {
        /// The text of the interval.
        text: String,
    },
    /// A date in `at …` or `every … from …` cannot be parsed.
    #[error(
        "`{text}` is not a date with a time of day; write `2026-12-01T09:00`, read in the zone of the schedule, or with \
         an offset `2026-12-01T09:00+01:00`"
    )]
    Date {
        /// The text of the date.
        text: String,
    },
    /// A stored schedule counts from an instant that its text does not contain.
    #[error("`{text}` does not say from when it counts; a stored schedule says it: `every 15m from 2026-12-01T09:00Z`")]
    NoStart {
        /// The text.
        text: String,
    },
    /// The time zone does not exist.
    #[error(
        "there is no time zone `{name}`.{near} Write a name of the IANA database, such as `Europe/Berlin` or `UTC`"
    )]
    Zone {
        /// The name, shortened.
        name: String,
        /// The most similar names, as a question with a leading space; empty if none is similar.
        near: String,
    },
    /// No instant matches.
    #[error(
        "`{text}` never comes: no day from {FIRST_YEAR} to {LAST_YEAR} fits it; look at day, month and year together \
         (30 February does not exist)"
    )]
    Never {
        /// The text of the schedule.
        text: String,
    },
    /// All matching instants are in the past.
    #[error("`{text}` is over: its last time has gone by, and it would never fire")]
    Past {
        /// The text of the schedule.
        text: String,
    },
}
