//! Makes recordings from Belay's own runs.

use std::collections::HashSet;

use belay_agent_loop::policies::CallOutcome;
use belay_protocol::{CallId, Event, EventKind, Message, MessageBody, MessageScope, ToolStatus};
use belay_text::untrusted::without;

use super::recorder::Recorder;
use crate::event::{CallArguments, TrajectoryEvent, outcome_of};

/// Makes a recording from the messages of a run or of a thread. Messages do not contain the times and tokens of single
/// calls. People read recordings and what is judged by them, so the markers of untrusted content are left out.
///
/// `facts`: the compactions of the run, and the ends of calls, which say where a compaction was. Others are ignored.
pub fn from_messages<'a>(messages: impl IntoIterator<Item = &'a Message>, facts: &[Event]) -> Vec<TrajectoryEvent> {
    let mut recorder = Recorder::default();
    let (mut compactions, mut answered) = (compactions(facts).into_iter().peekable(), HashSet::new());
    let plain = |text: &str| without(text).into_owned();
    for message in messages {
        match &message.body {
            MessageBody::System { text } if message.scope == MessageScope::Run => recorder.thought(plain(text)),
            MessageBody::System { .. } => {}
            // Nudges and notices have the role `user` and belong to the request.
            MessageBody::Data { text } => recorder.user_in_request(plain(text)),
            MessageBody::User { text } if message.scope == MessageScope::Run => recorder.user_in_request(plain(text)),
            MessageBody::User { text } => recorder.user(text.clone()),
            MessageBody::Assistant { text, tool_calls } => {
                let is_before = |at: &Compaction| at.behind.is_none_or(|call| answered.contains(call));
                while let Some(Compaction { before, after, .. }) = compactions.next_if(is_before) {
                    recorder.compacted(before, after);
                }
                recorder.turn();
                recorder.assistant(text.clone(), !tool_calls.is_empty());
                for call in tool_calls {
                    recorder.call(Some(call.id.to_string()), call.name.clone(), CallArguments::from(&call.arguments));
                }
            }
            MessageBody::Tool(result) => {
                answered.insert(&result.call_id);
                let outcome = outcome_of_status(result.status, &result.text);
                recorder.result_with_outcome(
                    Some(&result.call_id.to_string()),
                    Some(&result.name),
                    outcome,
                    plain(&result.text),
                );
            }
        }
    }
    recorder.done()
}

/// A compaction before a model call.
struct Compaction<'a> {
    /// The newest call that had ended; `None`: none had.
    behind: Option<&'a CallId>,
    before: u64,
    after: u64,
}

fn compactions(facts: &[Event]) -> Vec<Compaction<'_>> {
    let (mut found, mut behind) = (Vec::new(), None);
    for fact in facts {
        match &fact.kind {
            EventKind::ToolFinished { call_id, .. } => behind = Some(call_id),
            EventKind::Compacted { before, after, .. } => {
                found.push(Compaction { behind, before: *before, after: *after });
            }
            _ => {}
        }
    }
    found
}

fn outcome_of_status(status: ToolStatus, text: &str) -> CallOutcome {
    match status {
        ToolStatus::Success => CallOutcome::Success,
        ToolStatus::Denied => CallOutcome::Denied,
        ToolStatus::Cancelled | ToolStatus::NotExecuted => CallOutcome::NotExecuted,
        ToolStatus::Error | ToolStatus::OutcomeUnknown => outcome_of(false, text),
    }
}
