//! The closing turn: the one model call without tools that a run gets when a limit or a rule has ended it, so that the
//! person gets the best partial answer and the reason.

use belay_agent_loop::{LoopContext, Reasoning};
use belay_protocol::{Message, RunEnd, StopLayer, StopReason};

use crate::core::{Allowance, Asked, CallPurpose, RunCore};
use crate::reply::{self, Reply};

/// Whether an ending is followed by a closing turn. Steps have an end of their own: the last one has no tools already.
pub(crate) fn deserves_one(end: &RunEnd) -> bool {
    let layer = matches!(end.reason.layer(), StopLayer::Budget | StopLayer::Progress);
    layer && !matches!(end.reason, StopReason::CostRefused | StopReason::MaxIterations | StopReason::LengthLimit)
}

/// Asks once more, without tools and for a bounded time, and notes in the evidence what became of it. The answer is in
/// the context, and is returned.
///
/// # Cancel safety
/// Dropped midway, the run has its ending all the same; only the partial answer is lost.
pub(crate) async fn closing_turn(
    core: &mut RunCore,
    reasoning: &Reasoning,
    context: &mut LoopContext,
    end: &mut RunEnd,
) -> Option<String> {
    let (outcome, text) = ask(core, reasoning, context, end.reason).await;
    end.evidence.insert("closing".into(), outcome.into());
    if let Some(text) = &text {
        context.push(Message::assistant(text));
    }
    text
}

async fn ask(
    core: &mut RunCore,
    reasoning: &Reasoning,
    context: &mut LoopContext,
    reason: StopReason,
) -> (&'static str, Option<String>) {
    let Some(time) = core.rules.closing_turn() else { return ("off", None) };
    context.state.force_text = true;
    context.push(Message::system(request(reason)).for_run());
    let allowance = Allowance { attempts: 1, purpose: CallPurpose::Closing(time) };
    let step = context.state.iteration;
    match core.ask(reasoning, context, step, allowance).await {
        Ok(Asked::Reply(reply)) => match reply::shape(&reply.text) {
            Reply::Text(text) => ("answered", Some(text)),
            Reply::OnlyEchoes | Reply::Empty | Reply::Silent => ("empty", None),
        },
        Ok(Asked::Ended(end)) => match end.reason {
            StopReason::ActiveTime | StopReason::WallClock => ("timeout", None),
            StopReason::RunCost | StopReason::SessionCost => ("no_reserve", None),
            _ => ("stopped", None),
        },
        Ok(Asked::Failed(_) | Asked::Chanted(_)) | Err(_) => ("failed", None),
    }
}

fn request(reason: StopReason) -> String {
    format!(
        "This run ends now ({}). This is your last message, and no tools are offered. Give the user the best answer that \
         you have, in text: what was found or done, and plainly what is missing or uncertain. Do not announce further work.",
        reason.word().replace('_', " ")
    )
}
