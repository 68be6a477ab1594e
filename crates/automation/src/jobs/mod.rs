//! Jobs: work that outlives the turn that asked for it.
//!
//! A job is a row of the store with a state, and a session of its own in which each attempt at it is an ordinary run: accepted,
//! checkpointed, stopped, watched and metered like any other. Here is what is more than that:
//!
//! ```text
//!  requests ──row──▶ desk ──message (job, attempt)──▶ lane ──▶ begin ──▶ delegate ──▶ end of the run
//!  (tool, command,     ▲                                                                   │
//!   control)           └──────────── settle: done, failed, cancelled, stuck ◀──── outcome ─┘
//! ```
//!
//! **Does not know**: how a run is made, resumed or stopped; when routines fire.
//!
//! Reading order: `config` → `requests` (making, cancelling, accepting) → `desk` (what begins) → `care` (from attempt to attempt) → `outcome` → `begin`
//! → `spent`, `context` (what everything that works on it shares) → `tool` → `commands` → `text`.

mod begin;
mod care;
mod commands;
mod config;
mod context;
mod desk;
mod outcome;
mod requests;
mod service;
mod spent;
pub mod text;
mod tool;

pub use commands::JobCommand;
pub use config::JobsConfig;

pub use begin::{Begun, begin};
pub use commands::command;
pub use context::JobContext;
pub use desk::{Bell, Desk, take_up};
pub use requests::{Client, create, request};
pub use service::JobService;
pub use spent::spent;
pub use tool::{CreateJob, JobToolContext};
