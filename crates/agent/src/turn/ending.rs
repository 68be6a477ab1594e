//! The end of a turn: converts its outcome into the data that the lane stores and delivers.

use belay_agent_loop::{Forced, LoopContext, LoopError, LoopOutcome};
use belay_protocol::{
    AskedIn, Authority, HookPoint, Message, MessageScope, ModelErrorKind, RunEnd, RunId, RunStatus, StopLayer,
    StopReason, StoreError, ToolStatus,
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
use belay_run::live::LiveRun;
use belay_run::metrics;
use belay_run::reply::CUT_SHORT;

/// A turn after the loop.
pub(super) struct Left {
    pub(super) delegate: ChatDelegate,
    pub(super) context: LoopContext,
    pub(super) outcome: Result<LoopOutcome, LoopError>,
    /// The [`Screen`] that showed the run while it worked.
    pub(super) screen: Option<Screen>,
    /// Whether the next start continues the run.
    pub(super) deferred: bool,
}

/// Converts a turn after the loop into the result for its lane.
pub(super) async fn conclude(job: &mut TurnJob, left: Left) -> TurnEnd {
    let Left { mut delegate, mut context, outcome, screen, deferred } = left;
    let (services, run) = (&job.services, &job.run);
    if job.progress.begun_at.is_some() && !deferred && !matches!(outcome, Ok(LoopOutcome::NeedApproval(_))) {
        // If a resumed batch failed before it began, its calls have no results yet.
        context.answer_open_calls(ToolStatus::NotExecuted, "not executed: the run ended first", MessageScope::Thread);
    }
    let lease_lost = matches!(&outcome, Err(LoopError::Store(StoreError::LeaseLost(_))));
    let said = provider_line(job.request.asker.authority, &outcome);
    let (mut end, mut reply) = ending(&delegate, outcome);
    reply = reply.or(said);
    end = with_force(end, context.state.forced);
    (end, reply) = compose::instead_of_nothing(&mut delegate, &context, (end, reply));
    if !lease_lost {
        let (start, channel) = (delegate.turn_start, job.request.reply_to.as_ref().map(|route| &route.channel));
        (end, reply) = reply_hooks::agree(&mut delegate.core, &mut context, start, channel, (end, reply)).await;
    }
    // Nobody watches autonomous work, so its end names the tool that failed repeatedly.
    if job.request.work.is_autonomous() && end.reason.status() != RunStatus::Completed {
        end = services.run.health.blame(run.id, end);
    }
    // If hooks check messages, no text enters the conversation without their consent.
    let unseen = services.hooks.is_bound(HookPoint::MessageSending);
    if let Some(said) = delegate.core.cut_short.take().filter(|_| !lease_lost && !unseen) {
        context.push(Message::assistant(format!("{said}{CUT_SHORT}")));
    }
    let unstored = delegate.core.journal.remainder(&context.messages);
    let mut progress = job.progress.lend();
    (progress.usage, progress.cost_micro_usd) = delegate.core.tally.spent();
    progress.model = delegate.core.tally.model().or(progress.model);
    let told = match lease_lost || deferred || delegate.asking.is_some() {
        true => None,
        false => compose::told(&delegate, &context, &end, reply.clone()),
    };
    let delivery = compose::deliver(run, screen, told).await;
    let asking = delegate.asking.take().map(|mut asking| {
        asking.wanted.place = delegate.core.asks_in.take().map(|place| Box::new(AskedIn::clone(&place)));
        asking
    });
    // The end of the run ends what its calls have left behind.
    let has_left = !(context.state.handles.is_empty() && context.state.left.is_empty());
    progress.state = (asking.is_some() || has_left).then(|| Box::new(context.state));
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

/// Ends the processes that a run has left behind, and drops what those that have ended have printed. The processes of a
/// stopped run are ended elsewhere, at once.
pub(crate) async fn end_processes(services: &AgentServices, run: RunId) {
    let left = services.processes.alive(run);
    if !left.is_empty() {
        tracing::debug!(%run, processes = left.len(), "a run has ended; its processes are ended now");
    }
    services.processes.end(run).await;
}

/// The end of a run that has used all its steps.
pub(super) fn iterations_used(config: &AgentConfig, iterations: u32) -> RunEnd {
    RunEnd::of(StopReason::MaxIterations)
        .with("iterations", iterations)
        .with("max_tool_iterations", config.max_tool_iterations)
}

/// Converts an outcome or an error into the end of the run. No other code does this.
fn ending(delegate: &ChatDelegate, outcome: Result<LoopOutcome, LoopError>) -> (RunEnd, Option<String>) {
    let ChatDelegate { core: RunCore { services, live: run, .. }, silent, cut_off, summary, .. } = delegate;
    let error = match outcome {
        Ok(LoopOutcome::Response(_)) if *silent => {
            return (RunEnd::of(StopReason::FinalText).with("silent", true), None);
        }
        // A limit never counts as success: an empty text because of a limit is not a deliberate silence.
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
            let line = end.line();
            let reply = summary.as_ref().map(|text| match end.reason.layer() {
                StopLayer::Natural if end.reason != StopReason::PlanBlocked => text.clone(),
                _ => format!("{text}\n\n{line}"), // the best partial answer, and the reason why it is partial
            });
            return (end, reply);
        }
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            return (iterations_used(&services.config, iterations), None);
        }
        // Discarded if the delegate has an approval request: the run pauses then.
        Ok(LoopOutcome::NeedApproval(pending)) => {
            return (RunEnd::of(StopReason::ApprovalUnavailable).with("tool", pending.call.name), None);
        }
        Err(error) => error,
    };
    log_failure(run, &error);
    (failure(error), None)
}

/// Writes why a run failed. A provider may quote the message, so its words are a `detail`, which collectors do not get.
fn log_failure(run: &LiveRun, error: &LoopError) {
    match error {
        LoopError::Store(StoreError::LeaseLost(_)) => {
            tracing::info!(run = %run.id, session = %run.session, "the run continues with another owner of its lane");
        }
        LoopError::Model(error) => tracing::warn!(run = %run.id, session = %run.session, detail = %error, "run failed"),
        error => tracing::warn!(run = %run.id, session = %run.session, %error, "run failed"),
    }
}

/// Adds the guardrail and the step to the end of a run that answered in text because its tools were taken away.
fn with_force(end: RunEnd, forced: Option<Forced>) -> RunEnd {
    use StopReason::{ContentFilter, EmptyReply, FinalText, LengthLimit};
    match forced.filter(|_| matches!(end.reason, FinalText | EmptyReply | LengthLimit | ContentFilter)) {
        Some(Forced { by, step }) => end.with("forced_text_by", by.word()).with("step", step),
        None => end,
    }
}

/// The line about a failed model call for operators: the address of the server and the cause, or the provider's words.
/// Other people get the line of the stop reason: only an operator can act on the rest.
fn provider_line(authority: Authority, outcome: &Result<LoopOutcome, LoopError>) -> Option<String> {
    match outcome {
        Err(LoopError::Model(error)) if authority == Authority::Operator => {
            let is_known = error.refusal.is_some() || error.kind == ModelErrorKind::Network;
            is_known.then(|| error.line())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use belay_protocol::{ChannelId, ModelError, ModelErrorKind, ProviderFault, ProviderRefusal, Work};
    use belay_run::live::RunOrigin;
    use belay_testkit::log_lines::LogLines;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_providers_words_about_a_failed_run_are_a_detail_that_collectors_do_not_get() {
        const WORDS: &str = "invalid prompt: my flight is at nine";
        let origin =
            RunOrigin { work: Work::Chat, source: None, channel: ChannelId::new("stdin"), principal: "me".into() };
        let run = LiveRun::new(RunId::new(), "cli".into(), origin, false);
        let (lines, _guard) = LogLines::collect();
        log_failure(&run, &LoopError::Model(ModelError::new(ModelErrorKind::BadRequest, WORDS)));
        assert_eq!(lines.fields_with(WORDS), BTreeSet::from(["detail"]));
    }

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
            for authority in [Authority::Conversation, Authority::Token] {
                assert_eq!(provider_line(authority, &outcome), None);
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
