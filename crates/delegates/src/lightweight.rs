//! The small loop of a lightweight routine run, which does not use the loop of conversations. It makes a few model
//! calls, the last without tools; the first text is the result. Every model call goes through the run core, and every
//! tool call through the effect gate.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::{AdmittedCall, ForcedBy, LlmTurn, LoopContext, LoopError, LoopOutcome, Reasoning};
use belay_protocol::{
    CallPreview, Message, ModelReply, SessionKey, StopReason, Tool, ToolContext, ToolFailure, ToolOutput, ToolSet,
    ToolSpec,
};
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::chat::ChatDelegate;
use belay_automation::routines::{LightweightTask, NothingToReport};
use belay_run::OWN_TOOLS;
use belay_run::effect_gate::{Asking, unbound};
use belay_run::own_tools::SENDING_TOOLS;
use belay_run::prompt::{self, Briefing};
use belay_run::reply::{self, Reply};
use belay_run::services::RunServices;

/// Longest tool result that the model of a routine run reads, in bytes.
const RESULT_MAX_BYTES: usize = 8 * 1024;
/// Pauses before another model call after an empty answer, for a run without tools.
const TRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// Tools that a routine run does not get, besides those that act on the run itself. Autonomous work creates no further
/// work, and reports only at its end.
const NOT_GIVEN: [&str; 2] = SENDING_TOOLS;

/// Added before the last model call.
const LAST: &str = "This is your last message, and no tools are available: give your final answer now, in text.";

/// The tools for autonomous work.
fn tools_of(services: &RunServices, briefing: &Briefing) -> ToolSet {
    let given = |tool: &&Arc<dyn Tool>| {
        let name = tool.spec().name.as_str();
        !OWN_TOOLS.contains(&name) && !NOT_GIVEN.contains(&name)
    };
    ToolSet::new(services.tools_of(briefing).iter().filter(given).map(Brief::of).collect())
}

/// Runs the small loop. The first text of the model is the result.
///
/// # Errors
/// The model call failed, or the store does not answer.
pub async fn run(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    task: LightweightTask,
) -> Result<LoopOutcome, LoopError> {
    let (services, briefing) = (&delegate.core.services, &delegate.core.briefing);
    let tools = Arc::new(if task.with_tools { tools_of(services, briefing) } else { ToolSet::default() });
    delegate.core.joining = None;
    delegate.reasoning = Arc::new(reasoning(
        &delegate.core.services,
        &delegate.core.briefing,
        &tools,
        &task.instructions,
        task.max_tokens,
    ));
    let reasoning = delegate.reasoning.clone();
    if let Some(shown) = task.shown.filter(|_| context.messages.len() == delegate.turn_start + 1) {
        context.push(Message::data(shown).with_untrusted(true));
        delegate.core.tally.note_untrusted();
    }
    if let Some(asking) = take_up(delegate, context, &tools).await? {
        return Ok(delegate.rest_on(asking));
    }
    let mut tries = TRIES.iter();
    loop {
        if let Some(reason) = delegate.core.stopped() {
            return Ok(LoopOutcome::Stopped(reason.into()));
        }
        let iteration = context.state.iteration + 1;
        let last = iteration >= task.iterations || tools.is_empty();
        context.state.iteration = iteration;
        if last && !tools.is_empty() && !context.state.force_text {
            context.push(Message::system(LAST).for_run());
        }
        if last && !tools.is_empty() {
            context.state.force_text_by(ForcedBy::MaxToolIterations);
        }
        context.state.force_text = last;
        let allowance = delegate.core.allowance(delegate.core.services.max_attempts.max(1));
        let asked = delegate.core.ask(&reasoning, context, iteration, allowance).await?;
        let reply = match delegate.core.turn_of(asked, context)? {
            LlmTurn::Reply(reply) => reply,
            LlmTurn::Stopped(end) => return Ok(LoopOutcome::Stopped(end)),
            LlmTurn::Cut { .. } => return Ok(LoopOutcome::Stopped(StopReason::Chanting.into())),
        };
        if !last && !reply.tool_calls.is_empty() {
            let (_, admitted) = context.admit(reply.text, reply.tool_calls, &reasoning);
            // The run pauses. After the answer, `take_up` executes the call.
            if let Some(asking) = execute(delegate, context, &tools, admitted).await? {
                return Ok(delegate.rest_on(asking));
            }
            continue;
        }
        match result(delegate, context, reply, task.nothing) {
            Some(outcome) => return Ok(outcome),
            None => match tries.next().filter(|_| tools.is_empty()) {
                Some(pause) => {
                    tokio::select! {
                        biased; // the head of the loop checks for a stop that comes meanwhile
                        () = delegate.core.cancel.cancelled() => {}
                        () = sleep(*pause) => {}
                    }
                }
                None => return Ok(LoopOutcome::Response(String::new())),
            },
        }
    }
}

/// Prompts, tools and limits of the small loop.
fn reasoning(
    services: &RunServices,
    briefing: &Briefing,
    tools: &Arc<ToolSet>,
    words: &str,
    max_tokens: u32,
) -> Reasoning {
    let extra = match &briefing.extra {
        Some(extra) => format!("{extra}\n\n{words}"),
        None => words.to_owned(),
    };
    let briefing = Briefing { extra: Some(extra), may_be_silent: false, ..briefing.clone() };
    let prompt = |tools| prompt::join(&prompt::parts(&services.config, &briefing, tools, None));
    Reasoning::new(prompt(Some(&**tools)), prompt(None), tools.clone(), max_tokens, services.max_attempts)
}

/// Gives each call that a pause or a crash has left without a result its result. Returns the next call that needs a
/// person's answer.
async fn take_up(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    tools: &ToolSet,
) -> Result<Option<Asking>, LoopError> {
    let calls = delegate.open_calls(context, tools);
    if calls.is_empty() || delegate.core.stopped().is_some() {
        return Ok(None);
    }
    execute(delegate, context, tools, calls).await
}

/// Executes these calls. Returns the first that needs a person's answer, if the run may pause for it; otherwise such a
/// call is denied.
async fn execute(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    tools: &ToolSet,
    mut calls: Vec<AdmittedCall>,
) -> Result<Option<Asking>, LoopError> {
    loop {
        let Some(asking) = delegate.core.execute(calls, context, tools, &unbound).await?.asking else {
            return Ok(None);
        };
        match delegate.core.admit_pause(asking) {
            Ok(asking) => return Ok(Some(asking)),
            Err(left) => calls = left,
        }
    }
}

/// The outcome of a text. `None`: the text is empty, even if only because it was cut off.
fn result(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    reply: ModelReply,
    nothing: NothingToReport,
) -> Option<LoopOutcome> {
    let (cut_off, note) = reply::cut_note(reply.finish);
    delegate.cut_off = cut_off;
    let shaped = if (nothing.is_said)(reply.text.trim()) { Reply::Silent } else { reply::shape(&reply.text) };
    match shaped {
        Reply::Silent => {
            delegate.silent = true;
            delegate.cut_off = None;
            context.push(Message::assistant(nothing.word));
            Some(LoopOutcome::Response(String::new()))
        }
        Reply::Text(mut text) => {
            text.push_str(note);
            context.push(Message::assistant(&text));
            Some(LoopOutcome::Response(text))
        }
        Reply::Empty | Reply::OnlyEchoes => None,
    }
}

/// A tool with a lower limit for the length of its results.
struct Brief {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
}

impl Brief {
    fn of(tool: &Arc<dyn Tool>) -> Arc<dyn Tool> {
        let spec = tool.spec().clone();
        let max_output_bytes = spec.max_output_bytes.min(RESULT_MAX_BYTES);
        Arc::new(Self { tool: tool.clone(), spec: ToolSpec { max_output_bytes, ..spec } })
    }
}

#[async_trait]
impl Tool for Brief {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn preview(&self, arguments: &Map<String, Value>, session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        self.tool.preview(arguments, session).await
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.tool.call(arguments, context).await
    }
}
