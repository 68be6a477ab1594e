//! The heartbeat: a built-in routine. At intervals, it checks the operator's task list and reports only what needs
//! attention.
//!
//! **For**: [`set_up`] stores its routine according to the configuration; [`beat()`] executes its claimed routine runs
//! to their end; [`report()`] shows its state.
//!
//! **Does not know**: how a routine run is claimed, how a run is made or resumed, or how money is counted. The
//! routines and the runs do that as for every routine.
//!
//! These measures limit its cost. Before it calls a model, [`Facts::reason`](look::Facts::reason) looks for a reason
//! to skip the beat. Each run has a session of its own, so that no history is sent. Failures lead to a back-off. The
//! same alert is not sent twice within a day.
//!
//! Reading order: [`config`] → `spec` (its routine) → `look` (is there something to do?) with `list` and `back_off` →
//! `beat` (from its claim to its end) → `alert` → `work` and `text` (prompts for the model) → `report`.

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
