//! Routines: rules that start work by time or event, their triggers, and their runs.
//!
//! **For**: [`Engine`](engine) is one task that starts the routines that are due and follows every claimed routine run to its end. The
//! dispatcher hands it the messages and requests that set routines off. A lightweight routine run is an ordinary run whose
//! loop is `belay_delegates::lightweight`; a full one is a job.
//!
//! **Does not know**: how a run is made, resumed or stopped, what begins jobs, or how the store keeps routine runs apart.
//!
//! Reading order: [`config`] → `check` (what a routine must be) → `preview` → `reckon` (which routines are due) → `step` (what is
//! done about it) → `define` (the routines of the configuration) → `engine` → `routine_run` (a routine run from its claim to its end)
//! → `outcome` → `task` and `text` (its model) → [`heartbeat`] (the built-in routine) → `events` and `registry` (what others share
//! with the engine) → `requests`, `commands` and `tool` (who asks for routines).

mod check;
mod commands;
pub mod config;
mod define;
mod engine;
mod events;
pub mod heartbeat;
mod outcome;
mod preview;
mod reckon;
mod registry;
mod requests;
mod routine_run;
mod service;
#[cfg(test)]
mod spec_tests;
mod step;
mod task;
mod text;
mod tool;

pub use check::problems;
pub use commands::RoutineCommand;
pub use commands::{USAGE, command};
pub use config::RoutinesConfig;
pub use define::redefine;
pub use engine::{Engine, show};
pub use events::TriggeredRoutine;
pub use heartbeat::HeartbeatConfig;
pub use preview::{Tested, Upcoming, preview, test_at};
pub use registry::RoutineRegistry;
pub use requests::{RoutineRequester, request, start};
pub use service::RoutineService;
pub use task::{LightweightTask, NothingToReport, lightweight_task};
pub use tool::{RoutineToolContext, routine_tool};
