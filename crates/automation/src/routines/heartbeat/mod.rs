//! The heartbeat: a routine that is built in. From time to time it looks at the operator's list of what is to be watched, and
//! says something only where something needs attention.
//!
//! **For**: [`set_up`] makes its routine what the configuration says; [`beat()`] leads its claimed routine runs to their end;
//! [`report()`] says how it stands.
//!
//! **Does not know**: how a routine run is claimed once, how a run is made or taken up again, or how money is counted: that is as
//! with every routine.
//!
//! What keeps it from being dear: before a model is asked, [`Facts::reason`](look::Facts::reason) looks for a reason to skip
//! the beat; the run has a session of its own, so that no history is paid; failures make the pauses longer; the same words are
//! not told twice within a day.
//!
//! Reading order: [`config`] → `spec` (its routine) → `look` (is there something to do?) with `quiet`, `list` and `back_off` →
//! `beat` (from its claim to its end) → `alert` → `work` and `text` (its model) → `report`.

mod alert;
mod back_off;
mod beat;
pub mod config;
mod list;
mod look;
mod report;
mod spec;
mod text;
mod work;

pub(super) use beat::beat;
pub use config::Heartbeat;
pub use config::{DeliverTo, HeartbeatConfig};
pub(super) use report::report;
pub(super) use spec::{options, set_up};
pub(super) use work::task;
