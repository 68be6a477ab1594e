//! The chat delegate: what the shared loop does differently for a conversation.
//!
//! The first text that is not nudged ends the turn. N is `max_tool_iterations`: a notice at N−1, no tools from N on, and
//! the loop's own limit is N+1.

use std::sync::Arc;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, ForcedBy, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    PendingApproval, Reasoning, TextAction,
};
use belay_protocol::{Durability, EventKind, FinishReason, JoinedRun, Message, RunId, StopReason, ToolSet};

use crate::subagent::{ChildServices, Goal, GoalRun, binder};
use belay_automation::jobs::JobToolContext;
use belay_automation::routines::{RoutineTool, RoutineToolContext};
use belay_run::compaction::Shortener;
use belay_run::core::{Executed, RunCore};
use belay_run::effect_gate::Asking;
use belay_run::judge;
use belay_run::model_call::ModelCall;
use belay_run::own_tools::{CREATE_JOB, ROUTINE, SEND_MESSAGE};
use belay_run::prompt::Briefing;
use belay_run::reply::{self, CUT_OFF, Reply, WITHHELD};
use belay_run::send_message::MessageSender;
use belay_run::services::RunServices;

const NOTICE: &str = "You are close to the limit of steps for this request. Give the user your final answer now, in \
text, with what you have. Do not call any more tools.";
const NOTICE_OUTPUTS: &str = "You are close to the limit of steps for this request. Submit the best results that you \
have now, with complete_task or emit_value.";
const ONLY_ECHOES: &str = "I could not complete that request. Please rephrase it.";

/// Adapts the loop to one turn of a conversation.
pub struct ChatDelegate {
    /// The run that it serves.
    pub core: RunCore,
    /// What it starts other runs with.
    pub children: Arc<ChildServices>,
    /// How the model is asked, and with which tools.
    pub reasoning: Arc<Reasoning>,
    /// What the turn must come up with instead of a text.
    pub goal: Option<Goal>,
    /// Where this turn's user message stands in the context.
    pub turn_start: usize,
    /// The model's choice to say nothing.
    pub silent: bool,
    /// Why the final text is not whole: what the reason would be if nothing had been said.
    pub cut_off: Option<StopReason>,
    /// What it knows of its shortenings.
    pub shortener: Shortener,
    /// What the model said when it ended the run by a tool.
    pub summary: Option<String>,
    /// The question that the run rests on.
    pub asking: Option<Asking>,
    /// From where it sends messages before its answer.
    pub post: Option<MessageSender>,
    /// For whom it creates jobs.
    pub jobs: Option<JobToolContext>,
    /// For whom it changes routines.
    pub routines: Option<RoutineToolContext>,
    /// Runs whose messages are about to join.
    joining: Vec<RunId>,
}

impl ChatDelegate {
    /// A turn whose user message stands at `turn_start`.
    pub fn new(core: RunCore, children: Arc<ChildServices>, turn_start: usize) -> Self {
        let reasoning = core.services.reasoning.clone();
        Self {
            core,
            children,
            reasoning,
            goal: None,
            turn_start,
            silent: false,
            cut_off: None,
            shortener: Shortener::default(),
            summary: None,
            asking: None,
            post: None,
            jobs: None,
            routines: None,
            joining: Vec::new(),
        }
    }

    /// Gives the turn what it must come up with, and the tools for that.
    pub fn pursue(&mut self, goal: Option<Goal>) {
        self.goal = goal;
    }

    /// Tells the model of its surroundings, in the way that a conversation asks it.
    pub fn brief(&mut self, briefing: Briefing) {
        let reasoning = reasoning_for(&self.core.services, self.goal.as_ref(), &briefing);
        self.brief_as(briefing, reasoning);
    }

    /// The same, in this way of asking.
    pub fn brief_as(&mut self, briefing: Briefing, reasoning: Arc<Reasoning>) {
        self.reasoning = reasoning;
        self.core.briefing = Arc::new(briefing);
    }

    /// Lays the run to rest on a question.
    pub(crate) fn rest_on(&mut self, asking: Asking) -> LoopOutcome {
        let pending = PendingApproval { call: asking.call.clone(), deferred: asking.deferred.clone() };
        self.asking = Some(asking);
        LoopOutcome::NeedApproval(Box::new(pending))
    }
}

/// The way of asking in a conversation's run with these surroundings; one with a goal has the goal's tools besides all others,
/// and is made for this run alone.
fn reasoning_for(services: &RunServices, goal: Option<&Goal>, briefing: &Briefing) -> Arc<Reasoning> {
    let Some(goal) = goal else { return services.reasoning_of(briefing) };
    let tools = services.reasoning.tools().iter().cloned().chain(goal.tools()).collect();
    Arc::new(services.ask_with(briefing, Arc::new(ToolSet::new(tools)), Some(&goal.teaching())))
}

#[async_trait]
impl LoopDelegate for ChatDelegate {
    async fn check_signals(&mut self) -> LoopSignal {
        if let Some(reason) = self.core.stopped() {
            return LoopSignal::Stop(reason);
        }
        let Some((run, message)) = self.core.take_offer().await else { return LoopSignal::Continue };
        self.joining.push(run);
        LoopSignal::InjectMessage(message)
    }

    /// What the person has said joins: the store has it as a part of this run, and ends the runs that it was, before the
    /// model reads it.
    async fn on_injected(&mut self, context: &LoopContext) -> Result<(), LoopError> {
        let (runs, at) = (std::mem::take(&mut self.joining), self.core.services.clock.now());
        let joined: Vec<JoinedRun> = runs.iter().map(|run| JoinedRun { run: *run, how: "steer", at }).collect();
        self.core.journal.note(EventKind::Joined { runs, mode: "steer".into() });
        self.core.journal.join(&joined);
        self.core.journal.write(context, Durability::Committed).await?;
        if let Some(joining) = &self.core.joining {
            joining.committed(&joined);
        }
        Ok(())
    }

    fn meter(&self) -> Meter {
        self.core.meter()
    }

    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome> {
        if self.core.closing.is_some() {
            return None;
        }
        // An earlier attempt may have died between the last output and the end.
        if let Some(end) = self.goal.as_ref().and_then(Goal::reached) {
            return Some(LoopOutcome::Stopped(end));
        }
        let limit = self.core.services.config.max_tool_iterations;
        if iteration + 1 == limit && !context.state.force_text {
            let notice = if self.goal.is_some() { NOTICE_OUTPUTS } else { NOTICE };
            context.messages.push(Arc::new(Message::system(notice).for_run()));
            self.core.journal.note(EventKind::GuardrailTriggered {
                guardrail: "iteration_notice".into(),
                count: iteration,
                force_text: false,
            });
        }
        // Outputs need tools to the end; their last step is the closing turn.
        if iteration >= limit && self.goal.is_none() {
            context.state.force_text_by(ForcedBy::MaxToolIterations);
        }
        judge::consult(&mut self.core, context, self.turn_start).await
    }

    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        let Self { core, shortener, turn_start: start, .. } = self;
        ModelCall { core, shortener, start }.call(reasoning, context, iteration).await
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        if let Some(goal) = &mut self.goal {
            return goal.on_text(&text, context, self.core.closing.is_some());
        }
        let mut text = match reply::shape(&text) {
            Reply::Text(text) => text,
            Reply::OnlyEchoes => ONLY_ECHOES.to_owned(),
            Reply::Empty => String::new(),
            Reply::Silent => {
                self.silent = true;
                String::new()
            }
        };
        self.cut_off = match context.state.last_finish {
            FinishReason::Length => Some(StopReason::LengthLimit),
            FinishReason::ContentFilter => Some(StopReason::ContentFilter),
            FinishReason::Stop | FinishReason::ToolCalls => None,
        };
        if !text.is_empty() {
            text.push_str(match self.cut_off {
                Some(StopReason::LengthLimit) => CUT_OFF,
                Some(_) => WITHHELD,
                None => "",
            });
        }
        let said = if self.silent { reply::SILENT_TOKEN } else { &text };
        if !said.is_empty() {
            context.messages.push(Arc::new(Message::assistant(said)));
        }
        TextAction::Return(LoopOutcome::Response(text))
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        self.core.live.output.end_text();
        let tools = self.reasoning.tools().clone();
        let (starts, post) = (binder(&self.children, &self.core, context, &tools), self.post.clone());
        let sends = tools.get(SEND_MESSAGE).cloned().zip(post);
        let orders = tools.get(CREATE_JOB).cloned().zip(self.jobs.clone());
        let rules = tools.get(ROUTINE).cloned().zip(self.routines.clone());
        let bind = |name: &str| match (&sends, &orders) {
            (Some((declaration, post)), _) if name == SEND_MESSAGE => Some(post.bind(declaration)),
            (_, Some((declaration, jobs))) if name == CREATE_JOB => Some(jobs.bind(declaration)),
            _ if name == ROUTINE => {
                rules.as_ref().map(|(declaration, routines)| RoutineTool::bind(declaration, routines))
            }
            _ => starts(name),
        };
        let Executed { ended, asking } = self.core.execute(calls, context, &tools, &bind).await?;
        if let Some(reason) = self.core.stopped() {
            return Ok(Some(LoopOutcome::Stopped(reason.into())));
        }
        if let Some(asking) = asking {
            return Ok(Some(self.rest_on(asking)));
        }
        if let Some(goal) = &mut self.goal {
            if let Some(end) = goal.on_batch(context) {
                return Ok(Some(LoopOutcome::Stopped(end)));
            }
            if ended.as_ref().is_some_and(|ended| ended.success) {
                return Ok(Some(LoopOutcome::Stopped(goal.missed()))); // success in words, with outputs missing, is none
            }
        }
        Ok(ended.map(|ended| {
            let end = ended.end(context.state.iteration);
            self.summary = ended.summary;
            LoopOutcome::Stopped(end)
        }))
    }

    async fn on_tool_intent_nudge(&mut self, _text: &str, context: &LoopContext) {
        self.core.note_nudge(context);
    }

    async fn after_iteration(&mut self, _iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.core.note_brakes(context);
        if self.core.journal.has_facts() {
            // What the model was told, and the strikes, are not lost with the next call; and whoever follows the run hears of
            // a step that had no tools, such as one that was nudged, before the next one speaks.
            self.core.journal.write(context, Durability::Relaxed).await?;
        }
        Ok(())
    }
}

impl GoalRun for ChatDelegate {
    fn core(&mut self) -> &mut RunCore {
        &mut self.core
    }

    fn goal(&self) -> Option<&Goal> {
        self.goal.as_ref()
    }
}
