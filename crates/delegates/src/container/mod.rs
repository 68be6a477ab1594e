//! Runs in a worker: a process of its own, in the sandbox or in a container.
//!
//! **For**: `run_in_worker`, the tool with which a run delegates a part of its work to a worker, and the worker's side
//! of it. The worker executes the shared loop. It has no model, no secret, no journal and no permission: it requests
//! each of them over a link that belongs to its job. Every tool call passes the host's effect gate, which hands
//! permitted calls of the worker's own tools back to the worker.
//!
//! ```text
//!   host                                                   worker, isolated
//!   job (one timeout, one end) ◀── job host ◀── link ◀──── run_agentic_loop with ContainerDelegate
//!    ├─ model  → RunCore::ask (cost guard, limits)          │
//!    └─ batch  → RunCore::execute (the gate) ── order ────▶ its own tools: files, commands
//! ```
//!
//! **Does not know**: HTTP, sockets, processes and sandboxes. These are ports of [`belay_protocol::worker`].
//!
//! Reading order: [`config`] → [`worker`] (the worker's side) → `tool` → `job` → `session` → `job_host` (answers
//! requests) → `orders` and `remote` (hand calls back to the worker) → `report`.

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

pub use config::{WorkerHostKind, WorkersConfig};
pub(crate) use tool::ToolGrant;
pub use tool::run_in_worker_tool;
pub use worker::work;

/// The parts with which workers are started.
#[derive(Clone)]
pub struct WorkersParts {
    /// `[workers]`.
    pub config: WorkersConfig,
    /// Starts workers.
    pub host: Arc<dyn WorkerHost>,
    /// Opens the links of workers.
    pub links: Arc<dyn WorkerLinks>,
}
