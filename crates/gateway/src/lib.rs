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
//! `entry` → `auth` → `sign_ins` → `console` → `extract` → `file_links` → `gauges` → `routes` → `table` → `openapi` → `sse` → `fact_pages` → `fact_feed` → `streams` → `submit` → `ws` → `mcp` → [`server`] (with
//! `control_socket`, `socket_watch`, `write_timeout` and `connection_slots`) → [`worker_link`].

mod agent_rpc;
mod app;
mod auth;
pub mod callback;
mod channel;
mod checks;
pub mod config;
mod connection_slots;
mod console;
mod control_socket;
mod cursor;
mod dates;
mod entry;
pub mod error;
mod event_json;
mod export;
mod extract;
mod fact_feed;
mod fact_pages;
mod failed_auth;
mod file_links;
mod files;
mod first_attempts;
mod foreign;
mod gauges;
mod goal;
mod guard;
#[cfg_attr(not(feature = "mcp"), path = "no_mcp.rs")]
mod mcp;
mod new_socket;
mod openapi;
mod parts;
mod peer;
mod readers;
mod resenders;
mod router;
mod routes;
pub mod server;
mod sign_ins;
mod slots;
#[cfg_attr(not(feature = "websocket"), path = "no_socket.rs")]
mod socket;
mod socket_watch;
mod sse;
mod streams;
mod submit;
mod table;
mod texts;
mod visibility;
mod words;
pub mod worker_link;
mod write_timeout;
mod ws;

pub use callback::CallbackChannel;
pub use channel::{HTTP_QUALITY, HttpChannel};
pub use checks::LIST_MAX;
pub use config::{GatewayConfig, GatewaySecrets};
pub use control_socket::ControlGroup;
pub use error::GatewayError;
pub use file_links::{LINK_KEY_BYTES, SignedLinks};
pub use gauges::GaugeRefresh;
pub use parts::{
    BackupFailure, BackupRefusal, BackupRequest, BackupStatus, Backups, ClusterView, DatabaseLoss, GatewayParts,
    JudgeOfRules, Judged, KeptSecrets, Latency, LatencyPeriod, Metrics, Models, RoutineTest, RoutineTime, RoutineTimes,
    RunJudge, SettingValue, SettingsReport, SettingsSource, Trajectory,
};
pub use router::serves;
pub use server::Gateway;
pub use texts::{AgentTexts, QuestionWords};
pub use worker_link::{LinkClient, WorkerLinkServer};
