//! Tools of MCP servers, with real servers: small Python scripts, well-behaved and hostile, as child processes, and HTTP
//! servers on loopback. The official SDK as the other side is in `tests/mcp_official`.
#![allow(clippy::unwrap_used, missing_docs)]

mod calls;
mod hostile;
mod http;
mod lives;
mod offers;
mod support;
mod walls;
