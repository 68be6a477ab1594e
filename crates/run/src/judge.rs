//! The judge: a model reads the newest part of a long run and decides whether the run repeats itself. Its calls are
//! charged, stopped and timed like every other call of the run.

use std::sync::Arc;

use belay_agent_loop::policies::judge::{self, JudgePrompt};
use belay_agent_loop::{LoopContext, LoopOutcome, Reasoning};
use belay_protocol::{Message, MessageBody, Prompt, RunEnd, StopLayer, StopReason, plain_line};
use futures_util::future::BoxFuture;

use crate::core::{Allowance, Asked, CallPurpose, RunCore, SideQuestion};

/// Maximum length of an opinion, in tokens. 512: a few sentences and a number.
const OPINION_MAX_TOKENS: u32 = 512;

/// Maximum length of the stored analysis, in characters. 500: a few sentences; the record of the run contains it.
const ANALYSIS_MAX_CHARS: usize = 500;

/// Result of one question.
enum Opinion {
    /// The model's confidence in a loop, from 0 to 1, and its analysis.
    Confidence(f64, Option<String>),
    /// No usable opinion. It counts as no loop.
    None,
    /// The run was stopped, or a limit was reached.
    Ended(RunEnd),
}

/// Asks the judge, if it is due, and carries out its verdict. `from`: where the current request begins in the context.
///
/// # Cancel safety
/// If the future is dropped, nothing was judged. The question is asked again at the next step.
pub async fn consult(core: &mut RunCore, context: &mut LoopContext, from: usize) -> Option<LoopOutcome> {
    let state = &context.state.stops;
    if state.detection_off || state.latched.is_some() || !state.measures.judge.is_due(&core.rules.judge) {
        return None;
    }
    // Boxed, because nearly all steps do not ask and need not hold this future.
    let asking: BoxFuture<'_, _> = Box::pin(consult_now(core, context, from));
    asking.await
}

async fn consult_now(core: &mut RunCore, context: &mut LoopContext, from: usize) -> Option<LoopOutcome> {
    let config = core.rules.judge.clone();
    let own = context.messages.get(from..).unwrap_or_default();
    let request = own.iter().find_map(|message| match &message.body {
        MessageBody::User { text } if message.scope.is_thread() => Some(text.as_str()),
        _ => None,
    });
    let prompt = judge::prompt(request, own, config.history);
    let turn = context.state.stops.measures.judge.turn();
    let mut confidence = None;
    let mut analysis = None;
    let mut confirmed_by = None;
    for (place, model) in [(1, config.model.clone()), (2, config.second_model.clone())] {
        if place == 2 && (model.is_none() || confidence.is_none_or(|first| first < config.confidence)) {
            break; // no second model, or no suspicion to confirm
        }
        match ask(core, context, &prompt, model.clone()).await {
            Opinion::Confidence(sure, seen) => (confidence, analysis) = (Some(sure), seen.or(analysis)),
            Opinion::None => {
                confidence = None;
                break;
            }
            Opinion::Ended(end) => return Some(LoopOutcome::Stopped(end)),
        }
        confirmed_by = model.or(confirmed_by);
    }
    let analysis = analysis.map(|text| plain_line(&text, ANALYSIS_MAX_CHARS));
    tracing::debug!(run = %core.live.id, turn, ?confidence, analysis = analysis.as_deref(), "the judge was asked");
    context.state.stops.measures.judge.after(&config, confidence);
    let sure = confidence.filter(|sure| *sure >= config.confidence)?;
    let mut finding = judge::finding(&config, sure, turn, confirmed_by.as_deref());
    if let Some(analysis) = analysis {
        finding = finding.with("analysis", analysis);
    }
    let verdict = context.state.stops.judged(&core.rules, finding);
    context.apply_verdict(verdict).map(LoopOutcome::Stopped)
}

async fn ask(core: &mut RunCore, context: &LoopContext, prompt: &JudgePrompt, model: Option<String>) -> Opinion {
    let system = || Prompt::new(prompt.system.clone());
    let reasoning = Reasoning::new(system(), system(), Arc::default(), OPINION_MAX_TOKENS, 2).with_model(model);
    // A separate context: the question does not enter the conversation.
    let mut aside = LoopContext::new(vec![Arc::new(Message::user(prompt.user.clone()))]);
    aside.state.stops.measures.time = context.state.stops.measures.time;
    let allowance = Allowance { attempts: 2, purpose: CallPurpose::SideQuestion(SideQuestion::Judge) };
    let step = context.state.iteration;
    match core.ask(&reasoning, &mut aside, step, allowance).await {
        Ok(Asked::Reply(reply)) => match judge::parse(&reply.text) {
            Some(confidence) => Opinion::Confidence(confidence, judge::analysis(&reply.text)),
            None => Opinion::None,
        },
        // A limit on the cost of the question is no reason to end the run.
        Ok(Asked::Ended(end)) if end.reason.layer() == StopLayer::Budget && !is_time(end.reason) => Opinion::None,
        Ok(Asked::Ended(end)) => Opinion::Ended(end),
        Ok(Asked::Failed(error)) => {
            tracing::warn!(run = %core.live.id, detail = %error, "the judge could not be asked");
            Opinion::None
        }
        Ok(Asked::Chanted(_)) => Opinion::None,
        Err(error) => {
            // A daily limit that refuses this call also refuses the run's next call; the same is true of a broken
            // store.
            crate::log_failure!(warn, error, run = %core.live.id, detail = %error, "the judge was not asked");
            Opinion::None
        }
    }
}

fn is_time(reason: StopReason) -> bool {
    matches!(reason, StopReason::ActiveTime | StopReason::WallClock)
}
