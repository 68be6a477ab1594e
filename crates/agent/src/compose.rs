//! Composes the delivery at the end of a turn: the unsent part of the answer, and the tool lines and reasoning that the
//! person wants to see. It also names the preview that the answer replaces.

use belay_agent_loop::LoopContext;
use belay_protocol::{HookPoint, ReasoningShown, RunEnd, RunStatus, StopReason};

use crate::queued_run::{Delivery, ReplyText, says};
use crate::streaming::payload;
use crate::streaming::screen::{Closing, Screen};
use belay_delegates::chat::ChatDelegate;
use belay_run::live::LiveRun;
use belay_run::send_message;

/// Adjusts the end of a run that has sent messages, or whose model gives no final text. If a message has already said
/// everything, the reply is not sent again. If a tool failed last, the reply is a line about that.
pub(crate) fn instead_of_nothing(
    delegate: &mut ChatDelegate,
    context: &LoopContext,
    (end, reply): (RunEnd, Option<String>),
) -> (RunEnd, Option<String>) {
    let own = context.messages.get(delegate.turn_start..).unwrap_or_default();
    let sent = send_message::sent_here(own, &delegate.core.live.session);
    // A reader of the beginning of the answer must get the rest, whatever a tool has sent.
    let begun = delegate.core.live.output.blocks().is_some_and(|blocks| blocks.has_begun());
    match reply {
        Some(reply) if !begun && sent.iter().any(|sent| send_message::says_all_of(sent, &reply)) => {
            (end.with(SAID_BY_TOOL, true), Some(reply))
        }
        None if end.reason == StopReason::EmptyReply && !sent.is_empty() => {
            delegate.silent = true;
            (RunEnd::of(StopReason::FinalText).with("silent", true).with(SAID_BY_TOOL, true), None)
        }
        None if end.reason == StopReason::EmptyReply => (end, payload::failure_line(own)),
        reply => (end, reply),
    }
}

/// Evidence: a message of a tool contained the answer, or replaced it.
const SAID_BY_TOOL: &str = "said_by_tool";

/// The parts of a reply.
pub(crate) struct ReplyParts {
    answer: String,
    /// One line for each tool call.
    lines: Vec<String>,
    reasoning: Option<String>,
}

/// The parts of the reply. `None`: there is no reply, because the model chose to be silent, because a message of a tool
/// has said everything, or because the answer to a stop has reported the end.
pub(crate) fn told(
    delegate: &ChatDelegate,
    context: &LoopContext,
    end: &RunEnd,
    reply: Option<String>,
) -> Option<ReplyParts> {
    let (core, options) = (&delegate.core, &delegate.core.request.options);
    let said = end.evidence.contains_key(SAID_BY_TOOL);
    let told =
        core.live.control.stopped_by().is_some_and(|cause| cause.told) && end.reason.status() == RunStatus::Stopped;
    let answered = reply.is_some();
    let answer = says(end, reply, delegate.silent).filter(|_| !told && !said)?;
    // A bound hook has checked only the answer, so nothing else is shown.
    let free = !core.services.hooks.is_bound(HookPoint::MessageSending);
    let own = context.messages.get(delegate.turn_start..).unwrap_or_default();
    let lines = if options.verbose == Some(true) && free {
        payload::tool_lines(own, delegate.reasoning.tools())
    } else {
        Vec::new()
    };
    // Without an answer the reasoning is not shown, because it would look like one.
    let shows_reasoning = options.reasoning == Some(ReasoningShown::On) && free && answered;
    let reasoning = shows_reasoning.then(|| core.live.output.partial().reasoning.trim().to_owned());
    Some(ReplyParts { answer, lines, reasoning: reasoning.filter(|text| !text.is_empty()) })
}

/// Closes the screen of a turn, and composes the delivery.
///
/// # Cancel safety
/// Same as [`Screen::close`].
pub(crate) async fn deliver(run: &LiveRun, screen: Option<Screen>, to_tell: Option<ReplyParts>) -> Delivery {
    let closing = if to_tell.is_some() { Closing::Answered } else { Closing::Nothing };
    let preview = match screen {
        Some(screen) => screen.close(closing).await,
        None => None,
    };
    let Some(ReplyParts { answer, lines, reasoning }) = to_tell else {
        return Delivery { told: ReplyText::Nothing, preview };
    };
    let said = run.output.partial().text.clone();
    let unsaid = match run.output.blocks() {
        Some(blocks) => blocks.unsaid(&said, &answer),
        None => Some(answer),
    };
    let told =
        payload::compose(&lines, reasoning.as_deref(), unsaid.as_deref()).map_or(ReplyText::Nothing, ReplyText::This);
    Delivery { told, preview }
}
