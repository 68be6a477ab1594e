//! The end of a turn as its conversation reads it: the answer, as far as it was not said before, with what the person wants
//! to see of the work, and in the place of what has shown it on its way.

use belay_agent_loop::LoopContext;
use belay_protocol::{HookPoint, ReasoningShown, RunEnd, RunStatus, StopReason};

use crate::queued_run::{Delivery, ReplyText, says};
use crate::streaming::payload;
use crate::streaming::screen::{Closing, Screen};
use belay_delegates::chat::ChatDelegate;
use belay_run::live::LiveRun;
use belay_run::send_message;

/// What a run comes to that has sent messages, or whose model ends with no word: it has said its say already, or a tool has
/// failed and nobody has told of it.
pub(crate) fn instead_of_nothing(
    delegate: &mut ChatDelegate,
    context: &LoopContext,
    (end, reply): (RunEnd, Option<String>),
) -> (RunEnd, Option<String>) {
    let own = context.messages.get(delegate.turn_start..).unwrap_or_default();
    let sent = send_message::sent_here(own, &delegate.core.live.session);
    // Who has read the beginning of the answer reads the rest of it too, whatever a tool has sent.
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

/// Evidence: the answer, or its place, was taken by what a tool has sent.
const SAID_BY_TOOL: &str = "said_by_tool";

/// What there is to tell at the end of a run.
pub(crate) struct ReplyParts {
    answer: String,
    /// A line for each tool call.
    lines: Vec<String>,
    reasoning: Option<String>,
}

/// What there is to tell; `None` where nobody is told: the model chose to be silent, or the answer to a stop has told it.
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
    // Nobody reads more than the operator's hooks have agreed to.
    let free = !core.services.hooks.is_bound(HookPoint::MessageSending);
    let own = context.messages.get(delegate.turn_start..).unwrap_or_default();
    let lines = match options.verbose == Some(true) && free {
        true => payload::tool_lines(own, delegate.reasoning.tools()),
        false => Vec::new(),
    };
    // Without an answer there is nothing to join it to: it is never shown in the place of one.
    let shows_reasoning = options.reasoning == Some(ReasoningShown::On) && free && answered;
    let reasoning = shows_reasoning.then(|| core.live.output.partial().reasoning.trim().to_owned());
    Some(ReplyParts { answer, lines, reasoning: reasoning.filter(|text| !text.is_empty()) })
}

/// Ends the showing of a turn, and makes of what there is to tell what is delivered.
///
/// # Cancel safety
/// As [`Screen::close`].
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
