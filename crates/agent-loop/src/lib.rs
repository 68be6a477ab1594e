//! The inner loop: one request through model and tools until it ends, for a reason that it can name.
//!
//! **For**: every kind of run. [`run_agentic_loop`] is the one skeleton; a [`LoopDelegate`] supplies what differs
//! between a chat, a job and a container. Four brakes keep a model from going round in circles, each by telling it what
//! it sees and going on, and escalating to a request without tools:
//!
//! | brake | acts when | escalates |
//! |---|---|---|
//! | tool-intent nudge | a text announces a tool and calls none | lets the text through after 2 nudges in a row |
//! | truncated calls | a batch of calls is cut off by the length limit | no tools from the 3rd on |
//! | duplicate failures | the same batch fails whole, again | a warning at 2 and 3, no tools from 4 on |
//! | unavailable tool | a call names a tool that the run does not have | – |
//!
//! **Does not know**: channels, sessions, stores, providers, or how a tool is run. It never spawns, sleeps, or reads a
//! clock, and it has no state but the [`LoopContext`] it is given, which can be stored and taken up again at the end of
//! any iteration.
//!
//! Reading order: [`run`] → [`delegate`] → [`context`] → [`history`] → [`state`] → `duplicates` → `batch` → `notices` → [`intent`] → [`policies`].

pub mod config;
pub mod context;
pub mod delegate;
pub mod error;
pub mod history;
pub mod intent;
pub mod policies;
pub mod run;
pub mod state;

mod batch;
mod duplicates;
mod notices;
mod stops;

pub use config::AgenticLoopConfig;
pub use context::{LoopContext, Reasoning};
pub use delegate::{AdmittedCall, LlmTurn, LoopDelegate, LoopOutcome, LoopSignal, Meter, PendingApproval, TextAction};
pub use duplicates::DuplicateTracker;
pub use error::{LoopError, Shortage};
pub use history::normalise;
pub use policies::{StopRules, StopState};
pub use run::run_agentic_loop;
pub use state::{Brake, BrakeAction, Fired, Forced, ForcedBy, LoopState};
pub use stops::INVALID_ARGUMENTS;
