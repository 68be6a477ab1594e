//! The loop of a lightweight firing: its own, small, and not the one of conversations. A few model calls, the last without
//! tools; the first text is the result. Every call goes through the run's core, and every tool call through the one gate.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::{AdmittedCall, ForcedBy, LlmTurn, LoopContext, LoopError, LoopOutcome, Reasoning};
use belay_protocol::routine::ROUTINE_OK;
use belay_protocol::{
    FinishReason, FiringRecord, Message, ModelReply, RoutineAction, RoutineOrigin, RoutineRecord, RunEnd, SessionKey,
    StopReason, Tool, ToolContext, ToolFailure, ToolOutput, ToolSet, ToolSpec, Weight, firing_of,
};
use serde_json::{Map, Value};
use tokio::time::sleep;

use super::config::MOST_ITERATIONS;
use super::{heartbeat, text};
use crate::OWN_TOOLS;
use crate::chat::ChatDelegate;
use crate::effect_gate::{open_calls, unbound};
use crate::house::House;
use crate::own_tools::SEND_MESSAGE;
use crate::prompt::{self, Briefing};
use crate::reply::{self, CUT_OFF, Reply, WITHHELD};
use crate::rights;

/// Longest result of a tool that the model of a firing is shown, in bytes.
const RESULT_MAX_BYTES: usize = 8 * 1024;
/// Most bytes of a file that a firing is shown; a longer one is not.
const FILE_MAX_BYTES: u64 = 32 * 1024;
/// Pauses before an empty answer is asked for again, where there are no tools.
const TRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// Tools that a firing is not given besides those that act on the run itself: what works by itself does not multiply, and
/// says what it has to say at its end.
const NOT_GIVEN: [&str; 1] = [SEND_MESSAGE];

/// What the model is told with its last call.
const LAST: &str = "This is your last answer, and no tools are offered: say what there is to report, in text.";

/// What a small loop is run with.
pub(crate) struct Light {
    /// What is added to the prompt.
    pub(crate) instructions: String,
    /// What the model is shown besides its task, as words of the outside.
    pub(crate) shown: Option<String>,
    /// The tools that it may call.
    pub(crate) tools: ToolSet,
    /// Model calls, the last without tools; at least 1.
    pub(crate) iterations: u32,
    /// Most tokens of one answer.
    pub(crate) max_tokens: u32,
    /// What says that there is nothing to say.
    pub(crate) nothing: Nothing,
}

/// How a model says that there is nothing to say.
#[derive(Clone, Copy)]
pub(crate) struct Nothing {
    /// The word, which is kept as its answer.
    pub(crate) word: &'static str,
    /// Whether an answer says it.
    pub(crate) is_said: fn(&str) -> bool,
}

/// Does the work of a lightweight firing, whose session this is.
///
/// # Errors
/// The model cannot be asked, or the store does not answer.
pub(crate) async fn work(delegate: &mut ChatDelegate, context: &mut LoopContext) -> Result<LoopOutcome, LoopError> {
    let house = delegate.core.house.clone();
    let store = &house.store.routines;
    let firing = match firing_of(&delegate.core.live.session) {
        Some(id) => store.firing(id).await?,
        None => None,
    };
    let Some(firing) = firing else { return Ok(cannot("firing")) };
    // One that was made anew under its name is another one: its words are not this firing's, nor are its creator's rights.
    let routine = store.routine(&firing.routine).await?.filter(|routine| routine.routine_id == firing.routine_id);
    let Some(routine) = routine else { return Ok(cannot("routine")) };
    // Looked at before it was begun; since then a restart may have taken it up, with other settings.
    let Ok(routine) = rights::of_routine(&house.access, &routine) else {
        return Ok(LoopOutcome::Stopped(RunEnd::of(StopReason::ParentStopped).with("rights", "none")));
    };
    let RoutineAction::Lightweight { files, use_tools, max_tool_rounds, .. } = &routine.spec.action else {
        return Ok(cannot("mode"));
    };
    let beats = routine.origin == RoutineOrigin::Heartbeat;
    let config = &house.routines.config;
    let with_tools = *use_tools && config.lightweight_tools;
    let light = Light {
        instructions: text::instructions(&firing, &routine),
        shown: if beats { None } else { shown(&house, &firing, &routine, files).await },
        tools: if with_tools { tools_of(&house) } else { ToolSet::default() },
        iterations: match with_tools {
            true => (*max_tool_rounds).min(config.lightweight_max_iterations).clamp(1, MOST_ITERATIONS),
            false => 1,
        },
        max_tokens: config.max_tokens,
        nothing: Nothing { word: ROUTINE_OK, is_said: |answer| answer == ROUTINE_OK },
    };
    let light = if beats { heartbeat::light(&house, &firing, &routine, light).await } else { light };
    run(delegate, context, light).await
}

/// What was to be done is not there any more.
fn cannot(what: &str) -> LoopOutcome {
    LoopOutcome::Stopped(RunEnd::of(StopReason::Internal).with("cause", what))
}

/// The files, the state that earlier firings have left, and what set it off.
async fn shown(house: &House, firing: &FiringRecord, routine: &RoutineRecord, files: &[String]) -> Option<String> {
    let mut parts = Vec::new();
    for path in files {
        match house.context.file(path, FILE_MAX_BYTES).await {
            Ok(Some(said)) => parts.push(text::file(path, &said)),
            Ok(None) => parts.push(format!("There is no file {path}.")),
            Err(why) => parts.push(format!("The file {path} is not shown: {why}.")),
        }
    }
    let state = format!("routines/{}/state.md", routine.spec.name);
    match house.context.file(&state, FILE_MAX_BYTES).await {
        Ok(Some(said)) => parts.push(text::state(&state, &said)),
        Ok(None) => {}
        Err(why) => parts.push(format!("The file {state} is not shown: {why}.")),
    }
    parts.extend(firing.payload.as_deref().map(text::payload));
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Tools for what works by itself.
pub(crate) fn tools_of(house: &House) -> ToolSet {
    let given = |tool: &&Arc<dyn Tool>| {
        let name = tool.spec().name.as_str();
        !OWN_TOOLS.contains(&name) && !NOT_GIVEN.contains(&name)
    };
    ToolSet::new(house.reasoning.tools().iter().filter(given).map(Brief::of).collect())
}

/// Runs the small loop: the first text is the result.
///
/// # Errors
/// The model cannot be asked, or the store does not answer.
pub(crate) async fn run(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    light: Light,
) -> Result<LoopOutcome, LoopError> {
    let tools = Arc::new(light.tools);
    delegate.core.joining = None;
    delegate.reasoning = Arc::new(reasoning(
        &delegate.core.house,
        &delegate.core.briefing,
        &tools,
        &light.instructions,
        light.max_tokens,
    ));
    let reasoning = delegate.reasoning.clone();
    if let Some(shown) = light.shown.filter(|_| context.messages.len() == delegate.turn_start + 1) {
        context.push(Message::data(shown).from_outside(true));
        delegate.core.tally.see_outside();
    }
    take_up(delegate, context, &tools).await?;
    let mut tries = TRIES.iter();
    loop {
        if let Some(reason) = delegate.core.stopped() {
            return Ok(LoopOutcome::Stopped(reason.into()));
        }
        let iteration = context.state.iteration + 1;
        let last = iteration >= light.iterations || tools.is_empty();
        context.state.iteration = iteration;
        if last && !tools.is_empty() && !context.state.force_text {
            context.push(Message::system(LAST).for_run());
        }
        if last && !tools.is_empty() {
            context.state.force_text_by(ForcedBy::MaxToolIterations);
        }
        context.state.force_text = last;
        let allowance = delegate.core.allowance(delegate.core.house.max_attempts.max(1));
        let asked = delegate.core.ask(&reasoning, context, iteration, allowance).await?;
        let reply = match delegate.core.turn_of(asked, context)? {
            LlmTurn::Reply(reply) => reply,
            LlmTurn::Stopped(end) => return Ok(LoopOutcome::Stopped(end)),
            LlmTurn::Cut { .. } => return Ok(LoopOutcome::Stopped(StopReason::Chanting.into())),
        };
        if !last && !reply.tool_calls.is_empty() {
            let (_, admitted) = context.admit(reply.text, reply.tool_calls, &reasoning);
            delegate.core.execute(admitted, context, &tools, &unbound).await?;
            continue;
        }
        match result(delegate, context, reply, light.nothing) {
            Some(outcome) => return Ok(outcome),
            None => match tries.next().filter(|_| tools.is_empty()) {
                Some(pause) => {
                    tokio::select! {
                        biased; // a stop that comes meanwhile is seen at the head of the loop
                        () = delegate.core.cancel.cancelled() => {}
                        () = sleep(*pause) => {}
                    }
                }
                None => return Ok(LoopOutcome::Response(String::new())),
            },
        }
    }
}

/// How the model of a small loop is asked.
fn reasoning(house: &House, briefing: &Briefing, tools: &Arc<ToolSet>, words: &str, max_tokens: u32) -> Reasoning {
    let extra = match &briefing.extra {
        Some(extra) => format!("{extra}\n\n{words}"),
        None => words.to_owned(),
    };
    let briefing = Briefing { extra: Some(extra), may_be_silent: false, ..briefing.clone() };
    let prompt = |tools| prompt::join(&prompt::parts(&house.config, &briefing, tools, None));
    Reasoning::new(prompt(Some(&**tools)), prompt(None), tools.clone(), max_tokens, house.max_attempts)
}

/// Gives each call that a crash has left without a result one.
async fn take_up(delegate: &mut ChatDelegate, context: &mut LoopContext, tools: &ToolSet) -> Result<(), LoopError> {
    let open = open_calls(context.messages.get(delegate.turn_start..).unwrap_or_default());
    if open.is_empty() {
        return Ok(());
    }
    let house = delegate.core.house.clone();
    let calls: Vec<AdmittedCall> = open.into_iter().map(|call| house.gate.after_restart(tools, call)).collect();
    delegate.core.execute(calls, context, tools, &unbound).await?;
    Ok(())
}

/// What a text comes to; `None`: there is none. What is cut off before it says anything is none either.
fn result(
    delegate: &mut ChatDelegate,
    context: &mut LoopContext,
    reply: ModelReply,
    nothing: Nothing,
) -> Option<LoopOutcome> {
    delegate.cut_off = match reply.finish {
        FinishReason::Length => Some(StopReason::LengthLimit),
        FinishReason::ContentFilter => Some(StopReason::ContentFilter),
        FinishReason::Stop | FinishReason::ToolCalls => None,
    };
    let shaped = match (nothing.is_said)(reply.text.trim()) {
        true => Reply::Silent,
        false => reply::shape(&reply.text),
    };
    match shaped {
        Reply::Silent => {
            delegate.silent = true;
            delegate.cut_off = None;
            context.push(Message::assistant(nothing.word));
            Some(LoopOutcome::Response(String::new()))
        }
        Reply::Text(mut text) => {
            text.push_str(match delegate.cut_off {
                Some(StopReason::LengthLimit) => CUT_OFF,
                Some(_) => WITHHELD,
                None => "",
            });
            context.push(Message::assistant(&text));
            Some(LoopOutcome::Response(text))
        }
        Reply::Empty | Reply::OnlyEchoes => None,
    }
}

/// A tool whose results are short.
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

    async fn weigh(&self, arguments: &Map<String, Value>, session: &SessionKey) -> Result<Weight, ToolFailure> {
        self.tool.weigh(arguments, session).await
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.tool.call(arguments, context).await
    }
}
