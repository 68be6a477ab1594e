//! The inner loop: executes one run, from the request through model and tools to its end, and names the reason of that
//! end.
//!
//! **For**: every kind of run. [`run_agentic_loop`] is the shared loop. A [`LoopDelegate`] adapts it to a chat, a job
//! or a container. Four guardrails, called *brakes* in the code, keep a model from repeating itself without progress.
//! Each tells the model about the problem and continues, and most of them escalate:
//!
//! | brake | acts when | escalates |
//! |---|---|---|
//! | tool-intent nudge | a text announces a tool and calls none | lets the text through after 2 nudges in a row |
//! | truncated calls | a batch of calls is cut off by the length limit | no tools from the 3rd on |
//! | duplicate failures | every call of the same batch fails again | a warning at 2 and 3, no tools from 4 on |
//! | unavailable tool | a call names a tool that the run does not have | – |
//!
//! **Does not know**: channels, sessions, stores, providers, or how a tool is run. It never spawns, sleeps, or reads a
//! clock. Its only state is the [`LoopContext`] that it is given. The context can be stored at the end of any
//! iteration, and the run can be resumed from it.
//!
//! Reading order: [`run`] → [`delegate`] → [`context`] → [`history`] → [`state`] → `duplicates` → `batch` → `notices` → [`intent`] →
//! [`policies`] → [`account`].

pub mod account;
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
pub use state::{Fired, Forced, ForcedBy, Guardrail, GuardrailAction, LoopState};
pub use stops::INVALID_ARGUMENTS;
