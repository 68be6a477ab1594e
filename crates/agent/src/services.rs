//! What one run uses, whatever starts it: the model and the ways of asking it, the effect gate, budgets, hooks, and the store of
//! its conversation. Immutable once the agent has started, but for what a reload swaps.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use belay_agent_loop::{Reasoning, StopRules};
use belay_protocol::status::ModelTrouble;
use belay_protocol::{
    Clock, EventKind, ModelError, ModelErrorKind, ModelProvider, NewEvent, RunId, SessionKey, ThreadStore, ToolSet,
};

use crate::config::{AgentConfig, CompactionConfig};
use crate::cost_guard::CostGuard;
use crate::effect_gate::EffectGate;
use crate::hooks::HookChain;
use crate::prompt::{self, Briefing, PromptBook};
use crate::tool_health::Health;

/// What one run uses.
pub(crate) struct RunServices {
    /// `[agent]`
    pub(crate) config: AgentConfig,
    /// `[compaction]`
    pub(crate) compaction: CompactionConfig,
    pub(crate) model: Arc<dyn ModelProvider>,
    /// How a conversation's run asks the model that is told nothing of its surroundings.
    pub(crate) reasoning: Arc<Reasoning>,
    /// Asks whether an answer meets what was asked.
    pub(crate) checker: Reasoning,
    /// Most tokens of one answer.
    pub(crate) max_tokens: u32,
    /// Requests per logical model call.
    pub(crate) max_attempts: u32,
    /// Ways of asking, for what runs are told of their surroundings.
    pub(crate) prompts: PromptBook,
    /// Swapped as a whole when the settings are reloaded; a run keeps those that its attempt began with.
    pub(crate) rules: ArcSwap<StopRules>,
    pub(crate) gate: EffectGate,
    /// How tools get on.
    pub(crate) health: Arc<Health>,
    pub(crate) cost: CostGuard,
    pub(crate) hooks: Arc<HookChain>,
    pub(crate) threads: Arc<dyn ThreadStore>,
    pub(crate) clock: Arc<dyn Clock>,
    /// What the last model call failed with, until one succeeds. Held for an assignment, never across an await.
    pub(crate) model_trouble: Mutex<Option<ModelTrouble>>,
}

impl RunServices {
    /// The rules for stopping that a run begins with now.
    pub(crate) fn rules(&self) -> Arc<StopRules> {
        self.rules.load_full()
    }

    /// Begins runs with these rules from now on.
    pub(crate) fn adopt_rules(&self, rules: Arc<StopRules>) {
        self.rules.store(rules);
    }

    /// The way of asking in a run with these surroundings and the tools of a conversation.
    pub(crate) fn reasoning_of(&self, briefing: &Briefing) -> Arc<Reasoning> {
        self.prompts.get(briefing, || self.ask_with(briefing, self.reasoning.tools().clone(), None))
    }

    /// The way of asking in a run with these tools. `outputs`: what is said of its end in the place of how a conversation's turn
    /// ends.
    pub(crate) fn ask_with(&self, briefing: &Briefing, tools: Arc<ToolSet>, outputs: Option<&str>) -> Reasoning {
        let prompt = |tools| prompt::join(&prompt::parts(&self.config, briefing, tools, outputs));
        let (with_tools, without_tools) = (prompt(Some(&*tools)), prompt(None));
        Reasoning::new(with_tools, without_tools, tools, self.max_tokens, self.max_attempts)
    }

    /// Notes that the model answers.
    pub(crate) fn model_answered(&self) {
        *self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes that the model does not. One that refuses a request has answered: it is not away.
    pub(crate) fn model_failed(&self, error: &ModelError) {
        if matches!(error.kind, ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest) {
            return self.model_answered();
        }
        let trouble =
            ModelTrouble { since: self.clock.now(), kind: error.kind.word().into(), requests: error.attempts };
        let mut slot = self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let since = slot.as_ref().map_or(trouble.since, |earlier| earlier.since);
        *slot = Some(ModelTrouble { since, ..trouble });
    }

    /// What the last model call failed with.
    pub(crate) fn trouble(&self) -> Option<ModelTrouble> {
        self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A fact about a run, dated now.
    pub(crate) fn event(&self, session: &SessionKey, run: RunId, kind: EventKind) -> NewEvent {
        NewEvent { at: self.clock.now(), session: Some(session.clone()), run_id: Some(run), kind }
    }
}
