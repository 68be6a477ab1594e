//! Plans: `/plan TEXT` makes the model split the work into steps, then executors work through them one at a time.
//!
//! ```text
//! /plan TEXT ─► planner (the tool `planning` alone) ─► plan
//!                  ┌──────────────────────────────────────┘
//!                  ▼
//!      first step that is not started or in progress ──none──► summary ─► plan_completed | plan_blocked
//!                  ▼                        ▲
//!      executor by its [TAG] ─► child run ──┤ completed
//!                                           ├ failed: another attempt, then blocked
//!                                           └ terminate(failure): blocked
//! ```
//!
//! Planner and executors are child runs through the shared loop: charged to the run's account, stopped with it, and not
//! in its thread, which keeps the person's text and the summary. After each change the state is stored in
//! `LoopState::delegate`, so that a restart goes on at the step that was in progress.
//!
//! Reading order: [`plans`] (what a plan is) → [`mod@tool`] → [`flow`] (the loop over steps) → [`planner`] → [`step`] →
//! [`inbox`] (what is said to a job meanwhile) → [`executors`] → [`state`] → [`texts`].

mod executors;
mod flow;
mod inbox;
mod planner;
mod plans;
mod state;
mod step;
mod texts;
mod tool;

use std::sync::Arc;

use belay_protocol::Tool;

pub use executors::PlanKit;
pub use executors::check_executors;
pub use flow::{PlanBudget, PlanTask, run_plan};

/// The tool that planners have, for whoever must know its schema.
pub fn tool() -> Arc<dyn Tool> {
    Arc::new(tool::Planning::over(tool::SharedPlans::default()))
}
