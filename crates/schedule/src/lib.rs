//! Schedules: texts such as `0 9 * * MON-FRI`, `every 15m` or `at 2026-12-01T09:00`, and the instants that they define.
//!
//! **For**: everything that starts work by time: routines, the heartbeat, the daily reset of sessions.
//!
//! **Does not know**: a clock, a store or a routine. Everything here is a function of a schedule and of given instants,
//! so that every daylight-saving change of two years can be tested in seconds.
//!
//! Reading order: [`schedule`] (the forms, and the rule for daylight saving) → `cron` (the line) → `wall` (the
//! implementation of the rule) → [`zone`] → [`misfire`] (missed times) → [`quiet`] (hours of the day) → [`error`].

pub mod bounds;
#[cfg_attr(not(feature = "cron"), path = "no_cron.rs")]
mod cron;
pub mod error;
pub mod misfire;
#[cfg(test)]
mod misfire_tests;
pub mod quiet;
pub mod schedule;
#[cfg(test)]
mod schedule_tests;
mod time_of_day;
#[cfg(test)]
mod transition_tests;
mod wall;
pub mod zone;

pub use error::ScheduleError;
pub use misfire::Due;
pub use quiet::QuietHours;
pub use schedule::Schedule;
pub use time_of_day::time_of_day;
pub use zone::Zone;

/// Whether this build reads cron lines.
pub const HAS_CRON: bool = cfg!(feature = "cron");
