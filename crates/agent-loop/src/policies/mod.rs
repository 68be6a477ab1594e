//! The stop engine: pure rules that look at everything a run does and say when it should end.
//!
//! A run is a stream of [`Observation`]s, the same whether it happens now or is read from a recorded trajectory.
//! [`StopState::observe`] takes one after the other. It keeps [`Measures`], the counters and a small struct for each other policy, and asks
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
//! Reading order: [`observation`] → [`rule`], the vocabulary → [`counters`] → [`measures`] → [`condition`] → [`rules`] →
//! [`state`]; then one file for each policy that is more than a counter, the three layers of loop detection being [`tool_loops`], [`chanting`] and [`judge`]. The configuration is in [`config`]
//! and [`limits`]; `contradictions` looks for rules
//! that cannot work.

pub mod chanting;
pub mod condition;
pub mod config;
pub mod counters;
pub mod errors;
pub mod judge;
pub mod limits;
pub mod measures;
pub mod mentions;
pub mod observation;
pub mod replies;
pub mod rule;
pub mod rules;
pub mod state;
pub mod time;
pub mod tool_loops;

mod contradictions;
mod digest;
mod shingles;

pub use config::{RulesFile, StopsConfig};
pub use judge::{JudgeConfig, JudgeState};
pub use limits::RunLimits;
pub use measures::Measures;
pub use observation::{CallOutcome, Observation, Totals};
pub use rule::{Condition, Counter, Rule, Since, Then, ToolCount};
pub use rules::StopRules;
pub use state::{Action, StopState, Verdict};
