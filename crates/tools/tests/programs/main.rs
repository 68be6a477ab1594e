//! Programs that tools start and end: commands and MCP servers.
//!
//! Each test has a registry of processes, which makes the test process the reaper of orphans. That is the reason for the
//! second test binary, `confined`: a registry here would end the processes that a leak of the sandbox leaves behind.
#![allow(clippy::unwrap_used, missing_docs)]

mod commands;
#[cfg(feature = "mcp")]
mod mcp;
