//! Makes recordings from Belay's own runs.

use belay_agent_loop::policies::CallOutcome;
use belay_protocol::{Message, MessageBody, MessageScope, ToolStatus};
use belay_text::untrusted::without;

use super::recorder::Recorder;
use crate::event::{CallArguments, TrajectoryEvent, outcome_of};

/// Makes a recording from the messages of a run or of a thread. Messages do not contain the times and tokens of single
/// calls. People read recordings and what is judged by them, so the markers of untrusted content are left out.
pub fn from_messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<TrajectoryEvent> {
    let mut recorder = Recorder::default();
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
                recorder.turn();
                recorder.assistant(text.clone(), !tool_calls.is_empty());
                for call in tool_calls {
                    recorder.call(Some(call.id.to_string()), call.name.clone(), CallArguments::from(&call.arguments));
                }
            }
            MessageBody::Tool(result) => {
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

fn outcome_of_status(status: ToolStatus, text: &str) -> CallOutcome {
    match status {
        ToolStatus::Success => CallOutcome::Success,
        ToolStatus::Denied => CallOutcome::Denied,
        ToolStatus::Cancelled | ToolStatus::NotExecuted => CallOutcome::NotExecuted,
        ToolStatus::Error | ToolStatus::OutcomeUnknown => outcome_of(false, text),
    }
}
