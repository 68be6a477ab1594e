//! The closing turn: the one model call without tools that a run gets when a limit or a rule has ended it, so that the
//! person gets the best partial answer and the reason.

use belay_agent_loop::policies::chanting::Chanting;
use belay_agent_loop::{LoopContext, Reasoning};
use belay_protocol::{Message, RunEnd, StopLayer, StopReason};

use crate::core::{Allowance, Asked, CLOSING_MAX_BYTES, CallPurpose, RunCore};
use crate::reply::{self, Reply};

/// Whether an ending is followed by a closing turn. Steps have an end of their own: the last one has no tools already.
pub fn deserves_one(end: &RunEnd) -> bool {
    let layer = matches!(end.reason.layer(), StopLayer::Budget | StopLayer::Progress);
    layer && !matches!(end.reason, StopReason::CostRefused | StopReason::MaxIterations | StopReason::LengthLimit)
}

/// Asks once more, without tools and for a bounded time, and notes in the evidence what became of it. The answer is in
/// the context, and is returned.
///
/// # Cancel safety
/// Dropped midway, the run has its ending all the same; only the partial answer is lost.
pub async fn closing_turn(
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
        // A server that does not stream is heard to the end before anybody could cut it off.
        Ok(Asked::Reply(reply)) => match kept(core, context, &reply.text) {
            Some(kept) => ("cut", shaped(kept)),
            None => shaped(&reply.text).map_or(("empty", None), |text| ("answered", Some(text))),
        },
        Ok(Asked::Chanted(said)) => ("cut", shaped(kept(core, context, &said).unwrap_or(&said))),
        Ok(Asked::Ended(end)) => match end.reason {
            StopReason::ActiveTime | StopReason::WallClock => ("timeout", None),
            StopReason::RunCost | StopReason::SessionCost => ("no_reserve", None),
            _ => ("stopped", None),
        },
        Ok(Asked::Failed(_)) | Err(_) => ("failed", None),
    }
}

fn shaped(text: &str) -> Option<String> {
    match reply::shape(text) {
        Reply::Text(text) => Some(text),
        Reply::OnlyEchoes | Reply::Empty | Reply::Silent => None,
    }
}

/// What is kept of a text that repeats itself, or is too long: what comes before that. `None`: it is neither.
fn kept<'t>(core: &RunCore, context: &LoopContext, text: &'t str) -> Option<&'t str> {
    let bounded = &text[..text.floor_char_boundary(CLOSING_MAX_BYTES)];
    let watched = core.rules.cuts_streams(&context.state.stops);
    let before = watched.then(|| Chanting::before_repetition(bounded)).flatten();
    before.or((bounded.len() < text.len()).then_some(bounded))
}

fn request(reason: StopReason) -> String {
    format!(
        "This run ends now ({}). This is your last message, and no tools are available. Give the user the best final \
         answer that you can, in text: state what you found or did, and clearly state what is missing or uncertain. Do \
         not announce further work.",
        reason.word().replace('_', " ")
    )
}
