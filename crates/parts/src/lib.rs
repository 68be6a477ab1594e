//! Parts of the daemon that commands without a daemon build too: `ask`, `check`, `setup`, `mcp`, `backup` and others.
//!
//! **For**: [`Chosen`] (the model), [`Store`] (with the [`Node`] of a cluster, and the wait for a database that is away), [`Programs`] (what
//! tools use to act), [`McpNeeds`] and [`CommandPins`] (MCP servers), [`hooks()`], [`meaning`] and [`transcriber`] (servers of models beside
//! the chat), and the failures of each with their exit codes.
//!
//! **Does not know**: how the parts work together, or the order of a start: that is the work of the daemon's `wiring`. Nothing here runs by
//! itself.

mod command_pins;
mod failures;
mod hooks;
mod mcp;
mod model;
mod opening;
mod programs;
mod services;
mod store;

pub use command_pins::CommandPins;
pub use failures::{agent_failure, gateway_failure};
pub use hooks::{HOOKS_GRACE, agent_texts, hooks};
pub use mcp::{McpNeeds, own_pins};
pub use model::Chosen;
pub use opening::{message_files, opened, postgres_limits, refuse_store};
pub use programs::{Programs, ProgramsHandle, ToolPorts};
pub use services::{describe_services, meaning, transcriber};
pub use store::{COMMIT_DURATION, DatabaseWait, Lost, Node, NotStarted, Shared, Store, until_ended};
