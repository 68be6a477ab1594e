//! Work that begins when nobody asks for it at the moment: routines, their schedules and triggers, and what becomes of a
//! firing.
//!
//! **For**: [`Engine`](engine) is one task that fires what is due and leads every claimed firing to its end; the dispatcher
//! hands it what messages and programs set off. A lightweight firing is an ordinary run whose loop is
//! [`lightweight`](crate::delegates::lightweight); a full one is a job.
//!
//! **Does not know**: how a run is made, resumed or stopped, what begins jobs, or how the store keeps firings apart.
//!
//! [`schedule`], `cron`, `wall`, `zone` and [`misfire`] know no clock and no store: everything there is a function of a
//! schedule and instants that are handed in, so that every daylight-saving change of two years is tested in seconds.
//!
//! Reading order: [`config`] → [`schedule`] (the forms, and the rule for daylight saving) → `cron` (the line) → `wall` (the
//! rule carried out) → `zone` → [`misfire`] → `check` (what a routine must be) → `preview` → `reckon` (what is due) →
//! `step` (what is done about it) → `define` (the configuration's) → `engine` → `firing` (from its claim to its end) → `outcome` →
//! `task` and `text` (its model) → [`heartbeat`] (the routine that is built in) → `events` and `board` (what
//! others share with the engine) → `requests`, `commands` and `tool` (who asks for routines).

mod board;
mod check;
mod commands;
pub mod config;
mod cron;
mod define;
mod engine;
mod error;
mod events;
mod firing;
pub mod heartbeat;
pub mod misfire;
#[cfg(test)]
mod misfire_tests;
mod outcome;
mod preview;
mod reckon;
mod requests;
pub mod schedule;
#[cfg(test)]
mod schedule_tests;
mod service;
#[cfg(test)]
mod spec_tests;
mod step;
mod task;
mod text;
mod tool;
#[cfg(test)]
mod transition_tests;
mod wall;
mod zone;

pub(crate) use board::Board;
pub use check::problems;
pub use commands::RoutineCommand;
pub(crate) use commands::{USAGE, command};
pub use config::RoutinesConfig;
pub(crate) use define::redefine;
pub(crate) use engine::{Engine, show};
pub use error::ScheduleError;
pub(crate) use events::Waiting;
pub use heartbeat::HeartbeatConfig;
pub use misfire::Due;
pub use preview::{Tested, Upcoming, preview, test_at};
pub(crate) use requests::{By, request, start};
pub use schedule::Schedule;
pub(crate) use service::RoutineService;
pub(crate) use task::{LightweightTask, NothingToReport, lightweight_task};
pub(crate) use tool::{RoutineTool, RoutineToolContext};
