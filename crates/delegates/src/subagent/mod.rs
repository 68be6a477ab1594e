//! Runs that a run starts, and runs that must come up with declared outputs.
//!
//! A subagent is a run of the shared inner loop with a conversation of its own: it is given a task by the model of the
//! run that starts it, a part of that run's tools, and tools to hand over its outputs. It is charged to the account of
//! the whole tree, stops with its parent, and ends for one of five reasons: `GOAL`, `MAX_TURNS`, `TIMEOUT`, `ERROR`,
//! `ABORTED`.
//!
//! Reading order: [`bounds`] → [`outputs`] → [`emit`] → [`goal`] → [`lanes`] → [`delegate`] → [`spawn`].

mod bounds;
mod delegate;
mod emit;
mod goal;
mod lanes;
mod outputs;
mod spawn;

pub(crate) use goal::GoalRun;
pub use goal::{Goal, last_chance};
pub use lanes::{ChildServices, SubagentLanes};
pub use outputs::Declared;
pub(crate) use spawn::binder;
pub use spawn::{spawn_subagent_tool, spawned};
