//! The steps of a response: the answers of the model among the messages of its run.

use std::sync::Arc;

use belay_protocol::{ApprovalKind, ApprovalRequest, CallId, Message, MessageBody};

/// The steps of a part of a run.
#[derive(Default)]
pub(super) struct Steps {
    /// How many steps of the run come before them.
    pub(super) before: u32,
    /// The texts, each with the number of its step in the run, from 1. A step without a text has none.
    pub(super) texts: Vec<(u32, String)>,
}

impl Steps {
    /// The steps behind the answer of one request, up to the calls of the next.
    pub(super) fn between(
        messages: &[Arc<Message>],
        after: Option<&ApprovalRequest>,
        until: Option<&ApprovalRequest>,
    ) -> Self {
        let (after, until) = (after.map(calls_of).unwrap_or_default(), until.map(calls_of).unwrap_or_default());
        let is_answer = |message: &&Arc<Message>| match &message.body {
            MessageBody::Tool(result) => after.contains(&&result.call_id),
            _ => false,
        };
        let begin = messages.iter().rposition(|message| is_answer(&message)).map_or(0, |at| at + 1);
        let before = number_of(&messages[..begin]);
        let (mut step, mut texts) = (before, Vec::new());
        for message in &messages[begin..] {
            let MessageBody::Assistant { text, tool_calls } = &message.body else { continue };
            step += 1;
            if !message.scope.is_thread() {
                continue;
            }
            if !text.trim().is_empty() {
                texts.push((step, text.clone()));
            }
            if tool_calls.iter().any(|call| until.contains(&&call.id)) {
                break;
            }
        }
        Self { before, texts }
    }
}

/// How many steps these messages of a run are: each ends with an answer of the model.
pub(super) fn number_of(messages: &[Arc<Message>]) -> u32 {
    messages.iter().map(|message| u32::from(matches!(message.body, MessageBody::Assistant { .. }))).sum()
}

fn calls_of(request: &ApprovalRequest) -> Vec<&CallId> {
    match &request.kind {
        ApprovalKind::ClientCalls { calls, .. } => calls.iter().map(|call| &call.id).collect(),
        ApprovalKind::Approval | ApprovalKind::Credential { .. } | ApprovalKind::Form { .. } => vec![&request.call_id],
    }
}
