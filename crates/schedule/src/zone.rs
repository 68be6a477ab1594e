//! Time zones by their IANA names, from the database that is built in: the same on every machine.

use belay_text::near::{did_you_mean, nearest_names};
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::ScheduleError;

/// Longest name that is looked up and compared, in bytes. The longest in the database has 32.
const MAX_NAME_BYTES: usize = 64;

/// Names that are offered instead of one that does not exist.
const MOST_NEAR: usize = 3;

/// A zone, and its name as the database writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its name in the database of time zones.
    pub name: String,
    /// Its rules.
    pub time: TimeZone,
}

impl Zone {
    /// The zone of this name; case does not count.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::Zone`] with the nearest names.
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
        let near = did_you_mean(&nearest_names(&shown, &names, MOST_NEAR));
        Err(ScheduleError::Zone { name: shown, near })
    }
}
