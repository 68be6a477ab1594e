//! Tools of MCP servers: programs that are started here, or addresses, that speak the Model Context Protocol.
//!
//! **For**: asking configured servers for their tools and offering those as tools of ours; remembering what each said of
//! itself when it was approved, and keeping out what has changed since; giving each run connections of its own, which end
//! with it.
//!
//! **Does not know**: who may call what (the effect gate), how processes are held together ([`belay_exec`]) or walled in
//! ([`crate::sandbox`]). Speaks no MCP itself, which the official SDK does. Trusts nothing that a server says: its
//! words are bounded and marked as its own, its hints never spare anybody a question.
//!
//! A server's description of a tool is pinned, not its program: one that keeps its words may still do something else.
//!
//! Reading order: [`config`] → `server` → `outside`, `offer`, `name` (what is taken of a server's words) → `pins` → `host`
//! (all servers together) → `tool` (one call) → `sessions`, `run_ends` (connections of runs) → `connection` → `program`,
//! `trees`, `wire`, `http`, `listener` (both ends of one) → `answer`, `trouble` (what comes of it).
//!
//! Source: <https://modelcontextprotocol.io/specification/2025-11-25>

mod answer;
pub mod config;
mod connection;
mod host;
mod http;
mod listener;
mod listing;
mod name;
mod offer;
mod outside;
mod pins;
mod program;
mod run_ends;
mod server;
mod sessions;
mod tool;
mod trees;
mod trouble;
mod wire;

pub use config::{McpServerConfig, Trust, find};
pub use host::{Looking, Mcp, ServerReport, Standing, Survey, ToolReport};
pub use pins::{Pins, PinsError};
pub use program::{Program, ServerProcesses, StartPrograms, Started};
pub use run_ends::RunEnds;
pub use server::{Server, Surroundings};
pub use sessions::McpSessions;
pub use trees::ProcessTrees;
