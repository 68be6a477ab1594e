//! When work begins that nobody asks for at the moment: schedules, and what becomes of times that were missed.
//!
//! **For**: the one who owns the timer. [`Schedule`] is read once from what a person or the model wrote, and tells the
//! instants that follow; [`misfire::due`] says which of them to fire now, after a late tick, a restart, or a clock that
//! was set.
//!
//! **Does not know**: a clock, the store, or what is started. Everything here is a function of a schedule and instants
//! that are handed in, so that every daylight-saving change of two years is tested in seconds.
//!
//! Reading order: [`schedule`] (the forms, and the rule for daylight saving) → `cron` (the line) → `wall` (the
//! rule carried out) → `zone` → [`misfire`].

mod cron;
mod error;
pub mod misfire;
#[cfg(test)]
mod misfire_tests;
pub mod schedule;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod transition_tests;
mod wall;
mod zone;

pub use error::ScheduleError;
pub use misfire::{Due, MisfirePolicy};
pub use schedule::Schedule;
