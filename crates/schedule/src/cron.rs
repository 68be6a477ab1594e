//! Parses a cron line and searches for its times on the wall clock only: dates and times of day without a zone.

use std::str::FromStr;

use croner::Cron;
use croner::errors::CronError;
use jiff::civil::DateTime;

use crate::bounds::{FIRST_YEAR, LAST_YEAR};
use crate::error::ScheduleError;

/// The rule for daylight-saving changes that applies to a line; see [`crate::schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Minute and hour are given explicitly.
    FixedTime,
    /// Minute or hour begins with `*`.
    IntervalLike,
}

/// A parsed cron line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CronLine {
    cron: Cron,
    kind: Kind,
}

struct Field {
    name: &'static str,
    accepts: &'static str,
    /// The words that the field accepts, in capitals.
    words: &'static [&'static str],
    /// Characters that the field accepts in addition to `*`, `,`, `-` and `/`.
    extra_characters: &'static str,
}

/// In the order of a line with 7 fields.
const FIELDS: [Field; 7] = [
    Field {
        name: "second",
        accepts: "0-59, `*`, lists `0,30`, ranges `0-10`, steps `*/15`",
        words: &[],
        extra_characters: "",
    },
    Field {
        name: "minute",
        accepts: "0-59, `*`, lists `0,30`, ranges `0-10`, steps `*/15`",
        words: &[],
        extra_characters: "",
    },
    Field {
        name: "hour",
        accepts: "0-23, `*`, lists `9,17`, ranges `9-17`, steps `*/2`",
        words: &[],
        extra_characters: "",
    },
    Field {
        name: "day of month",
        accepts: "1-31, `*`, lists, ranges, steps, `L` for the last day, `15W` for the weekday nearest to the 15th",
        words: &["L", "W", "LW"],
        extra_characters: "?",
    },
    Field {
        name: "month",
        accepts: "1-12 or JAN-DEC, `*`, lists, ranges, steps `*/3`",
        words: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
        extra_characters: "",
    },
    Field {
        name: "day of week",
        accepts: "0-7 (0 and 7 are Sunday) or SUN-SAT, `*`, lists, ranges, steps, `MON#1` for the first Monday, `FRIL` for \
                the last Friday",
        words: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
        extra_characters: "?#",
    },
    Field { name: "year", accepts: "1970-2099, `*`, lists, ranges, steps `*/2`", words: &[], extra_characters: "" },
];

const YEAR: usize = FIELDS.len() - 1;

impl CronLine {
    /// Parses a line of 5, 6 or 7 fields, or a nickname such as `@daily`.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::Unknown`] for an unknown nickname, [`ScheduleError::Fields`] for another number of fields,
    /// [`ScheduleError::Field`] for the first field that cannot be parsed. It is not checked whether any day matches.
    pub(crate) fn parse(text: &str) -> Result<Self, ScheduleError> {
        let line = if text.starts_with('@') { nickname(text)? } else { text };
        let mut fields: Vec<&str> = line.split_whitespace().collect();
        let count = fields.len();
        if !(5..=7).contains(&count) {
            return Err(ScheduleError::Fields { count });
        }
        if count == 5 {
            fields.insert(0, "0");
        }
        if count < 7 {
            fields.push("*");
        }
        for (index, (field, text)) in FIELDS.iter().zip(&fields).enumerate() {
            field.check(index, text).map_err(|why| field.refuse(text, why))?;
        }
        let years = years(fields[YEAR]);
        fields[YEAR] = &years;
        // Each field has been parsed alone, so the line can be parsed too.
        let cron = Cron::from_str(&fields.join(" ")).map_err(|_| ScheduleError::Unknown { text: text.to_owned() })?;
        let starred = cron.pattern.minutes.from_wildcard || cron.pattern.hours.from_wildcard;
        Ok(Self { cron, kind: if starred { Kind::IntervalLike } else { Kind::FixedTime } })
    }

    /// The rule for daylight-saving changes that applies to this line.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The first matching time on the wall clock that is not before `wall`, which has whole seconds. `None`: there is
    /// none up to [`LAST_YEAR`].
    pub(crate) fn next_from(&self, wall: DateTime) -> Option<DateTime> {
        // An error means that the years of the line are over. No other error is possible.
        self.cron.find_next_occurrence(&wall, true).ok()
    }
}

impl Field {
    fn refuse(&self, text: &str, why: String) -> ScheduleError {
        ScheduleError::Field { field: self.name, text: text.to_owned(), why, takes: self.accepts }
    }

    /// Whether this field accepts the text, independent of the other fields. The library accepts names in any field and
    /// ignores empty items in lists. A line whose meaning differs from its appearance is refused here.
    fn check(&self, index: usize, text: &str) -> Result<(), String> {
        let foreign =
            |c: &char| !c.is_ascii_alphanumeric() && !"*,-/".contains(*c) && !self.extra_characters.contains(*c);
        if let Some(character) = text.chars().find(foreign) {
            return Err(format!("{character:?} has no meaning there"));
        }
        if text.contains('?') && text != "?" {
            return Err("`?` stands alone".to_owned());
        }
        if text.split(',').any(str::is_empty) {
            return Err("its list has an empty place".to_owned());
        }
        if let Some(word) = text.split(|c: char| !c.is_ascii_alphabetic()).find(|word| !self.knows(word)) {
            return Err(format!("`{word}` has no meaning there"));
        }
        if self.extra_characters.contains('#') && text.split(',').any(|item| item.eq_ignore_ascii_case("L")) {
            return Err("`L` needs to know of which day, as in `FRIL`".to_owned());
        }
        if index == YEAR {
            check_years(text)?;
        }
        let alone: Vec<&str> = (0..FIELDS.len()).map(|other| if other == index { text } else { "*" }).collect();
        Cron::from_str(&alone.join(" ")).map(|_| ()).map_err(reason)
    }

    fn knows(&self, word: &str) -> bool {
        let word = word.to_ascii_uppercase();
        let last_of = self.extra_characters.contains('#').then(|| word.strip_suffix('L')).flatten();
        let known = |word: &str| word.is_empty() || self.words.contains(&word);
        known(&word) || last_of.is_some_and(known)
    }
}

fn nickname(text: &str) -> Result<&'static str, ScheduleError> {
    match text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        "@monthly" => Ok("0 0 1 * *"),
        "@weekly" => Ok("0 0 * * SUN"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@hourly" => Ok("0 * * * *"),
        _ => Err(ScheduleError::Unknown { text: text.to_owned() }),
    }
}

/// The year field with `*` replaced by the range of years, so that `*/2` counts from [`FIRST_YEAR`].
fn years(text: &str) -> String {
    text.replace('*', &format!("{FIRST_YEAR}-{LAST_YEAR}"))
}

fn check_years(text: &str) -> Result<(), String> {
    let spans = text.split(',').filter_map(|item| item.split('/').next());
    let untrusted =
        |year: &&str| year.parse().is_ok_and(|year: u64| !(FIRST_YEAR.into()..=LAST_YEAR.into()).contains(&year));
    match spans.flat_map(|span| span.split('-')).find(untrusted) {
        Some(year) => Err(format!("{year} is out of its bounds")),
        None => Ok(()),
    }
}

/// The message of the library as a part of our sentence.
fn reason(error: CronError) -> String {
    let text = match error {
        CronError::ComponentError(text) | CronError::IllegalCharacters(text) | CronError::InvalidPattern(text) => text,
        other => other.to_string(),
    };
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
