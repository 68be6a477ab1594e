//! Reload of rules while the agent runs.
//!
//! Each kind of rules is one immutable snapshot that is swapped as a whole. So no reader sees half of a change, and no
//! reader waits. A change takes effect:
//!
//! - **stop rules**: for runs whose attempt begins afterwards. A running run keeps its rules to its end, because its
//!   counters belong to them. A paused run that is resumed uses the new rules, as after a restart.
//! - **approval rules**: from the next tool call on, also in running runs, because a new prohibition must apply at
//!   once. An open approval request stays as it is.
//! - **budgets of a day and prices**: from the next model call on.
//! - **routines of the configuration**: at once. Current routine runs continue.
//!
//! Tools of MCP servers that start late are added in the same way, for runs that begin afterwards.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::StopRules;
use belay_protocol::{EventKind, NewEvent, RoutineSpec, StoreError, Tool};
use tokio::time::sleep;

use crate::agent_services::AgentServices;
use belay_automation::routines;
use belay_run::approvals::{ApprovalsConfig, Policy};
use belay_run::config::LimitsConfig;

/// The pause before the store is asked again about the tools of a server that has come. 5 s: nobody waits for it.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// The rules that can be swapped, already validated.
#[derive(Clone)]
pub struct Rules {
    /// The stop rules: `[stops]`, and the part of `[limits]` that concerns one run.
    pub stops: Arc<StopRules>,
    /// Settings of `[limits]`.
    pub limits: LimitsConfig,
    /// Settings of `[approvals]`.
    pub approvals: ApprovalsConfig,
    /// Routines of `routines.define`.
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

    /// Stores the routines, calls `others`, which swaps rules outside of the agent, and then applies these rules. It
    /// also reads the model's price again.
    ///
    /// # Errors
    /// The store rejects the routines. Some of them may be stored. No other rule has changed, and `others` was not
    /// called. A repetition is safe.
    ///
    /// # Cancel safety
    /// If the future is dropped while the routines are stored, some of them are stored. A repetition stores the rest.
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

    /// Offers the tools of an MCP server that has come to runs and steps of plans that begin from now on. A tool whose
    /// name is in use is ignored. While the store does not say which of them are disabled, the server stays absent; the
    /// store is asked again until it does.
    ///
    /// # Cancel safety
    /// If the future is dropped, the tools may not be offered.
    pub async fn add_server(&self, server: &str, tools: &[Arc<dyn Tool>]) {
        let services = &self.services;
        while let Err(error) = services.run.admit_server(server, tools).await {
            tracing::warn!(server, %error, "an mcp server has come, but not which of its tools are disabled: not offered");
            sleep(STORE_PAUSE).await;
        }
        services.plans.add_tools(tools);
        services.run.offer_tools(tools);
    }

    /// Shows that a person has to log in at an MCP server, and stores an event about it if the reason is new. Its tools stay
    /// as they are.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event may be missing.
    pub async fn need_login(&self, server: &str, why: String, is_new: bool) {
        let services = &self.services;
        services.run.health.need_login(server, &why);
        if !is_new {
            return;
        }
        let kind = EventKind::ServerNeedsLogin { server: server.to_owned(), detail: why };
        let event = NewEvent { at: services.clock.now(), session: None, run_id: None, kind };
        if let Err(error) = services.store.events.append(vec![event]).await {
            // The log and the status have it.
            tracing::warn!(server, %error, "that a person has to log in at an mcp server is not among the events");
        }
    }

    /// Shows an MCP server as starting; with a reason, which follows its name, as left out.
    pub fn show_server(&self, server: &str, left_out: Option<String>) {
        self.services.run.health.show_server(server, left_out);
    }
}
