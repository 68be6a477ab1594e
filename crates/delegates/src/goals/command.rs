//! The command of a check: a call of `run_command` that the run makes itself, through the effect gate.

use std::sync::Arc;

use belay_agent_loop::{AdmittedCall, LoopContext, LoopError, LoopOutcome};
use belay_protocol::{Arguments, CallId, Message, MessageBody, RunEnd, ToolCall, ToolResult, ToolSet, ToolStatus};
use belay_run::approvals::{ApprovalAnswer, Standing};
use belay_run::effect_gate::unbound;
use serde_json::{Map, Value};

use super::state::GoalState;
use super::texts::tail;
use crate::chat::ChatDelegate;

/// The tool of the check.
const TOOL: &str = "run_command";

/// The result of a check.
pub(super) enum Checked {
    /// It holds. The text is the evidence.
    Holds(String),
    /// It does not hold. The text says what is missing.
    Fails(String),
    /// It may not be carried out, or not any more: the cause, and the reason for the person.
    Refused(&'static str, String),
    /// The run pauses for a person, or was told to stop.
    Leaves(Box<LoopOutcome>),
}

/// Runs the command, or takes its result if an earlier attempt at the run has it.
///
/// # Errors
/// The store does not answer.
pub(super) async fn check(
    turn: &mut ChatDelegate,
    context: &mut LoopContext,
    state: &mut GoalState,
    words: &[String],
) -> Result<Checked, LoopError> {
    let tools = turn.reasoning.tools().clone();
    if tools.get(TOOL).is_none() {
        return Ok(Checked::Refused("check_refused", format!("this run has no tool {TOOL}, which its check needs")));
    }
    let mut call = call_of(turn, state.check, words);
    match place(context, turn.turn_start, &call) {
        Place::Answered(result) if ran(result.status) => return Ok(read(result)),
        // A stop of the daemon came first.
        Place::Answered(_) => {
            state.check += 1;
            call = call_of(turn, state.check, words);
        }
        Place::Open if !answered(turn, &call.id) => {
            // It may have run before a crash. A check is repeated, but its first call gets a result.
            let lost = turn.core.services.gate.after_restart(&tools, context, call);
            turn.core.execute(vec![lost], context, &tools, &unbound).await?;
            state.check += 1;
            call = call_of(turn, state.check, words);
        }
        Place::Open | Place::None => {}
    }
    let now = turn.core.standing_of(&call, &tools).await;
    if let (Some(known), Some(now)) = (&state.standing, &now)
        && let Some(changed) = known.change(now)
    {
        return Ok(Checked::Refused("check_changed", format!("the check has changed since it was set ({changed})")));
    }
    let known = state.standing.clone();
    state.standing = known.clone().or(now);
    state.write(&mut context.state.delegate);
    if matches!(place(context, turn.turn_start, &call), Place::None) {
        context.push(Message::assistant_calls("", vec![call.clone()]));
    }
    let leaves = execute(turn, context, call.clone(), &tools, known.clone()).await?;
    if let Some(outcome) = leaves {
        state.standing = known; // nothing was admitted
        state.write(&mut context.state.delegate);
        return Ok(Checked::Leaves(Box::new(outcome)));
    }
    Ok(match place(context, turn.turn_start, &call) {
        // At a limit of the run nothing runs any more: what the check before has said still stands.
        Place::Answered(result) if !ran(result.status) && !state.said.is_empty() => Checked::Fails(state.said.clone()),
        Place::Answered(result) => match read(result) {
            // A program that only comes into being later would be the work of the run itself.
            Checked::Fails(why) if state.standing.is_none() => Checked::Refused("check_refused", why),
            checked => checked,
        },
        Place::Open | Place::None => Checked::Fails("The command has no result.".to_owned()),
    })
}

/// Whether a call with this status has run to an end of its own.
fn ran(status: ToolStatus) -> bool {
    !matches!(status, ToolStatus::Cancelled | ToolStatus::NotExecuted | ToolStatus::OutcomeUnknown)
}

/// The place of this check's call among these messages.
pub(super) fn place_of(turn: &ChatDelegate, own: &[Arc<Message>], check: u32) -> Option<usize> {
    let id = id_of(turn, check);
    own.iter().rposition(|message| message.tool_calls().iter().any(|call| call.id == id))
}

/// Passes the call through the gate. Returns the outcome of the run if it cannot go on.
async fn execute(
    turn: &mut ChatDelegate,
    context: &mut LoopContext,
    call: ToolCall,
    tools: &ToolSet,
    known: Option<Standing>,
) -> Result<Option<LoopOutcome>, LoopError> {
    turn.core.standing = known.map(Box::new);
    let joining = turn.core.joining.take(); // a newer message must not skip the check
    let executed = turn.core.execute(vec![AdmittedCall { call, refused: None }], context, tools, &unbound).await;
    turn.core.standing = None;
    turn.core.joining = joining;
    let asking = executed?.asking;
    if let Some(reason) = turn.core.stopped() {
        return Ok(Some(LoopOutcome::Stopped(RunEnd::of(reason))));
    }
    Ok(asking.map(|asking| turn.rest_on(asking)))
}

/// The call of the current check.
fn call_of(turn: &ChatDelegate, check: u32, words: &[String]) -> ToolCall {
    let arguments = Map::from_iter([("argv".to_owned(), Value::from(words.to_vec()))]);
    ToolCall { id: id_of(turn, check), name: TOOL.into(), arguments: Arguments::Object(arguments) }
}

/// The id of the call of this check. Providers want ids that are unique in a conversation, and at most 40 characters.
fn id_of(turn: &ChatDelegate, check: u32) -> CallId {
    let run = turn.core.live.id.to_string();
    let random = run.rsplit('-').next().unwrap_or_default();
    CallId::from(format!("goal-{random}-{check}").as_str())
}

fn answered(turn: &ChatDelegate, id: &CallId) -> bool {
    turn.core.answers.get(id).is_some_and(ApprovalAnswer::is_open)
}

/// The place of a check's call in the context.
enum Place<'a> {
    None,
    Open,
    Answered(&'a ToolResult),
}

fn place<'a>(context: &'a LoopContext, from: usize, call: &ToolCall) -> Place<'a> {
    let own = context.messages.get(from..).unwrap_or_default();
    // The whole call: a model could give this id to a call of its own.
    let is_there = |message: &Arc<Message>| message.tool_calls() == std::slice::from_ref(call);
    let Some(at) = own.iter().rposition(is_there) else { return Place::None };
    let result = own[at..].iter().find_map(|message| match &message.body {
        MessageBody::Tool(result) if result.call_id == call.id => Some(result),
        _ => None,
    });
    result.map_or(Place::Open, Place::Answered)
}

fn read(result: &ToolResult) -> Checked {
    let said = tail(&belay_text::untrusted::without(&result.text));
    match result.status {
        ToolStatus::Success => Checked::Holds(said),
        ToolStatus::Denied | ToolStatus::NotExecuted => Checked::Refused("check_refused", said),
        _ => Checked::Fails(said),
    }
}
