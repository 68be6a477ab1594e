//! The chat delegate: adapts the shared loop to a conversation.
//!
//! The first text ends the turn, unless it gets a nudge. With N = `max_tool_iterations`, step N−1 gets a notice, there
//! are no tools from step N on, and the limit of the loop is N+1.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, ForcedBy, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    PendingApproval, Reasoning, TextAction,
};
use belay_protocol::{
    Durability, EventKind, JoinedRun, Message, MessageBody, Prompt, RunId, StopReason, ToolCall, ToolResult, ToolSet,
    ToolStatus,
};

use crate::subagent::{ChildServices, Goal, GoalRun, binder};
use belay_automation::jobs::{JobAction, JobToolContext, ManageJobs};
use belay_automation::routines::{ListRoutines, RoutineToolContext};
use belay_run::approvals::ApprovalAnswer;
use belay_run::client_tools::{ClientSide, has_replied};
use belay_run::compaction::Shortener;
use belay_run::core::{Executed, RunCore};
use belay_run::effect_gate::{Asking, open_calls};
use belay_run::judge;
use belay_run::model_call::ModelCall;
use belay_run::own_tools::{CREATE_JOB, FIND_TOOLS, LIST_ROUTINES, ROUTINE, SEND_FILE, SEND_MESSAGE};
use belay_run::prompt::Briefing;
use belay_run::reply::{self, Reply};
use belay_run::run_tool::bound;
use belay_run::send_file::FileSender;
use belay_run::send_message::MessageSender;
use belay_run::services::RunServices;

const NOTICE: &str = "You are close to the limit of steps for this request. Give the user your final answer now, in \
text, with what you have. Do not call any more tools.";
const NOTICE_OUTPUTS: &str = "You are close to the limit of steps for this request. Submit the best results that you \
have now, with complete_task or emit_value.";
const NOT_OFFERED: &str = "not executed: the client does not offer this tool any more";
const ONLY_ECHOES: &str = "I could not complete that request. Please rephrase it.";

/// The prompt of a run that answers with plain text.
const TEXT_ONLY: &str = "You complete a single request of a program with text. You have no tools and can ask nobody. \
Answer in the form that the request asks for, with nothing around it.";

/// Adapts the loop to one turn of a conversation.
pub struct ChatDelegate {
    /// The run core.
    pub core: RunCore,
    /// Lets the run start other runs.
    pub children: Arc<ChildServices>,
    /// Prompts and tools of the model calls.
    pub reasoning: Arc<Reasoning>,
    /// The outputs that the turn must submit, if they are declared.
    pub goal: Option<Goal>,
    /// The index in the context of this turn's user message.
    pub turn_start: usize,
    /// Steps of the run before the first one of this attempt at a goal; 0 in other runs.
    pub first_step: u32,
    /// Whether the model chose to send no answer.
    pub silent: bool,
    /// Why the final text is incomplete. It is the stop reason when the text is empty.
    pub cut_off: Option<StopReason>,
    /// The state of compaction.
    pub shortener: Shortener,
    /// The summary with which the model ended the run by a tool.
    pub summary: Option<String>,
    /// The approval for which the run is paused.
    pub asking: Option<Box<Asking>>,
    /// Sends messages before the answer.
    pub post: Option<MessageSender>,
    /// Sends files.
    pub files: Option<FileSender>,
    /// Creates jobs.
    pub jobs: Option<JobToolContext>,
    /// Changes routines.
    pub routines: Option<RoutineToolContext>,
    /// Our tools of the run, if the client has tools too. Only ours reach the effect gate.
    own_tools: Option<Arc<ToolSet>>,
    /// Runs whose messages join at this step.
    joining: Vec<RunId>,
}

impl ChatDelegate {
    /// A turn whose user message has the index `turn_start`.
    pub fn new(core: RunCore, children: Arc<ChildServices>, turn_start: usize) -> Self {
        let reasoning = core.services.reasoning.load_full();
        Self {
            core,
            children,
            reasoning,
            goal: None,
            turn_start,
            first_step: 0,
            silent: false,
            cut_off: None,
            shortener: Shortener::default(),
            summary: None,
            asking: None,
            post: None,
            files: None,
            jobs: None,
            routines: None,
            own_tools: None,
            joining: Vec::new(),
        }
    }

    /// Sets the declared outputs of the turn.
    pub fn drive(&mut self, goal: Option<Goal>) {
        self.goal = goal;
    }

    /// Sets the briefing, and the prompts and tools of a conversation.
    pub fn brief(&mut self, briefing: Briefing, context: &LoopContext) {
        let reasoning = match self.core.request.options.text_only {
            true => text_only(&self.core.services, self.goal.as_ref()),
            false => reasoning_for(&self.core.services, self.goal.as_ref(), &briefing),
        };
        let reasoning = self.with_client_tools(reasoning, context);
        self.brief_as(briefing, reasoning);
    }

    /// The reasoning with the tools of the client beside ours.
    fn with_client_tools(&mut self, reasoning: Arc<Reasoning>, context: &LoopContext) -> Arc<Reasoning> {
        let Some(offered) = self.core.request.options.client_tools.clone() else { return reasoning };
        let (own, all) = (reasoning.tools().clone(), self.core.services.reasoning.load_full());
        let in_use: HashSet<&str> =
            own.iter().chain(all.tools().iter()).map(|tool| tool.spec().name.as_str()).chain([FIND_TOOLS]).collect();
        // If a tool of the client has the name of a deferred one of ours, a name would mean two tools: all are offered.
        let is_shadowed = own.deferred().any(|spec| offered.tools.iter().any(|tool| tool.name == spec.name));
        let is_answered = self.core.answers.values().any(|answer| answer.client.is_some());
        let messages = context.messages.get(self.turn_start..).unwrap_or_default();
        let has_replied = !is_answered && has_replied(messages, |name| in_use.contains(name));
        let client = ClientSide::new(offered, &in_use, has_replied);
        let ours = own.iter().filter(|tool| !is_shadowed || tool.spec().name != FIND_TOOLS);
        let tools = ours.cloned().chain(client.tools()).collect();
        self.core.client = Some(Box::new(client));
        self.own_tools = Some(own);
        Arc::new(reasoning.with_words("").with_tools(Arc::new(ToolSet::new(tools))))
    }

    /// Sets the briefing with these prompts and tools.
    pub fn brief_as(&mut self, briefing: Briefing, reasoning: Arc<Reasoning>) {
        self.reasoning = reasoning;
        self.core.briefing = Arc::new(briefing);
    }

    /// The calls of an earlier attempt that have no result, as they pass the gate again.
    pub fn open_calls(&self, context: &LoopContext, tools: &ToolSet) -> Vec<AdmittedCall> {
        let open = open_calls(context.messages.get(self.turn_start..).unwrap_or_default());
        // If a person has answered for the first call of ours, none of the calls had begun, so all of them are executed
        // normally.
        let answer =
            open.iter().find(|call| !self.core.is_of_client(call)).and_then(|call| self.core.answers.get(&call.id));
        let answered = answer.is_some_and(ApprovalAnswer::is_open);
        // The others of a batch that the client answers have begun only if they are ours.
        let of_client = open.iter().any(|call| self.core.answers.get(&call.id).is_some_and(|a| a.client.is_some()));
        let admit = |call: ToolCall| match answered || self.core.is_of_client(&call) {
            true => AdmittedCall { call, refused: None },
            false if of_client && tools.get(&call.name).is_none() => {
                let (call_id, name, status) = (call.id.clone(), call.name.clone(), ToolStatus::NotExecuted);
                let refused = ToolResult { call_id, name, status, text: NOT_OFFERED.into() };
                AdmittedCall { call, refused: Some(refused) }
            }
            false => self.core.services.gate.after_restart(tools, context, call),
        };
        open.into_iter().map(admit).collect()
    }

    /// Pauses the run until a person decides on the call.
    pub(crate) fn rest_on(&mut self, asking: Asking) -> LoopOutcome {
        let pending = PendingApproval { call: asking.call.clone(), deferred: asking.deferred.clone() };
        self.asking = Some(Box::new(asking));
        LoopOutcome::NeedApproval(Box::new(pending))
    }
}

/// Prompts and tools of a conversation's run. A run with declared outputs has additional tools to submit them, so that
/// its prompt is built for this run only.
fn reasoning_for(services: &RunServices, goal: Option<&Goal>, briefing: &Briefing) -> Arc<Reasoning> {
    let Some(goal) = goal else { return services.reasoning_of(briefing) };
    let tools = services.tools_of(briefing).iter().cloned().chain(goal.tools()).collect();
    let reasoning = services.ask_with(briefing, Arc::new(ToolSet::new(tools)), Some(&goal.teaching()));
    Arc::new(reasoning.with_format(goal.format()))
}

/// Prompt of a run that answers with plain text. It has no tools but those that submit declared outputs.
fn text_only(services: &RunServices, goal: Option<&Goal>) -> Arc<Reasoning> {
    let (tools, format) = goal.map(|goal| (goal.tools(), goal.format())).unwrap_or_default();
    let teaching = goal.map(Goal::teaching).unwrap_or_default();
    let prompt = || Prompt::new(format!("{TEXT_ONLY}\n\n{teaching}").trim_end());
    let (tools, attempts) = (Arc::new(ToolSet::new(tools)), services.max_attempts);
    Arc::new(Reasoning::new(prompt(), prompt(), tools, services.max_tokens, attempts).with_format(format))
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

    /// Lets messages join the run. Before the model reads them, the store has them as part of this run and has ended
    /// the runs that they had begun.
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
        // An earlier attempt may have crashed between the last output and the end of the run.
        if let Some(end) = self.goal.as_ref().and_then(Goal::reached) {
            return Some(LoopOutcome::Stopped(end));
        }
        let limit = self.core.services.config.max_tool_iterations.saturating_add(self.first_step);
        if iteration + 1 == limit && !context.state.force_text {
            let notice = if self.goal.is_some() { NOTICE_OUTPUTS } else { NOTICE };
            context.messages.push(Arc::new(Message::system(notice).for_run()));
            self.core.journal.note(EventKind::GuardrailTriggered {
                guardrail: "iteration_notice".into(),
                count: iteration,
                force_text: false,
            });
        }
        // Outputs need tools to the end; the closing turn is the last step for them.
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

    fn is_answer(&self, text: &str, is_call: bool) -> bool {
        self.goal.as_ref().is_some_and(|goal| goal.is_answer(text, is_call))
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        if let Some(goal) = &mut self.goal {
            return goal.on_text(&text, context, self.core.closing.is_some());
        }
        let blanks = &text[..text.len() - text.trim_start().len()];
        let mut text = match reply::shape(&text) {
            Reply::Text(text) => text,
            Reply::OnlyEchoes => ONLY_ECHOES.to_owned(),
            Reply::Empty => String::new(),
            Reply::Silent => {
                self.silent = true;
                String::new()
            }
        };
        let own = context.messages.get(self.turn_start..).unwrap_or_default();
        // The client puts the answer right behind the words that it has.
        if self.core.request.options.continues && !text.is_empty() && !own.iter().any(|message| is_of_model(message)) {
            text.insert_str(0, blanks);
        }
        let (cut_off, note) = reply::cut_note(context.state.last_finish);
        self.cut_off = cut_off;
        if !text.is_empty() {
            text.push_str(note);
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
        let (calls, clients) = self.core.split(calls);
        let tools = self.own_tools.as_ref().unwrap_or(self.reasoning.tools()).clone();
        let starts = binder(&self.children, &self.core, context, &tools);
        let (post, files) = (self.post.clone(), self.files.clone());
        let (jobs, routines) = (self.jobs.clone(), self.routines.clone());
        let bind = |name: &str| {
            let declaration = tools.get(name)?;
            match name {
                SEND_MESSAGE => Some(bound(declaration, post.clone()?)),
                SEND_FILE => Some(bound(declaration, files.clone()?)),
                CREATE_JOB => Some(bound(declaration, jobs.clone()?)),
                ROUTINE => Some(bound(declaration, routines.clone()?)),
                LIST_ROUTINES => Some(bound(declaration, ListRoutines(routines.clone()?))),
                _ => match JobAction::of_tool(name) {
                    Some(action) => Some(bound(declaration, ManageJobs::new(action, jobs.clone()?))),
                    None => starts(name),
                },
            }
        };
        let Executed { ended, asking } = match calls.is_empty() && !clients.is_empty() {
            true => Executed::default(),
            false => self.core.execute(calls, context, &tools, &bind).await?,
        };
        if let Some(reason) = self.core.stopped() {
            return Ok(Some(LoopOutcome::Stopped(reason.into())));
        }
        if let Some(asking) = asking {
            return Ok(Some(self.rest_on(asking)));
        }
        // Ours come first, and their end of the run counts.
        if ended.is_none()
            && !clients.is_empty()
            && let Some(asking) = Box::pin(self.core.ask_client(clients, context)).await?
        {
            return Ok(Some(self.rest_on(asking)));
        }
        if let Some(goal) = &mut self.goal {
            if let Some(end) = goal.on_batch(context) {
                return Ok(Some(LoopOutcome::Stopped(end)));
            }
            if ended.as_ref().is_some_and(|ended| ended.success) {
                return Ok(Some(LoopOutcome::Stopped(goal.missed()))); // a reported success without all outputs is no success
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
        self.core.note_guardrails(context);
        if self.core.journal.has_facts() {
            // The write stores the notices to the model and the strikes before the next call. It also publishes a step
            // without tools, such as one with a nudge, before the next step streams.
            self.core.journal.write(context, Durability::Relaxed).await?;
        }
        Ok(())
    }
}

/// Whether the model has said or called something with this message.
fn is_of_model(message: &Message) -> bool {
    matches!(message.body, MessageBody::Assistant { .. })
}

impl GoalRun for ChatDelegate {
    fn core(&mut self) -> &mut RunCore {
        &mut self.core
    }

    fn goal(&self) -> Option<&Goal> {
        self.goal.as_ref()
    }
}
