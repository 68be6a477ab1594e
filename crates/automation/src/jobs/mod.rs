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
//! Reading order: `config` → `requests` (making, cancelling, accepting) → `scheduler` (what begins) → `supervisor` (from attempt to attempt) → `outcome` → `begin`
//! → `spent`, `context` (what everything that works on it shares) → `tool` → `commands` → `text`.

mod begin;
mod commands;
mod config;
mod context;
mod outcome;
mod requests;
mod scheduler;
mod service;
mod spent;
mod supervisor;
pub mod text;
mod tool;

pub use commands::JobCommand;
pub use config::JobsConfig;

pub use begin::{Begun, begin};
pub use commands::command;
pub use context::JobContext;
pub use requests::{JobRequester, create, request};
pub use scheduler::{JobScheduler, Wakeup, take_up};
pub use service::JobService;
pub use spent::spent;
pub use tool::{JobToolContext, create_job_tool};
