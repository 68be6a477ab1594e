//! The stop engine: pure rules that observe everything a run does and decide when it ends.
//!
//! A run is a stream of [`Observation`]s, whether it happens now or is read from a recorded trajectory.
//! [`StopState::observe`] processes one after the other. It updates [`Measures`], which are the counters and a small
//! struct for each other policy, and evaluates the [`StopRules`]: each [`Rule`] is a [`Condition`] over measures,
//! combined by `any`, `all` and `not`. The first condition that becomes true gives a [`Verdict`]: a notice to the
//! model, a strike with a recovery turn, or the end of the run.
//!
//! ```text
//!  live run ──┐                      ┌─ Measures (steps, time, …, ToolLoops, Chanting, Replies, Errors)
//!             ├─ Observation ─► StopState ── Condition over Measures ── Rule ── Verdict { Notice | Recover | Stop }
//!  recording ─┘                      └─ strikes, latch, what was noticed
//! ```
//!
//! Everything is pure and serialisable. The state is stored with the state of the loop and continues after a restart.
//! Rules come from the configuration and are not stored. Nothing here awaits, reads a clock or allocates for each
//! character.
//!
//! Reading order: [`observation`] → [`rule`], the vocabulary → [`counters`] → [`measures`] → [`condition`] → [`rules`]
//! → [`state`]; then one file for each policy that is more than a counter. [`tool_loops`], [`chanting`] and [`judge`]
//! are the three layers of loop detection. The configuration is in [`config`], [`settings`] and [`limits`];
//! `contradictions` finds rules that cannot work.

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
pub mod settings;
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
pub use settings::{JudgeSettings, StopsSettings, ToolLoopSettings};
pub use state::{Action, StopState, Verdict};
