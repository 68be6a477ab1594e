//! Services that every run uses: the model and its prompts, the effect gate, budgets, hooks, and the store of
//! conversations. Immutable after the start of the agent, except for values that a reload swaps.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use belay_agent_loop::{Reasoning, StopRules};
use belay_protocol::status::ModelTrouble;
use belay_protocol::{
    Clock, EventKind, EventLog, InputReader, JournalStore, ModelError, ModelErrorKind, ModelProvider, Moment, NewEvent,
    RunId, SessionKey, StoreError, Tool, ToolSet,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::attached_pictures::AttachedPictures;
use crate::child_asker::ChildAsker;
use crate::config::{AgentConfig, CompactionConfig};
use crate::cost_guard::CostGuard;
use crate::effect_gate::EffectGate;
use crate::find_tools::{redeclared, with_finder};
use crate::freeze::Freezer;
use crate::hooks::HookChain;
use crate::memory::MemoryRules;
use crate::prompt::{self, Briefing, PromptBook};
use crate::tool_health::Health;
use crate::unclear_write::JournalPorts;

/// Services that every run uses.
pub struct RunServices {
    /// Settings of `[agent]`.
    pub config: AgentConfig,
    /// Settings of `[compaction]`.
    pub compaction: CompactionConfig,
    /// The model.
    pub model: Arc<dyn ModelProvider>,
    /// The reasoning of a conversation's run without a briefing. Swapped as a whole when tools are added.
    pub reasoning: ArcSwap<Reasoning>,
    /// The reasoning of the completion check.
    pub checker: Reasoning,
    /// Maximum length of one answer, in tokens.
    pub max_tokens: u32,
    /// Maximum requests for one logical model call.
    pub max_attempts: u32,
    /// Cache of reasoning by briefing.
    pub prompts: PromptBook,
    /// The stop rules. Swapped as a whole when the settings are reloaded; a run keeps those that its attempt began
    /// with.
    pub rules: ArcSwap<StopRules>,
    /// The one place that every tool call passes.
    pub gate: EffectGate,
    /// Asks people about calls of runs that other runs have started.
    pub child_asker: Arc<dyn ChildAsker>,
    /// The circuit breakers of tools.
    pub health: Arc<Health>,
    /// The freezes in force.
    pub freezer: Arc<Freezer>,
    /// The budgets of money.
    pub cost: CostGuard,
    /// The owners of notes.
    pub memory: MemoryRules,
    /// The operator's hooks.
    pub hooks: Arc<HookChain>,
    /// Writes the progress of runs.
    pub journal: Arc<dyn JournalStore>,
    /// Shows which writes of a run were done.
    pub events: Arc<dyn EventLog>,
    /// Cancelled when the daemon begins to shut down. Runs then do not wait for the store any longer.
    pub draining: CancellationToken,
    /// Reads the attached pictures of messages.
    pub pictures: AttachedPictures,
    /// Reads accepted messages.
    pub inputs: Arc<dyn InputReader>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The error of the last model call, until one succeeds. The lock is held for an assignment, never across an await.
    pub model_trouble: Mutex<Option<ModelTrouble>>,
}

impl RunServices {
    /// The ports of a run's journal.
    pub fn journal_ports(&self) -> Arc<JournalPorts> {
        let (store, events, clock) = (self.journal.clone(), self.events.clone(), self.clock.clone());
        Arc::new(JournalPorts { store, events, clock })
    }

    /// The stop rules for a run that begins now.
    pub fn rules(&self) -> Arc<StopRules> {
        self.rules.load_full()
    }

    /// Replaces the stop rules for runs that begin from now on.
    pub fn adopt_rules(&self, rules: Arc<StopRules>) {
        self.rules.store(rules);
    }

    /// The reasoning for a run with this briefing and the tools of a conversation.
    pub fn reasoning_of(&self, briefing: &Briefing) -> Arc<Reasoning> {
        self.prompts.get(briefing, || self.ask_with(briefing, self.tools_of(briefing), None))
    }

    /// The tools of a conversation that a run with this briefing may use.
    pub fn tools_of(&self, briefing: &Briefing) -> Arc<ToolSet> {
        briefing.allowed(self.reasoning.load().tools())
    }

    /// The tools of this set that a request offers at this moment; `None`: all. A disabled tool is not offered, and not
    /// named as one that can be found. If a model calls it anyway, the result says why it is disabled.
    pub fn offered(&self, tools: &ToolSet, moment: Moment<'_>) -> Option<Arc<ToolSet>> {
        let Some(enabled) = self.health.offered(tools) else { return tools.offered(moment) };
        let enabled = redeclared(&enabled);
        Some(enabled.offered(moment).unwrap_or_else(|| Arc::new(enabled)))
    }

    /// Prepares calls of the tools of an MCP server that has come: how their arguments are checked, and which of them an
    /// operator has disabled. [`Self::offer_tools`] comes next.
    ///
    /// # Errors
    /// The store does not respond: it is not known which of them are disabled. A repetition is safe.
    pub async fn admit_server(&self, server: &str, tools: &[Arc<dyn Tool>]) -> Result<(), StoreError> {
        self.gate.add_tools(tools);
        self.health.add_server(server, tools).await
    }

    /// Offers more tools, which were admitted, to runs that begin from now on. A tool whose name is in use is ignored.
    pub fn offer_tools(&self, tools: &[Arc<dyn Tool>]) {
        let known = self.reasoning.load_full();
        let all = ToolSet::new(with_finder(known.tools().iter().chain(tools).cloned().collect()));
        self.reasoning.store(Arc::new(self.ask_with(&Briefing::default(), Arc::new(all), None)));
        self.prompts.clear();
    }

    /// Ends the work of handles whose calls never continue, because their run has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, the rest of the work may go on.
    pub async fn abandon(&self, handles: Vec<Value>) {
        let tools = self.reasoning.load().tools().clone();
        for handle in handles {
            let mut is_known = false;
            for tool in tools.iter() {
                is_known = tool.abandon(&handle).await;
                if is_known {
                    break;
                }
            }
            if !is_known {
                tracing::warn!("the work of a call goes on without its run: its tool is not there any more");
            }
        }
    }

    /// The reasoning for a run with these tools. `outputs`: instructions for declared outputs; they replace the usual
    /// instructions for ending a turn.
    pub fn ask_with(&self, briefing: &Briefing, tools: Arc<ToolSet>, outputs: Option<&str>) -> Reasoning {
        let prompt = |tools| prompt::join(&prompt::parts(&self.config, briefing, tools, outputs));
        let (with_tools, without_tools) = (prompt(Some(&*tools)), prompt(None));
        Reasoning::new(with_tools, without_tools, tools, self.max_tokens, self.max_attempts)
    }

    /// Records that the model responds.
    pub(crate) fn model_answered(&self) {
        *self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records that the model does not respond. A model that refuses a request has responded and counts as available.
    pub(crate) fn model_failed(&self, error: &ModelError) {
        if matches!(error.kind, ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest) {
            return self.model_answered();
        }
        let trouble = ModelTrouble {
            since: self.clock.now(),
            kind: error.kind.word().into(),
            requests: error.attempts,
            line: error.line(),
        };
        let mut slot = self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let since = slot.as_ref().map_or(trouble.since, |earlier| earlier.since);
        *slot = Some(ModelTrouble { since, ..trouble });
    }

    /// The error of the last model call, if it failed.
    pub fn trouble(&self) -> Option<ModelTrouble> {
        self.model_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An event of a run, with the current date.
    pub fn event(&self, session: &SessionKey, run: RunId, kind: EventKind) -> NewEvent {
        NewEvent { at: self.clock.now(), session: Some(session.clone()), run_id: Some(run), kind }
    }
}
