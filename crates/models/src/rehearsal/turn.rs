//! The current turn, as the context shows it.

use std::sync::Arc;

use belay_protocol::{Message, MessageBody, MessageScope, ToolResult};

/// Everything from the person's last message on. What brakes say in the person's place has the scope of the run, and so
/// does not begin a turn.
pub(super) struct Turn<'a> {
    /// What the person said; empty when nobody said anything.
    pub(super) asked: &'a str,
    /// What came before it.
    pub(super) before: &'a [Arc<Message>],
    after: &'a [Arc<Message>],
    length: usize,
}

impl<'a> Turn<'a> {
    pub(super) fn of(messages: &'a [Arc<Message>]) -> Self {
        let length = messages.len();
        match messages.iter().rposition(|message| is_from_person(message)) {
            None => Self { asked: "", before: &[], after: messages, length },
            Some(at) => {
                Self { asked: messages[at].text(), before: &messages[..at], after: &messages[at + 1..], length }
            }
        }
    }

    /// Messages in the whole context.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Whether nothing has been answered yet in this conversation.
    pub(super) fn is_first(&self) -> bool {
        !self.before.iter().any(|message| matches!(message.body, MessageBody::Assistant { .. }))
    }

    /// Batches of tool calls so far.
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

    /// How often a brake has spoken in the person's place: nudges, notices, warnings.
    pub(super) fn notices(&self) -> usize {
        let spoken = |m: &&Arc<Message>| m.scope == MessageScope::Run && matches!(m.body, MessageBody::User { .. });
        self.after.iter().filter(spoken).count()
    }

    /// What the system has said last within the run: that the steps run out, that it ends now, what a rule has seen.
    pub(super) fn system_notice(&self) -> Option<&'a str> {
        let spoken = |m: &&Arc<Message>| m.scope == MessageScope::Run && matches!(m.body, MessageBody::System { .. });
        self.after.iter().rfind(spoken).map(|message| message.text())
    }

    /// What the person said in earlier turns, oldest first.
    pub(super) fn earlier(&self) -> impl DoubleEndedIterator<Item = &'a str> {
        self.before.iter().filter(|message| is_from_person(message)).map(|message| message.text())
    }
}

fn is_from_person(message: &Message) -> bool {
    message.scope.is_thread() && matches!(message.body, MessageBody::User { .. })
}
