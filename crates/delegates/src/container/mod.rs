//! Runs that are carried out by a worker: a process of its own, inside the sandbox or a container.
//!
//! **For**: `run_in_worker`, by which a run hands a part of its work to a worker, and the worker's own side. The loop is
//! the shared one and runs in the worker; what counts stays here. The worker has no model, no secret, no journal and no
//! right: it asks for each over a link that is bound to its job. Every call of a tool goes through the host's effect
//! gate, which hands the worker's own tools back to it once they may run.
//!
//! ```text
//!   host                                                   worker, behind walls
//!   job (one timeout, one end) ◀── desk ◀──── link ◀────── run_agentic_loop with ContainerDelegate
//!    ├─ model  → RunCore::ask (cost guard, limits)          │
//!    └─ batch  → RunCore::execute (the gate) ── order ────▶ its own tools: files, commands
//! ```
//!
//! **Does not know**: HTTP, sockets, processes, sandboxes: those are ports of [`belay_protocol::worker`].
//!
//! Reading order: [`config`] → [`worker`] (the worker's side) → `tool` → `job` → `session` → `job_host` (who answers) →
//! `orders` and `remote` (how a call is handed back) → `report`.

pub mod config;
mod job;
mod job_host;
mod orders;
mod remote;
mod report;
mod session;
mod tool;
pub mod worker;

use std::sync::Arc;

use belay_protocol::{WorkerHost, WorkerLinks};

pub use config::{WorkerRoom, WorkersConfig};
pub(crate) use tool::ToolGrant;
pub use tool::run_in_worker_tool;
pub use worker::work;

/// What workers are started with.
#[derive(Clone)]
pub struct WorkersParts {
    /// `[workers]`
    pub config: WorkersConfig,
    /// Starts them.
    pub host: Arc<dyn WorkerHost>,
    /// Opens their links.
    pub links: Arc<dyn WorkerLinks>,
}
