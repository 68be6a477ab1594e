//! Time zones by their IANA names, from the bundled database, which is the same on every machine.

use belay_text::near::{did_you_mean, nearest_names};
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::ScheduleError;

/// Longest name that is looked up and compared, in bytes. The longest name in the database has 32.
const MAX_NAME_BYTES: usize = 64;

/// Most suggestions for a name that does not exist.
const MAX_SUGGESTIONS: usize = 3;

/// A zone, with its name in the spelling of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its name in the database of time zones.
    pub name: String,
    /// Its rules.
    pub time: TimeZone,
}

impl Zone {
    /// Finds the zone with this name, case-insensitively.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::Zone`] with the most similar names.
    pub fn named(name: &str) -> Result<Self, ScheduleError> {
        let database = TimeZoneDatabase::bundled();
        let name = name.trim();
        if name.len() <= MAX_NAME_BYTES
            && let Ok(time) = database.get(name)
            && let Some(name) = time.iana_name()
        {
            return Ok(Self { name: name.to_owned(), time });
        }
        let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME_BYTES).collect();
        let names: Vec<String> = database.available().map(|name| name.to_string()).collect();
        let near = did_you_mean(&nearest_names(&shown, &names, MAX_SUGGESTIONS));
        Err(ScheduleError::Zone { name: shown, near })
    }
}
