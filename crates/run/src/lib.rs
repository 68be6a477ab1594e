//! One run: asking the model, carrying out its tool calls, and keeping what has happened.
//!
//! **For**: every kind of run has a [`RunCore`](core::RunCore). It asks the model through [`model_call`], carries out tool calls
//! through [`effect_gate`], stores each step through [`journal`], and is seen and stopped by others through [`live`].
//!
//! **Does not know**: which kind of run it serves, what started it, channels' queues, or how a reply is delivered.
//!
//! Reading order: [`services`] (what every run uses) → [`request`] (what was asked of one run) → [`core`] (what one run has) → [`model_call`] (asking the model; compaction
//! and the wait for an outage are its steps) → [`effect_gate`] (the one place that every tool call passes), with [`approvals`],
//! [`hooks`] and [`tool_health`] → [`journal`] → [`live`] → [`cost_guard`] and [`tally`] (money) → [`compaction`] and
//! [`prompt`] (the context) → [`progress`] (what a run keeps between attempts) → [`closing`] (the last step) → [`rights`] (the permissions of autonomous work).

pub mod approvals;
pub mod bootstrap;
pub mod chunking;
pub mod closing;
pub mod compaction;
mod completion;
pub mod completion_check;
pub mod config;
pub mod core;
pub mod cost_guard;
pub mod effect_gate;
pub mod error;
pub mod estimate;
pub mod hooks;
pub mod joining;
pub mod journal;
pub mod judge;
pub mod live;
pub mod metrics;
pub mod model_call;
mod model_stream;
pub mod outage;
pub mod own_tools;
pub mod pending_outbound;
pub mod progress;
pub mod prompt;
mod pulse;
pub mod reply;
pub mod request;
pub mod restart;
pub mod rights;
pub mod send_message;
pub mod services;
pub mod tally;
pub mod terminate;
pub mod tool_health;
pub mod unattended;
pub mod untrusted;

pub use approvals::ApprovalRule;
pub use approvals::ApprovalsConfig;
pub use chunking::Break;
pub use chunking::SendAt;
pub use chunking::StreamingConfig;
pub use config::AgentConfig;
pub use config::CompactionConfig;
pub use config::ExecutorConfig;
pub use config::LimitsConfig;
pub use config::PlanConfig;
pub use config::SubagentsConfig;
pub use error::AgentError;
pub use own_tools::OWN_TOOLS;
pub use rights::Absent;
