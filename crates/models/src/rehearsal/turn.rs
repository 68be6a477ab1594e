//! The current turn, as the context shows it.

use std::sync::Arc;

use belay_protocol::{Attachment, Message, MessageBody, MessageScope, ToolResult};

/// All messages from the person's last one on. Messages of guardrails in the role `user` have the scope of the run, so
/// they do not begin a turn.
pub(super) struct Turn<'a> {
    /// The person's message; empty if there is none.
    pub(super) asked: &'a str,
    /// The files that came with it.
    pub(super) files: &'a [Attachment],
    /// The messages before it.
    pub(super) before: &'a [Arc<Message>],
    after: &'a [Arc<Message>],
    length: usize,
}

impl<'a> Turn<'a> {
    pub(super) fn of(messages: &'a [Arc<Message>]) -> Self {
        let length = messages.len();
        match messages.iter().rposition(|message| is_from_person(message)) {
            None => Self { asked: "", files: &[], before: &[], after: messages, length },
            Some(at) => {
                let message = &messages[at];
                let files = message.provenance.as_ref().map_or(&[][..], |provenance| &provenance.attachments);
                Self { asked: message.text(), files, before: &messages[..at], after: &messages[at + 1..], length }
            }
        }
    }

    /// Number of messages in the whole context.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Whether the conversation contains no answer yet.
    pub(super) fn is_first(&self) -> bool {
        !self.before.iter().any(|message| matches!(message.body, MessageBody::Assistant { .. }))
    }

    /// Number of batches of tool calls so far.
    pub(super) fn batches(&self) -> usize {
        self.after.iter().filter(|message| !message.tool_calls().is_empty()).count()
    }

    /// The results of the last batch, in the order of its calls.
    pub(super) fn last_results(&self) -> Vec<&'a ToolResult> {
        let last = self.after.iter().rposition(|message| !message.tool_calls().is_empty());
        let results = &self.after[last.unwrap_or(self.after.len())..];
        results
            .iter()
            .filter_map(|message| match &message.body {
                MessageBody::Tool(result) => Some(result),
                _ => None,
            })
            .collect()
    }

    /// Number of messages of guardrails in the role `user`: nudges, notices, warnings.
    pub(super) fn notices(&self) -> usize {
        let spoken = |m: &&Arc<Message>| m.scope == MessageScope::Run && matches!(m.body, MessageBody::User { .. });
        self.after.iter().filter(spoken).count()
    }

    /// The latest system message within the run: that the steps run out, that the run ends now, or a finding of a rule.
    pub(super) fn system_notice(&self) -> Option<&'a str> {
        let spoken = |m: &&Arc<Message>| m.scope == MessageScope::Run && matches!(m.body, MessageBody::System { .. });
        self.after.iter().rfind(spoken).map(|message| message.text())
    }

    /// The newest notice in the conversation, such as the result of a job.
    pub(super) fn newest_notice(&self) -> Option<&'a str> {
        let mut messages = self.after.iter().rev().chain(self.before.iter().rev());
        messages.find(|message| message.is_notice()).map(|message| message.text())
    }

    /// The person's messages in earlier turns, oldest first.
    pub(super) fn earlier(&self) -> impl DoubleEndedIterator<Item = &'a str> {
        self.before.iter().filter(|message| is_from_person(message)).map(|message| message.text())
    }
}

fn is_from_person(message: &Message) -> bool {
    message.scope.is_thread() && matches!(message.body, MessageBody::User { .. })
}
