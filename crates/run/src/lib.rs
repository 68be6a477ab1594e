//! One run: calls the model, executes tool calls, and stores the progress.
//!
//! **For**: every kind of run has a [`RunCore`](core::RunCore). It calls the model through [`model_call`], executes
//! tool calls through [`effect_gate`], stores each step through [`journal`], and can be watched and stopped through
//! [`live`].
//!
//! **Does not know**: which kind of run it serves, what started it, the queues of channels, or how a reply is
//! delivered.
//!
//! Reading order: [`services`] (used by every run) → [`request`] (what was asked of one run) → [`core`] (the parts of one
//! run) → [`model_call`] (the model call, with compaction and the wait for an outage) → [`effect_gate`] (passed by every
//! tool call), with [`approvals`], [`hooks`] and [`tool_health`] → [`child_asker`] and [`deadlines`] (questions of runs that
//! other runs have started) → [`journal`], with [`store_wait`] and [`unclear_write`] (a store that does not answer) → [`progress`] (how far a run has come) →
//! [`live`] → [`cost_guard`] and [`tally`] (money) → [`compaction`] and [`prompt`] (the context) → [`closing`] (the last
//! step) → [`titles`] (of conversations) → [`rights`] (the permissions of autonomous work). Shared by the parts around runs: [`restart`] (tasks that
//! panic), [`retry`] (pauses between attempts), [`failure_log`] (at which level failures are logged), [`run_tool`] (tools that act on their run).

pub mod approvals;
pub mod attached_pictures;
pub mod bootstrap;
pub mod child_asker;
pub mod chunking;
pub mod client_tools;
pub mod closing;
pub mod compaction;
mod completion;
pub mod completion_check;
pub mod config;
pub mod core;
pub mod cost_guard;
pub mod cost_slices;
pub mod deadlines;
pub mod effect_gate;
pub mod error;
pub mod estimate;
pub mod failure_log;
pub mod find_tools;
pub mod freeze;
pub mod grants;
pub mod hooks;
pub mod joining;
pub mod journal;
pub mod judge;
pub mod live;
pub mod memory;
pub mod metrics;
pub mod model_call;
mod model_stream;
pub mod outage;
pub mod own_tools;
pub mod pending_outbound;
mod person_wait;
pub mod progress;
pub mod prompt;
mod pulse;
pub mod reply;
pub mod request;
pub mod restart;
pub mod retry;
pub mod rights;
pub mod run_tool;
pub mod send_file;
pub mod send_message;
pub mod services;
pub mod store_wait;
pub mod tally;
pub mod terminate;
pub mod titles;
pub mod tool_health;
mod tool_words;
pub mod unattended;
pub mod unclear_write;
pub mod untrusted;

pub use approvals::ApprovalRule;
pub use approvals::ApprovalsConfig;
pub use chunking::Break;
pub use chunking::SendAt;
pub use chunking::StreamingConfig;
pub use config::AgentConfig;
pub use config::ExecutorConfig;
pub use config::LimitsConfig;
pub use config::PlanConfig;
pub use config::SubagentsConfig;
pub use config::{CompactionConfig, EmbeddingsConfig, MemoryConfig};
pub use error::AgentError;
pub use own_tools::OWN_TOOLS;
pub use rights::DisabledChannels;
