//! Parts of the daemon that commands without a daemon build too: `ask`, `check`, `setup`, `mcp`, `backup` and others.
//!
//! **For**: [`Chosen`] (the model), [`Store`] (with the [`Node`] of a cluster, and the wait for a database that is away), [`Programs`] (what
//! tools use to act), [`ProcessNeeds`] and `mcp_servers` (programs and MCP servers), [`hooks()`], [`meaning`] and [`transcriber`] (servers of models beside
//! the chat), and the failures of each with their exit codes.
//!
//! **Does not know**: how the parts work together, or the order of a start: that is the work of the daemon's `wiring`. Nothing here runs by
//! itself.

#[cfg(feature = "mcp")]
mod command_pins;
mod failures;
mod hooks;
#[cfg(feature = "mcp")]
mod mcp;
mod model;
mod opening;
mod process_needs;
mod programs;
#[cfg_attr(not(feature = "mcp"), path = "no_servers.rs")]
mod servers;
mod services;
mod store;

#[cfg(feature = "mcp")]
pub use command_pins::CommandPins;
pub use failures::{agent_failure, gateway_failure};
pub use hooks::{HOOKS_GRACE, agent_texts, hooks};
#[cfg(feature = "mcp")]
pub use mcp::servers as mcp_servers;
pub use model::Chosen;
pub use opening::{message_files, opened, postgres_limits, refuse_store};
pub use process_needs::ProcessNeeds;
pub use programs::{Programs, ProgramsHandle, ToolPorts};
pub use services::{describe_services, meaning, transcriber};
pub use store::{COMMIT_DURATION, DatabaseWait, Lost, Node, NotStarted, Shared, Store, until_ended};
