//! The closing turn: one model call without tools, for a run that a limit or a rule has ended. It gives the person the
//! best partial answer and the reason.

use belay_agent_loop::{LoopContext, Reasoning};
use belay_protocol::{Message, RunEnd, StopLayer, StopReason};

use crate::core::{Allowance, Asked, CLOSING_MAX_BYTES, CallPurpose, RunCore};
use crate::reply::{self, Reply};

/// Whether a run that ends this way gets a closing turn. The limit of steps does not need one: the last step already
/// has no tools.
pub fn deserves_one(end: &RunEnd) -> bool {
    let layer = matches!(end.reason.layer(), StopLayer::Budget | StopLayer::Progress);
    layer && !matches!(end.reason, StopReason::CostRefused | StopReason::MaxIterations | StopReason::LengthLimit)
}

/// Calls the model once, without tools and for a bounded time. Records the result in the evidence, adds the answer to
/// the context, and returns it.
///
/// # Cancel safety
/// If the future is dropped, the run still ends as decided. Only the partial answer is lost.
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
    let time = match core.closing_time(context) {
        Ok(time) => time,
        Err(why) => return (why, None),
    };
    context.state.force_text = true;
    context.push(Message::system(request(reason)).for_run());
    let allowance = Allowance { attempts: 1, purpose: CallPurpose::Closing(time) };
    let step = context.state.iteration;
    match core.ask(reasoning, context, step, allowance).await {
        // A server that does not stream sends the whole reply before it could be cut.
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

/// The part before a repetition or the length limit. `None`: the text has neither, so all of it is kept.
fn kept<'t>(core: &RunCore, context: &LoopContext, text: &'t str) -> Option<&'t str> {
    let bounded = &text[..text.floor_char_boundary(CLOSING_MAX_BYTES)];
    let watched = core.rules.cuts_streams(&context.state.stops);
    let before = watched.then(|| context.state.stops.measures.chanting.before_repetition(bounded)).flatten();
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
