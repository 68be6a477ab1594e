//! Circuit breakers of tools over all runs. Tools that fail repeatedly are reported. A rule of the operator, or the
//! operator, can disable them.
//!
//! **For**: the effect gate, which every call passes. It gets a [`Permit`] before a call, and returns it with what the
//! end of the call shows about the tool. A disabled tool is offered to no model and refused to every run.
//!
//! **Does not know**: which ends of calls are a tool's own fault (the gate knows), and what a run does without a tool.
//!
//! The counts are in memory and start at zero with each start of the daemon. Disabled tools are in the store and stay
//! disabled.
//!
//! Reading order: `rules` (the configuration, compiled) → `streak` (consecutive failures) → `book` (the state machine;
//! pure) → `evidence` (the record of a failure) → `pass` and `health` (the book, shared and stored) → `requests` and
//! `commands` (requests of people and programs).

mod book;
#[cfg(test)]
mod book_tests;
mod commands;
mod evidence;
mod health;
mod pass;
mod requests;
mod rules;
mod streak;

pub use commands::ToolsCommand;
pub use commands::{USAGE, command, trouble_line};
pub use evidence::{Fault, ToolSignal};
pub use health::{FAILING_TOOL, FAILING_TOOL_TIMES};
pub use health::{Health, HealthPorts};
pub use pass::Permit;
pub use requests::request;
pub use rules::problems;
