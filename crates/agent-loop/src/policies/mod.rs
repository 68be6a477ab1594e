//! The stop engine: pure rules that look at everything a run does and say when it should end.
//!
//! A run is a stream of [`Observation`]s, the same whether it happens now or is read from a recorded trajectory.
//! [`StopState::observe`] takes one after the other. It keeps [`Measures`], one small struct for each policy, and asks
//! the [`StopRules`] about them: each [`Rule`] is a [`Condition`] over measures, combined by `any`, `all` and `not`. The
//! first condition that turns true gives a [`Verdict`]: a notice to the model, a strike with a recovery turn, or the end.
//!
//! ```text
//!  live run ──┐                      ┌─ Measures (steps, time, …, ToolLoops, Chanting, Replies, Errors)
//!             ├─ Observation ─► StopState ── Condition over Measures ── Rule ── Verdict { Notice | Recover | Stop }
//!  recording ─┘                      └─ strikes, latch, what was noticed
//! ```
//!
//! Everything is pure and serialisable: the state is stored with the loop's and counts on after a restart; rules come
//! from the configuration and are not stored. Nothing here awaits, reads a clock or allocates for each character.
//!
//! Reading order: [`observation`] → [`state`] → [`rules`] → [`condition`] → [`measures`] → one file for each policy, the
//! three layers of loop detection being [`tool_loops`], [`chanting`] and [`judge`]. The configuration is in [`config`]
//! and [`limits`]; `contradictions` looks for rules
//! that cannot work.

pub mod approval_reasks;
pub mod chanting;
pub mod compactions;
pub mod condition;
pub mod config;
pub mod empty_replies;
pub mod errors;
pub mod invalid_arguments;
pub mod judge;
pub mod limits;
pub mod measures;
pub mod mentions;
pub mod model_calls;
pub mod money;
pub mod observation;
pub mod output_bytes;
pub mod replies;
pub mod rules;
pub mod state;
pub mod steps;
pub mod time;
pub mod tokens;
pub mod tool_calls;
pub mod tool_loops;
pub mod unknown_tools;

mod contradictions;
mod digest;
mod shingles;
mod streak;

pub use condition::{Condition, ToolCount};
pub use config::{RulesFile, StopsConfig};
pub use judge::{JudgeConfig, JudgeState};
pub use limits::RunLimits;
pub use measures::Measures;
pub use observation::{CallOutcome, Observation, Totals};
pub use rules::{Rule, Since, StopRules, Then};
pub use state::{Action, StopState, Verdict};
