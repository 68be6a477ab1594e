//! Routines: rules that start work by time or event, their triggers, and their runs.
//!
//! **For**: [`Engine`](engine) is one task that starts the routines that are due and follows each claimed routine run
//! to its end. The dispatcher forwards to it the messages and requests that trigger routines. A lightweight routine
//! run is an ordinary run whose loop is `belay_delegates::lightweight`; a full one is a job.
//!
//! **Does not know**: how the agent makes, resumes or stops a run, how the scheduler begins jobs, or how the store
//! keeps routine runs apart.
//!
//! Reading order: [`config`] → `check` (validates a routine) → `preview` → `reckon` (finds the routines that are due)
//! → `step` (decides what happens to each) → `stored` and `define` (store the routines of the configuration) → `engine` →
//! `routine_run` (follows a routine run from its claim to its end) → `outcome` → `task` and `text` (prompts for the
//! model) → [`heartbeat`] (the built-in routine) → `events` and `registry` (state shared with the engine) →
//! `requests`, `commands` and `tool` (requests of programs, people and models).

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
mod stored;
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
pub use tool::{ListRoutines, RoutineToolContext, list_routines_tool, routine_tool};
