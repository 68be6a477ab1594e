//! The kinds of run, side by side: what each adds to the shared loop.
//!
//! **For**: a turn takes the delegate of its kind and gives it to
//! [`run_agentic_loop`](belay_agent_loop::run_agentic_loop).
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
