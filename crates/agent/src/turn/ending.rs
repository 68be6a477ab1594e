//! The end of a turn: what its outcome means, and everything that is to be stored and told of it.

use belay_agent_loop::{Forced, LoopContext, LoopError, LoopOutcome};
use belay_protocol::{
    Authority, HookPoint, Message, MessageScope, RunEnd, RunId, RunStatus, StopLayer, StopReason, StoreError,
    ToolStatus,
};

use super::{Conversation, TurnEnd, TurnJob, TurnOutcome};
use crate::agent_services::AgentServices;
use crate::compose;
use crate::queued_run::RunEnding;
use crate::reply_hooks;
use crate::streaming::screen::Screen;
use belay_delegates::chat::ChatDelegate;
use belay_run::config::AgentConfig;
use belay_run::core::{RunCore, failure};
use belay_run::metrics;
use belay_run::reply::CUT_SHORT;

/// A turn that has left the loop.
pub(super) struct Left {
    pub(super) delegate: ChatDelegate,
    pub(super) context: LoopContext,
    pub(super) outcome: Result<LoopOutcome, LoopError>,
    /// What has shown its answer on the way.
    pub(super) screen: Option<Screen>,
    /// The next start continues it.
    pub(super) deferred: bool,
}

/// Makes of a turn that has left the loop what its lane stores and tells.
pub(super) async fn conclude(job: &mut TurnJob, left: Left) -> TurnEnd {
    let Left { mut delegate, mut context, outcome, screen, deferred } = left;
    let (services, run) = (&job.services, &job.run);
    if job.progress.begun_at.is_some() && !deferred && !matches!(outcome, Ok(LoopOutcome::NeedApproval(_))) {
        // Where a resumed batch failed before it began, its calls have no results yet.
        context.answer_open_calls(ToolStatus::NotExecuted, "not executed: the run ended first", MessageScope::Thread);
    }
    let lease_lost = matches!(&outcome, Err(LoopError::Store(StoreError::LeaseLost(_))));
    let said = provider_line(job.request.asker.place, &outcome);
    let (mut end, mut reply) = ending(&delegate, outcome);
    reply = reply.or(said);
    end = with_force(end, context.state.forced);
    (end, reply) = compose::instead_of_nothing(&mut delegate, &context, (end, reply));
    if !lease_lost {
        let (start, channel) = (delegate.turn_start, job.request.reply_to.as_ref().map(|route| &route.channel));
        (end, reply) = reply_hooks::agree(&mut delegate.core, &mut context, start, channel, (end, reply)).await;
    }
    // Nobody watches work that goes on by itself: its end says what it was that did not work.
    if job.request.work.is_autonomous() && end.reason.status() != RunStatus::Completed {
        end = services.run.health.blame(run.id, end);
    }
    // Where hooks look at what is said, nothing enters the conversation that they have not agreed to.
    let unseen = services.hooks.is_bound(HookPoint::MessageSending);
    if let Some(said) = delegate.core.cut_short.take().filter(|_| !lease_lost && !unseen) {
        context.push(Message::assistant(format!("{said}{CUT_SHORT}")));
    }
    let unstored = delegate.core.journal.remainder(&context.messages);
    let mut progress = job.progress.lend();
    (progress.usage, progress.cost_micro_usd) = delegate.core.tally.spent();
    let told = match lease_lost || deferred || delegate.asking.is_some() {
        true => None,
        false => compose::told(&delegate, &context, &end, reply.clone()),
    };
    let delivery = compose::deliver(run, screen, told).await;
    let asking = delegate.asking.take().map(Box::new);
    progress.state = asking.is_some().then(|| Box::new(context.state));
    if asking.is_none() && !lease_lost && delegate.core.stopped().is_none() {
        end_processes(services, run.id).await;
    }
    let own = context.messages.split_off(delegate.turn_start.min(context.messages.len()));
    let conversation = Conversation { history: context.messages, own, calibration: delegate.shortener.calibration };
    let outcome = match asking {
        _ if lease_lost => TurnOutcome::LeaseLost,
        _ if deferred => TurnOutcome::Deferred,
        Some(asking) => TurnOutcome::Paused(asking, unstored),
        None => TurnOutcome::Ended(RunEnding { end, reply, silent: delegate.silent, delivery, unstored }),
    };
    TurnEnd { conversation, progress, outcome }
}

/// Ends what a run has left behind. A run that was stopped has others do this, at once.
pub(crate) async fn end_processes(services: &AgentServices, run: RunId) {
    let left = services.processes.alive(run);
    if !left.is_empty() {
        tracing::debug!(%run, processes = left.len(), "a run has ended; its processes are ended now");
        services.processes.end(run).await;
    }
}

/// The end of a run whose steps are used up.
pub(super) fn iterations_used(config: &AgentConfig, iterations: u32) -> RunEnd {
    RunEnd::of(StopReason::MaxIterations)
        .with("iterations", iterations)
        .with("max_tool_iterations", config.max_tool_iterations)
}

/// The one place where an outcome or an error becomes the run's end.
fn ending(delegate: &ChatDelegate, outcome: Result<LoopOutcome, LoopError>) -> (RunEnd, Option<String>) {
    let ChatDelegate { core: RunCore { services, live: run, .. }, silent, cut_off, summary, .. } = delegate;
    let error = match outcome {
        Ok(LoopOutcome::Response(_)) if *silent => {
            return (RunEnd::of(StopReason::FinalText).with("silent", true), None);
        }
        // A cap is never ok: nothing said because of a limit is not "nothing to say".
        Ok(LoopOutcome::Response(text)) if text.is_empty() => {
            return (RunEnd::of(cut_off.unwrap_or(StopReason::EmptyReply)), None);
        }
        Ok(LoopOutcome::Response(text)) => {
            let end = RunEnd::of(StopReason::FinalText);
            let end = match cut_off {
                Some(by) => end.with("cut_off", by.word()),
                None => end,
            };
            return (end, Some(text));
        }
        Ok(LoopOutcome::Stopped(end)) => {
            if let Some(rule) = end.evidence.get("rule").and_then(|rule| rule.as_str()) {
                metrics::rule_fired(rule, "stop");
            }
            let line = end.reason.user_line();
            let reply = summary.as_ref().map(|text| match end.reason.layer() {
                StopLayer::Natural if end.reason != StopReason::PlanBlocked => text.clone(),
                _ => format!("{text}\n\n{line}"), // the best partial answer, and why it is no more
            });
            return (end, reply);
        }
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            return (iterations_used(&services.config, iterations), None);
        }
        // Not an end, unless the question cannot be stored: the lane says so then.
        Ok(LoopOutcome::NeedApproval(pending)) => {
            return (RunEnd::of(StopReason::ApprovalUnavailable).with("tool", pending.call.name), None);
        }
        Err(error) => error,
    };
    tracing::warn!(run = %run.id, session = %run.session, %error, "run failed");
    (failure(error), None)
}

/// The end of a run that answered in text because its tools had been taken away says by what, and in which step.
fn with_force(end: RunEnd, forced: Option<Forced>) -> RunEnd {
    use StopReason::{ContentFilter, EmptyReply, FinalText, LengthLimit};
    match forced.filter(|_| matches!(end.reason, FinalText | EmptyReply | LengthLimit | ContentFilter)) {
        Some(Forced { by, step }) => end.with("forced_text_by", by.word()).with("step", step),
        None => end,
    }
}

/// What an operator reads of a call that the provider refused. Other people read the line of the reason: the provider's words
/// may name accounts and addresses, and what to do is for the operator to do.
fn provider_line(place: Authority, outcome: &Result<LoopOutcome, LoopError>) -> Option<String> {
    match outcome {
        Err(LoopError::Model(error)) if place == Authority::Operator => {
            error.refusal.as_ref().map(|refusal| refusal.line())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{ModelError, ModelErrorKind, ProviderFault, ProviderRefusal};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_providers_words_are_in_the_record_and_told_to_operators_alone() {
        let refused = |kind, fault, status| {
            let (code, message) = ("a_code".to_owned(), "its words".to_owned());
            let refusal =
                ProviderRefusal { fault, status: Some(status), code, message, key_from: "OPENAI_API_KEY".into() };
            ModelError { refusal: Some(Box::new(refusal)), ..ModelError::new(kind, "") }
        };
        let overloaded = ModelErrorKind::Overloaded { retry_after: None };
        for (kind, fault, status, reason) in [
            (ModelErrorKind::Auth, ProviderFault::Key, 401, StopReason::ProviderAuth),
            (ModelErrorKind::Auth, ProviderFault::Quota, 429, StopReason::ProviderQuota),
            (ModelErrorKind::BadRequest, ProviderFault::UnknownModel, 404, StopReason::UnknownModel),
            (ModelErrorKind::BadRequest, ProviderFault::Request, 400, StopReason::BadRequest),
            (overloaded, ProviderFault::Server, 500, StopReason::ProviderError),
            (overloaded, ProviderFault::Overloaded, 529, StopReason::Overloaded),
        ] {
            let error = refused(kind, fault, status);
            let line = error.refusal.as_ref().map(|refusal| refusal.line());
            let outcome = Err(LoopError::Model(error.clone()));
            assert_eq!(provider_line(Authority::Operator, &outcome), line);
            for place in [Authority::Conversation, Authority::Token] {
                assert_eq!(provider_line(place, &outcome), None);
            }
            let end = failure(LoopError::Model(error));
            assert_eq!(end.reason, reason, "{fault:?}");
            let expected = json!({
                "requests": 1, "answers_begun": 0, "provider_fault": fault.word(), "provider_status": status,
                "provider_code": "a_code", "provider_message": "its words", "key_from": "OPENAI_API_KEY",
            });
            assert_eq!(Value::Object(end.evidence), expected);
        }
    }
}
