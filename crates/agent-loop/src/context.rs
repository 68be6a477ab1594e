//! What the model sees, and how a request is made of it.

use std::sync::Arc;

use belay_protocol::{Message, MessageBody, MessageScope, ModelRequest, Prompt, ToolResult, ToolSet, ToolStatus};

use crate::state::LoopState;

/// The conversation as the model sees it, and the counters of the run. Whoever starts the loop owns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopContext {
    /// A pinned summary (a system message) first if there is one, then the history, then this run's messages. The
    /// system prompt is not among them: it belongs to [`Reasoning`].
    pub messages: Vec<Arc<Message>>,
    /// The counters, from which a run can be taken up again.
    pub state: LoopState,
}

impl LoopContext {
    /// A new run on this history.
    pub fn new(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, state: LoopState::default() }
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.messages.push(Arc::new(message));
    }

    /// Gives every call that has no result one of this status, text and scope, right behind the results its batch has, and
    /// returns how many there were. For a context that was left in the middle of a batch: by a crash, or by dropping the
    /// loop. A provider refuses a conversation with an open call.
    pub fn answer_open_calls(&mut self, status: ToolStatus, text: &str, scope: MessageScope) -> usize {
        let before = self.messages.len();
        let mut rest = std::mem::take(&mut self.messages).into_iter().peekable();
        while let Some(message) = rest.next() {
            let mut open = message.tool_calls().to_vec();
            self.messages.push(message);
            while let Some(result) = rest.next_if(|next| !open.is_empty() && is_result(next)) {
                open.retain(|call| !answers(&result, &call.id));
                self.messages.push(result);
            }
            for call in open {
                let result = ToolResult { call_id: call.id, name: call.name, status, text: text.into() };
                self.push(Message { scope, ..Message::tool(result) });
            }
        }
        self.messages.len() - before
    }
}

/// Whether a message is a tool result.
pub(crate) fn is_result(message: &Message) -> bool {
    matches!(message.body, MessageBody::Tool(_))
}

/// Whether a message is the result of this call.
pub(crate) fn answers(message: &Message, call: &belay_protocol::CallId) -> bool {
    matches!(&message.body, MessageBody::Tool(result) if result.call_id == *call)
}

/// How the model is asked: constant for a run.
#[derive(Debug)]
pub struct Reasoning {
    with_tools: Prompt,
    without_tools: Prompt,
    tools: Arc<ToolSet>,
    /// The model's name, where the session chose another than the configured one.
    pub model: Option<String>,
    max_tokens: u32,
    max_attempts: u32,
}

impl Reasoning {
    /// A way of asking with these prompts and tools. `max_tokens` to generate, and `max_attempts` requests for each
    /// logical call, are at least 1 whatever is given.
    pub fn new(
        with_tools: Prompt,
        without_tools: Prompt,
        tools: Arc<ToolSet>,
        max_tokens: u32,
        max_attempts: u32,
    ) -> Self {
        let (max_tokens, max_attempts) = (max_tokens.max(1), max_attempts.max(1));
        Self { with_tools, without_tools, tools, model: None, max_tokens, max_attempts }
    }

    /// The same, asking another model than the configured one; `None` asks the configured one.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<Option<String>>) -> Self {
        self.model = model.into();
        self
    }

    /// The same, with these words behind its prompts.
    #[must_use]
    pub fn with_words(&self, words: &str) -> Self {
        let longer = |prompt: &Prompt| Prompt::new(format!("{}{words}", prompt.text));
        Self {
            with_tools: longer(&self.with_tools),
            without_tools: longer(&self.without_tools),
            tools: self.tools.clone(),
            model: self.model.clone(),
            max_tokens: self.max_tokens,
            max_attempts: self.max_attempts,
        }
    }

    /// The run's tools: its allow-list, offered at the moment or not.
    pub fn tools(&self) -> &Arc<ToolSet> {
        &self.tools
    }

    /// The request for the context as it is: **the one place where `force_text` is enforced**. Under it, as in a run
    /// that has no tools, the request carries none at all, and the prompt is the one that does not speak of them.
    pub fn request<'a>(&'a self, context: &'a LoopContext) -> ModelRequest<'a> {
        let tools = self.offered(&context.state);
        ModelRequest {
            prompt: if tools.is_some() { &self.with_tools } else { &self.without_tools },
            tools,
            messages: &context.messages,
            model: self.model.as_deref(),
            thinking: None,
            sampling: None,
            max_tokens: self.max_tokens,
            max_attempts: self.max_attempts,
        }
    }

    /// The tools that a request carries in this state.
    pub(crate) fn offered(&self, state: &LoopState) -> Option<&ToolSet> {
        (!state.force_text && !self.tools.is_empty()).then_some(&*self.tools)
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Arguments, ToolCall};

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "clock".into(), arguments: Arguments::parse("") }
    }

    fn result(id: &str, status: ToolStatus, text: &str) -> Message {
        Message::tool(ToolResult { call_id: id.into(), name: "clock".into(), status, text: text.into() })
    }

    #[test]
    fn an_open_call_is_answered_right_behind_its_batch() {
        let mut context = LoopContext::default();
        context.push(Message::assistant_calls("", vec![call("a"), call("b"), call("c")]));
        context.push(result("b", ToolStatus::Success, "noon"));
        context.push(Message::user("still there?"));
        context.push(Message::assistant_calls("", vec![call("d")]));
        assert_eq!(context.answer_open_calls(ToolStatus::OutcomeUnknown, "?", MessageScope::Thread), 3);

        let mut expected = LoopContext::default();
        expected.push(Message::assistant_calls("", vec![call("a"), call("b"), call("c")]));
        expected.push(result("b", ToolStatus::Success, "noon"));
        expected.push(result("a", ToolStatus::OutcomeUnknown, "?"));
        expected.push(result("c", ToolStatus::OutcomeUnknown, "?"));
        expected.push(Message::user("still there?"));
        expected.push(Message::assistant_calls("", vec![call("d")]));
        expected.push(result("d", ToolStatus::OutcomeUnknown, "?"));
        assert_eq!(context, expected);
        let again = context.answer_open_calls(ToolStatus::OutcomeUnknown, "?", MessageScope::Thread);
        assert_eq!(again, 0, "a whole context stays as it is");
    }
}
