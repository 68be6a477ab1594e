//! Runs that a run starts, and runs with declared outputs.
//!
//! A subagent is a run of the shared inner loop with a conversation of its own. The model of the parent run gives it a
//! task, some of the parent's tools, and tools to submit its outputs. It is charged to the account of the whole run
//! tree, stops with its parent, and ends for one of five reasons: `GOAL`, `MAX_TURNS`, `TIMEOUT`, `ERROR`, `ABORTED`.
//!
//! Reading order: [`bounds`] → [`outputs`] → [`emit`] → [`goal`] → [`lanes`] → [`delegate`] → [`spawn`].

mod bounds;
mod delegate;
mod emit;
mod goal;
mod lanes;
mod outputs;
mod shapes;
mod spawn;

pub(crate) use goal::GoalRun;
pub use goal::{Goal, last_chance};
pub use lanes::{ChildServices, SubagentLanes};
pub use outputs::Declared;
pub(crate) use spawn::binder;
pub use spawn::{spawn_subagent_tool, spawned};
