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
//! Reading order: [`observation`] → [`state`] → [`rules`] → [`condition`] → one file for each policy, the three layers
//! of loop detection being [`tool_loops`], [`chanting`] and [`judge`].

pub mod chanting;
pub mod condition;
pub mod judge;
pub mod measures;
pub mod observation;
pub mod rules;
pub mod state;
pub mod tool_loops;

pub use condition::Condition;
pub use measures::Measures;
pub use observation::{CallOutcome, Observation, Totals};
pub use rules::{Rule, StopRules, Then};
pub use state::{Action, StopState, Verdict};
