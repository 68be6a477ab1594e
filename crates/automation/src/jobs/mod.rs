//! Jobs: work that outlives the turn that started it.
//!
//! A job is a row in the store with a state and a session of its own. Each attempt is an ordinary run in that session:
//! accepted, checkpointed, stopped, watched and metered like any other. This module adds:
//!
//! ```text
//!  requests ──row──▶ scheduler ──message (job, attempt)──▶ lane ──▶ begin ──▶ delegate ──▶ end of the run
//!  (tool, command,       ▲                                                                      │
//!   control)             └────────── settle: done, failed, cancelled, stuck ◀──── outcome ──────┘
//! ```
//!
//! **Does not know**: how the agent makes, resumes or stops a run; when routines start.
//!
//! Reading order: `config` → `requests` (create, cancel, accept) → `scheduler` (begins jobs) → `supervisor` (follows a
//! job from attempt to attempt) → `outcome` → `begin` → `spent`, `context` (shared by the parts that work on a job) →
//! `tool` → `commands` → `text`.

mod begin;
mod commands;
mod config;
mod context;
mod manage;
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
pub use manage::{JobAction, ManageJobs};
pub use requests::{JobRequester, create, request};
pub use scheduler::{JobScheduler, Wakeup, reclaim};
pub use service::JobService;
pub use spent::spent;
pub use tool::{JobToolContext, create_job_tool};
