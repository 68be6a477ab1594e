//! How tools get on over all runs: those that fail again and again are reported, and switched off where a rule of the
//! operator, or the operator, says so.
//!
//! **For**: the gate, through which every call passes, asks for a [`Permit`] before a call and hands it back with
//! what the call's end says of its tool. What is off is offered to no model and refused to every run.
//!
//! **Does not know**: which ends of calls are a tool's own fault (the gate does), and what a run does when a tool is gone.
//!
//! The tally is in memory and begins anew with each start of the daemon; what is switched off is in the store, and stays off.
//!
//! Reading order: `rules` (the configuration, compiled) → `streak` (failures in a row) → `book` (all of it, and every
//! transition; pure) → `evidence` (what is kept of a failure) → `pass` and `health` (the book, shared, stored and told) →
//! `requests` and `commands` (who asks).

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
