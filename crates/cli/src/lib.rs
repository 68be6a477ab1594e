//! The commands for a running daemon: clients of its public API, over the control socket or over HTTP with a token.
//!
//! **For**: [`args`] (what the command line says), [`client`] (the commands), [`mcp_serve`] (MCP over standard input and output),
//! [`completion`] (what TAB completes at a prompt) and [`man`] (manual pages).
//!
//! **Does not know**: settings, a store, an agent, or the routes behind the API. What a command needs of them, the composition root hands
//! in: the words of chat commands, and the test of a routine without a daemon.
//!
//! Reading order: [`args`] → [`client`] (its `connection` first) → [`completion`] → [`mcp_serve`] → [`man`].

pub mod args;
pub mod client;
pub mod completion;
#[cfg_attr(not(feature = "manual"), path = "no_man.rs")]
pub mod man;
#[cfg_attr(not(feature = "mcp"), path = "no_mcp_serve.rs")]
pub mod mcp_serve;
