//! Plans: `/plan TEXT` makes the model split the work into steps, then executors work through them one at a time. While a
//! step waits for a person, a step that does not need it works.
//!
//! ```text
//! /plan TEXT ─► planner (the tool `planning` alone) ─► plan
//!                  ┌──────────────────────────────────────┘
//!                  ▼
//!      first open step whose needed steps have ended ──none──► summary ─► plan_completed | plan_blocked
//!                  ▼                        ▲
//!      executor by its [TAG] ─► child run ──┤ completed
//!                                           ├ failed: another attempt, then blocked
//!                                           └ terminate(failure): blocked
//! ```
//!
//! Planner and executors are child runs of the shared loop. They are charged to the run's account and stopped with the
//! run. The run's thread contains the person's text and the summary, and nothing of the child runs. After each change,
//! the state is stored in `LoopState::delegate`, so that a restart continues at the step in progress. People see the plan
//! and change it by commands, which come to the flow by `belay_run::live::PlanPort`.
//!
//! Reading order: [`plans`] (the data of a plan) → [`mod@tool`] → [`flow`] (the loop over steps) → [`running`] →
//! [`planner`] → [`step`] → [`inbox`] (messages to a job meanwhile) → [`changes`] (by people) → [`review`] (a plan that waits for them) → [`executors`] → [`state`] → [`texts`].

mod changes;
mod executors;
mod flow;
mod inbox;
mod planner;
mod plans;
mod review;
mod running;
mod state;
mod step;
mod texts;
mod tool;

use std::sync::Arc;

use belay_protocol::Tool;

pub use executors::PlanKit;
pub use executors::check_executors;
pub use flow::{PlanBudget, PlanTask, run_plan};

/// The planner's tool, for code that needs its schema.
pub fn tool() -> Arc<dyn Tool> {
    Arc::new(tool::Planning::over(tool::SharedPlans::default()))
}
