//! The HTTP interface: the API, event streams, OpenAI-compatible endpoints, the signed webhook, and the control socket.
//!
//! **For**: programs that talk to the daemon. For the agent, the gateway is a channel like any other: [`HttpChannel`]
//! hands out [`belay_protocol::Envelope`]s, and a handler waits for the acknowledgement. Reads go to
//! [`belay_protocol::RunReader`], [`belay_protocol::ApprovalStore`], [`belay_protocol::JobStore`],
//! [`belay_protocol::RoutineStore`] and [`belay_protocol::EventLog`].
//!
//! **Does not know**: lanes, turns, models, SQL. It only decides whether a message is admitted. Architecture invariant:
//! a reader never holds anything that a run waits for. A slow reader delays only itself.
//!
//! Reading order: [`config`] → [`error`] → `channel` (how handlers reach the agent) → `app` (what handlers share) →
//! `entry` → `auth` → `extract` → `routes` → `sse` → `streams` → `submit` → `ws` → `mcp` → [`server`] (with
//! `control_socket`, `write_timeout` and `connection_slots`) → [`worker_link`].

mod agent_rpc;
mod app;
mod auth;
mod channel;
mod checks;
pub mod config;
mod connection_slots;
mod control_socket;
mod entry;
pub mod error;
mod export;
mod extract;
mod failed_auth;
mod files;
mod guard;
mod mcp;
mod new_socket;
mod parts;
mod peer;
mod router;
mod routes;
pub mod server;
mod sse;
mod streams;
mod submit;
mod visibility;
pub mod worker_link;
mod write_timeout;
mod ws;

pub use channel::HttpChannel;
pub use checks::LIST_MAX;
pub use config::{GatewayConfig, GatewaySecrets};
pub use control_socket::ControlGroup;
pub use error::GatewayError;
pub use parts::{GatewayParts, Metrics, QuestionWords, RoutineTimes, Trajectory};
pub use server::Gateway;
pub use worker_link::{LinkClient, WorkerLinkServer};
