//! Rules that change while the agent runs.
//!
//! Each kind of rules is one immutable snapshot that is swapped as a whole, so that nobody sees half of a change and nobody
//! waits. When a change takes effect:
//!
//! - **rules for stopping**: for runs whose attempt begins afterwards. A run that is under way keeps its rules to its end, since
//!   its counters were made for them; a paused run that is resumed takes the new ones, as it does after a restart.
//! - **approval rules**: from the next tool call on, also in runs that are under way: an operator who forbids something means
//!   now. A question that waits stays as it was asked.
//! - **budgets of a day and prices**: from the next model call on.
//! - **routines of the configuration**: at once. Routine runs under way go on.

use std::sync::Arc;

use belay_agent_loop::StopRules;
use belay_protocol::{RoutineSpec, StoreError};

use crate::agent_services::AgentServices;
use belay_automation::routines;
use belay_run::approvals::{ApprovalsConfig, Policy};
use belay_run::config::LimitsConfig;

/// The rules that can be swapped, checked by whoever read them.
#[derive(Clone)]
pub struct Rules {
    /// `[stops]`, and the part of `[limits]` that is about one run.
    pub stops: Arc<StopRules>,
    /// `[limits]`
    pub limits: LimitsConfig,
    /// `[approvals]`
    pub approvals: ApprovalsConfig,
    /// `routines.define`
    pub routines: Vec<RoutineSpec>,
}

/// Swaps the rules of a running agent.
#[derive(Clone)]
pub struct Reloader {
    services: Arc<AgentServices>,
}

impl Reloader {
    pub(crate) fn new(services: Arc<AgentServices>) -> Self {
        Self { services }
    }

    /// Stores the routines, calls `others`, which swaps what is not the agent's, and works by these rules from then on. The
    /// price of the model is asked for again as well.
    ///
    /// # Errors
    /// The store does not take the routines. Some of them may be stored; no other rule has changed, and `others` was not
    /// called. Doing it again is safe.
    ///
    /// # Cancel safety
    /// Dropped while the routines are being stored, some of them are; doing it again stores the rest.
    pub async fn apply(&self, rules: Rules, others: impl FnOnce()) -> Result<(), StoreError> {
        let services = &self.services;
        routines::redefine(&services.routines, rules.routines).await?;
        others();
        services.run.adopt_rules(rules.stops);
        services.run.gate.adopt(Policy::compile(&rules.approvals));
        services.approvals.store(Arc::new(rules.approvals));
        services.run.cost.adopt(rules.limits.per_day(), services.run.model.dearest());
        Ok(())
    }
}
