//! The commands before a start: `belay setup`, `belay check`, `belay mcp list` and `approve`, and `belay upgrade check`.
//!
//! **For**: [`setup()`] asks for what a first start needs, checks each answer and writes the settings file. [`check()`] tells what a start would
//! find, and [`upgrade_check`] what this version would change.
//!
//! **Does not know**: a running daemon, or an agent. It starts nothing that outlives the command, and changes no store.
//!
//! Reading order: `setup` → `check` → `mcp_args` → `mcp` → `upgrade`.

mod check;
#[cfg_attr(not(feature = "mcp"), path = "no_mcp.rs")]
mod mcp;
mod mcp_args;
mod setup;
mod upgrade;

pub use check::{CheckUnitArgs, check};
pub use mcp::{approve as mcp_approve, list as mcp_list};
pub use mcp_args::{ApproveArgs, ListArgs as McpListArgs};
pub use setup::{SetupArgs, setup};
pub use upgrade::{UpgradeCommand, check as upgrade_check};
