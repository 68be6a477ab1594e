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
    /// The steps behind the calls of the last of these requests, up to the calls of the next. `requests`: those of the run, in
    /// order. The result of a call is stored with the next step, so the calls are the mark.
    pub(super) fn between(
        messages: &[Arc<Message>],
        requests: &[ApprovalRequest],
        until: Option<&ApprovalRequest>,
    ) -> Self {
        let begin = behind_last(messages, requests);
        let until = until.map(calls_of).unwrap_or_default();
        let before = number_of(&messages[..begin]);
        let (mut step, mut texts) = (before, Vec::new());
        // The calls of one answer may be of several requests. Nothing is said between them.
        if !requests.is_empty() && begin > 0 && has_any(&messages[begin - 1], &until) {
            return Self { before, texts };
        }
        for message in &messages[begin..] {
            let MessageBody::Assistant { text, .. } = &message.body else { continue };
            step += 1;
            if !message.scope.is_thread() {
                continue;
            }
            if !text.trim().is_empty() {
                texts.push((step, text.clone()));
            }
            if has_any(message, &until) {
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

/// The place behind the message with the calls of the last request. A model may give an id again, so each request is looked
/// for behind the one before.
fn behind_last(messages: &[Arc<Message>], requests: &[ApprovalRequest]) -> usize {
    let (mut begin, mut before) = (0_usize, Vec::new());
    for request in requests {
        let calls = calls_of(request);
        let is_again = calls.iter().any(|call| before.contains(call));
        let from = if is_again { begin } else { begin.saturating_sub(1) }; // the same message may have several
        if let Some(at) = messages[from..].iter().position(|message| has_any(message, &calls)) {
            begin = from + at + 1;
        }
        before = calls;
    }
    begin
}

fn has_any(message: &Message, calls: &[&CallId]) -> bool {
    message.tool_calls().iter().any(|call| calls.contains(&&call.id))
}

fn calls_of(request: &ApprovalRequest) -> Vec<&CallId> {
    match &request.kind {
        ApprovalKind::ClientCalls { calls, .. } => calls.iter().map(|call| &call.id).collect(),
        ApprovalKind::Approval | ApprovalKind::Credential { .. } | ApprovalKind::Form { .. } => vec![&request.call_id],
    }
}
