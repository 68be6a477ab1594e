//! What one run uses, whatever starts it: the model and the ways of asking it, the effect gate, budgets, hooks, and the store of
//! its conversation. Immutable once the agent has started, but for what a reload swaps.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use belay_agent_loop::{Reasoning, StopRules};
use belay_protocol::status::ModelTrouble;
use belay_protocol::{
    Clock, EventKind, InputReader, JournalStore, ModelError, ModelErrorKind, ModelProvider, NewEvent, RunId,
    SessionKey, ToolSet,
};

use crate::config::{AgentConfig, CompactionConfig};
use crate::cost_guard::CostGuard;
use crate::effect_gate::EffectGate;
use crate::hooks::HookChain;
use crate::prompt::{self, Briefing, PromptBook};
use crate::tool_health::Health;

/// What one run uses.
pub struct RunServices {
    /// `[agent]`
    pub config: AgentConfig,
    /// `[compaction]`
    pub compaction: CompactionConfig,
    /// The model.
    pub model: Arc<dyn ModelProvider>,
    /// How a conversation's run asks the model that is told nothing of its surroundings.
    pub reasoning: Arc<Reasoning>,
    /// Asks whether an answer meets what was asked.
    pub checker: Reasoning,
    /// Most tokens of one answer.
    pub max_tokens: u32,
    /// Requests per logical model call.
    pub max_attempts: u32,
    /// Ways of asking, for what runs are told of their surroundings.
    pub prompts: PromptBook,
    /// Swapped as a whole when the settings are reloaded; a run keeps those that its attempt began with.
    pub rules: ArcSwap<StopRules>,
    /// The one place that every tool call passes.
    pub gate: EffectGate,
    /// How tools get on.
    pub health: Arc<Health>,
    /// The budgets of money.
    pub cost: CostGuard,
    /// The operator's hooks.
    pub hooks: Arc<HookChain>,
    /// Writes the progress of runs.
    pub journal: Arc<dyn JournalStore>,
    /// Reads accepted messages.
    pub inputs: Arc<dyn InputReader>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What the last model call failed with, until one succeeds. Held for an assignment, never across an await.
    pub model_trouble: Mutex<Option<ModelTrouble>>,
}

impl RunServices {
    /// The rules for stopping that a run begins with now.
    pub fn rules(&self) -> Arc<StopRules> {
        self.rules.load_full()
    }

    /// Begins runs with these rules from now on.
    pub fn adopt_rules(&self, rules: Arc<StopRules>) {
        self.rules.store(rules);
    }

    /// The way of asking in a run with these surroundings and the tools of a conversation.
    pub fn reasoning_of(&self, briefing: &Briefing) -> Arc<Reasoning> {
        self.prompts.get(briefing, || self.ask_with(briefing, self.reasoning.tools().clone(), None))
    }

    /// The way of asking in a run with these tools. `outputs`: what is said of its end in the place of how a conversation's turn
    /// ends.
    pub fn ask_with(&self, briefing: &Briefing, tools: Arc<ToolSet>, outputs: Option<&str>) -> Reasoning {
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
    pub fn trouble(&self) -> Option<ModelTrouble> {
        self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A fact about a run, dated now.
    pub fn event(&self, session: &SessionKey, run: RunId, kind: EventKind) -> NewEvent {
        NewEvent { at: self.clock.now(), session: Some(session.clone()), run_id: Some(run), kind }
    }
}
