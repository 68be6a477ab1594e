//! The outer loop: route, serialise, delegate, deliver.
//!
//! **For**: [`Agent::run`] merges the streams of all channels and routes each message to the lane of its session. A lane
//! commits it, runs its turn through the shared inner loop, and commits the end together with the reply, which
//! [`delivery`] then shows. `/stop` and its like are acted on by the dispatcher at once, whatever a turn is doing.
//!
//! **Does not know**: the network, SQL, processes, or any concrete channel, model, tool or store.
//!
//! Reading order: [`agent`] (the loop) → `assembly` (who receives what) → [`submission`] (what a message asks for) →
//! `dispatcher` (routing) → `live` and `mail` (what dispatcher and lane share and say) → `lane` and `waiting` → `turn` →
//! [`chat`] (the delegate) → `model_call` (asking the model) → [`effect_gate`] (running its calls) → [`own_tools`] →
//! [`tool_health`] → [`cost_guard`] → [`compaction`] → [`delivery`]. Other kinds of run are in `plan`, `delegates`, `subagent`
//! and, in a process of its own, [`container`]. Work that outlives its turn is in [`jobs`]; what starts work by itself is in
//! [`routines`], and what either may do in `rights`. Rules that change while it runs: [`reload`].

pub mod agent;
mod agent_services;
pub mod approvals;
mod assembly;
mod bootstrap;
pub mod chat;
mod chosen;
mod chunking;
mod closing;
pub mod compaction;
mod completion;
mod completion_check;
pub mod config;
pub mod container;
mod context_report;
mod core;
pub mod cost_guard;
mod delegates;
pub mod delivery;
mod dispatcher;
pub mod effect_gate;
pub mod error;
pub mod estimate;
mod hooks;
mod inlet;
pub mod jobs;
mod joining;
pub mod journal;
mod judge;
mod lane;
mod live;
mod mail;
pub mod metrics;
mod model_call;
mod model_stream;
mod numbers;
mod outage;
pub mod own_tools;
pub mod pending_outbound;
mod plan;
mod post;
mod prompt;
mod pulse;
mod queue;
pub mod reload;
pub mod reply;
mod restart;
mod rights;
pub mod routines;
mod sending;
mod services;
pub mod sessions;
mod speaker;
mod streaming;
mod subagent;
pub mod submission;
pub mod tally;
mod telling;
mod terminate;
pub mod tool_health;
mod turn;
mod unattended;
mod waiting;

pub use agent::{Agent, AgentExit};
pub use approvals::{ApprovalRule, ApprovalsConfig};
pub use config::CompactionConfig;
pub use config::{AgentConfig, ExecutorConfig, LimitsConfig, PlanConfig, SubagentsConfig};
pub use container::{WorkerRoom, WorkersConfig, WorkersParts};
pub use error::AgentError;
pub use jobs::JobsConfig;
pub use own_tools::OWN_TOOLS;
pub use reload::{Reloader, Rules};
pub use routines::{HeartbeatConfig, RoutinesConfig};

pub use agent_services::StorePorts;
pub use assembly::AgentParts;
pub use chunking::{Break, SendAt, StreamingConfig};
pub use plan::check_executors;
pub use queue::QueueConfig;
pub use rights::Absent;
pub use sessions::{ChannelReset, ResetMode, SessionsConfig};
