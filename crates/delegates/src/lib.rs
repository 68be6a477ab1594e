//! Delegates: each adapts the shared loop to one kind of run.
//!
//! **For**: a turn passes the delegate of its kind to [`run_agentic_loop`](belay_agent_loop::run_agentic_loop).
//!
//! **Does not know**: lanes, queues, channels, or where replies go.
//!
//! Reading order: [`chat`] (the delegate of every turn) → [`job`] and [`job_worker`] (a job's turn, here or in a container) →
//! [`lightweight`] (a routine's small loop) → [`subagent`] → [`plan`] → [`container`] (the worker's side and the host's), with
//! `child_call` (the tools that start a subagent or a worker).

pub mod chat;
mod child_call;
pub mod container;
pub mod job;
mod job_worker;
pub mod lightweight;
pub mod plan;
pub mod subagent;

pub use container::WorkerRoom;
pub use container::WorkersConfig;
pub use container::WorkersParts;
pub use plan::check_executors;
