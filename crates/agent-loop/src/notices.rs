//! The notices of the guardrails to the model. Each is a `user` message of its own, because models follow those. All of
//! them have the scope of the run, so that later turns do not see words that the person never wrote.

use belay_protocol::Message;

use crate::context::LoopContext;

const NUDGE: &str = "You said that you would use a tool, but your message contained no tool call. If you still need \
                     the tool, call it now. Otherwise give your final answer, without announcing further actions.";

const LEFT_CALL: &str = "Your message contained a tool call as text, which runs nothing. If you still need the tool, call \
                         it through the interface for tool calls now. Otherwise give your final answer in plain text.";

/// Adds the text that announced a tool, or contained a call (`left`), and a request for the call.
pub(crate) fn nudge(context: &mut LoopContext, text: String, left: bool) {
    context.push(Message::assistant(text).for_run());
    context.push(Message::user(if left { LEFT_CALL } else { NUDGE }).for_run());
}

/// Adds the text that came with truncated calls, without the calls, and a request for a different approach.
pub(crate) fn discarded_calls(context: &mut LoopContext, text: String, count: u32) {
    let force_text = context.state.force_text;
    tracing::debug!(iteration = context.state.iteration, count, force_text, "truncated tool calls discarded");
    if !text.trim().is_empty() {
        context.push(Message::assistant(text).for_run());
    }
    let what = "Your reply reached the length limit in the middle of a tool call, so no tool was run.";
    let now = if force_text {
        "No tools are available any more. Give a brief final answer in text now, with what you have."
    } else {
        "Try a different approach: smaller arguments, fewer calls at once, or a final answer in text."
    };
    context.push(Message::user(format!("{what} {now}")).for_run());
}

/// Adds a warning about a batch that fails repeatedly.
pub(crate) fn duplicate_failures(context: &mut LoopContext, count: u32) {
    let force_text = context.state.force_text;
    tracing::debug!(iteration = context.state.iteration, count, force_text, "the same tool calls failed again");
    let what = format!("The same tool calls with the same arguments have now failed {count} times in a row.");
    let now = if force_text {
        "No tools are available any more. Give your final answer now with what you have, and state what could not be \
         done."
    } else {
        "Repeating them will not help. Change the arguments, use another tool, or give your final answer with what you \
         have."
    };
    context.push(Message::user(format!("{what} {now}")).for_run());
}
