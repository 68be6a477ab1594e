//! Delegates: each adapts the shared loop to one kind of run.
//!
//! **For**: a turn passes the delegate of its kind to [`run_agentic_loop`](belay_agent_loop::run_agentic_loop).
//!
//! **Does not know**: lanes, queues, channels, or where replies go.
//!
//! Reading order: [`chat`] (the delegate of a conversation's turn) → [`job`] and `job_worker` (a job's turn, in the
//! daemon or in a worker) → [`lightweight`] (the small loop of a routine) → [`subagent`] → [`plan`] → [`goals`] → [`container`]
//! (workers: their side and the host's), and `child_call` (shared by the tools that start a subagent or a worker).

pub mod chat;
mod child_call;
pub mod container;
pub mod goals;
pub mod job;
mod job_worker;
pub mod lightweight;
pub mod plan;
pub mod subagent;

pub use container::WorkerHostKind;
pub use container::WorkersConfig;
pub use container::WorkersParts;
pub use plan::check_executors;
