//! The texts of the agent, as far as the gateway shows them itself.

use std::sync::Arc;

use belay_protocol::{ApprovalRequest, UnixMillis};

/// Formats an approval request in Markdown, as of that date. The other channels use the same text.
pub type QuestionWords = Arc<dyn Fn(&ApprovalRequest, UnixMillis) -> String + Send + Sync>;

/// What the gateway knows of the texts of the agent.
pub struct AgentTexts {
    /// Formats the text of an approval request.
    pub question: QuestionWords,
    /// Whether a hook at `message_sending` checks the texts for people. It checks a reply and a question, and no text that
    /// the model writes before them.
    pub are_checked: bool,
}
