//! Tools of MCP servers. A server is a local program that Belay starts, or an address.
//!
//! **For**: lists the tools of the configured servers and offers them as tools of Belay. Stores the description of each
//! tool when it is approved, and blocks tools whose description has changed since. Gives each run its own connections,
//! which end with the run.
//!
//! **Does not know**: who may call a tool (the effect gate), and how processes are supervised ([`belay_exec`]) or
//! restricted ([`crate::sandbox`]). The official SDK implements the protocol. Everything that a server sends is
//! untrusted content: its texts are bounded and marked with their source, and its hints never skip an approval.
//!
//! A pin covers a server's description of a tool, not its program. A server may change its behaviour under the same
//! description.
//!
//! Reading order: [`config`] → `server` → `untrusted`, `offer`, `patterns`, `name` (clean and check what a server
//! sends) → `pins` → `host` (all servers together) → `asking` → `remembered`, `late` (their tools at a start),
//! `logged_in` → `tool` (one call) → `sessions` (connections of runs) → `connection` → `oauth` (logins over HTTP) →
//! `membership`, `calls`, `rounds` → [`tasks`] → `program`, `trees`, `hidden`, `wire`, `http`, `http_client`,
//! `http_login`, `http_request`, `http_listing`, `incoming`, `listener` (both ends of a connection) → `listing`,
//! `answer`, `parts`, `server_error` (results and errors).
//!
//! Source: <https://modelcontextprotocol.io/specification/2025-11-25>

mod answer;
mod asking;
mod calls;
pub mod config;
mod connection;
mod elicitation;
mod elicitor;
mod hidden;
mod host;
mod http;
mod http_client;
mod http_echo;
mod http_listing;
mod http_login;
mod http_request;
mod incoming;
mod input;
mod late;
mod listener;
mod listing;
mod logged_in;
mod membership;
mod name;
mod oauth;
mod offer;
mod opening;
mod parts;
mod patterns;
mod pins;
mod program;
mod remembered;
mod revision;
mod rounds;
mod server;
mod server_error;
mod sessions;
mod subscribed;
mod tasks;
mod tool;
mod trees;
mod troubles;
mod untrusted;
mod wire;

pub use config::{McpServerConfig, OauthConfig, Trust, find};
pub use connection::EndLimits;
pub use host::{Mcp, ServerReport, Standing, Survey, SurveyMode, ToolReport};
pub use late::{Arrival, Arrivals};
pub use membership::Membership;
pub use oauth::LoginChange;
pub use pins::{Pins, PinsError};
pub use program::{Program, ServerProcesses, StartPrograms, Started};
pub use remembered::KnownServers;
pub use server::{Server, ServerInputs};
pub use sessions::McpSessions;
pub use trees::ProcessTrees;
