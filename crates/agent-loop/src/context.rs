//! The conversation that the model sees, and the requests that are made from it.

use std::sync::Arc;

use belay_protocol::{
    Message, MessageBody, MessageScope, ModelRequest, Prompt, TextFormat, ToolCall, ToolResult, ToolSet, ToolStatus,
};

use crate::intent::{is_bare_call, unfenced};
use crate::state::LoopState;

/// The conversation as the model sees it, and the counters of the run. The caller of the loop owns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopContext {
    /// A pinned summary (a system message) if there is one, then the history, then the messages of this run. The system
    /// prompt is not one of them: [`Reasoning`] holds it.
    pub messages: Vec<Arc<Message>>,
    /// The counters. A run can be resumed from them.
    pub state: LoopState,
}

impl LoopContext {
    /// Starts a new run on this history.
    pub fn new(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, state: LoopState::default() }
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.messages.push(Arc::new(message));
    }

    /// Adds a result with this status, text and scope for each call that has none, behind the existing results of its
    /// batch. Returns the number of added results. It repairs a context that a crash, or dropping the loop, left in the
    /// middle of a batch: a provider refuses a conversation with a call that has no result.
    pub fn answer_open_calls(&mut self, status: ToolStatus, text: &str, scope: MessageScope) -> usize {
        let before = self.messages.len();
        // From the end, so that an insertion moves no place that is still to be looked at.
        for at in (0..before).rev() {
            let behind = at + 1 + self.messages[at + 1..].iter().take_while(|message| is_result(message)).count();
            let results = &self.messages[at + 1..behind];
            let is_open = |call: &&ToolCall| !results.iter().any(|result| answers(result, &call.id));
            let open: Vec<_> = self.messages[at].tool_calls().iter().filter(is_open).cloned().collect();
            let closed = open.into_iter().map(|ToolCall { id: call_id, name, .. }| {
                let result = ToolResult { call_id, name, status, text: text.into() };
                Arc::new(Message { scope, ..Message::tool(result) })
            });
            self.messages.splice(behind..behind, closed);
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

/// How requests to the model are made: prompts, tools and limits. Constant for a run.
#[derive(Debug)]
pub struct Reasoning {
    with_tools: Arc<Prompt>,
    without_tools: Arc<Prompt>,
    tools: Arc<ToolSet>,
    /// The model that the session chose. `None`: the configured one.
    pub model: Option<String>,
    format: Option<TextFormat>,
    max_tokens: u32,
    max_attempts: u32,
}

impl Reasoning {
    /// Makes requests with these prompts and tools. `max_tokens` limits the generated tokens, `max_attempts` the
    /// requests of one logical call. Both are raised to 1 if they are 0.
    pub fn new(
        with_tools: Prompt,
        without_tools: Prompt,
        tools: Arc<ToolSet>,
        max_tokens: u32,
        max_attempts: u32,
    ) -> Self {
        let (max_tokens, max_attempts) = (max_tokens.max(1), max_attempts.max(1));
        let (with_tools, without_tools) = (Arc::new(with_tools), Arc::new(without_tools));
        Self { with_tools, without_tools, tools, model: None, format: None, max_tokens, max_attempts }
    }

    /// Asks this model instead of the configured one; `None` asks the configured one.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<Option<String>>) -> Self {
        self.model = model.into();
        self
    }

    /// Asks for texts of this form.
    #[must_use]
    pub fn with_format(mut self, format: Option<TextFormat>) -> Self {
        self.format = format;
        self
    }

    /// Returns a copy with `words` appended to both prompts. Without words it shares the prompts, which are serialised
    /// once.
    #[must_use]
    pub fn with_words(&self, words: &str) -> Self {
        let longer = |prompt: &Arc<Prompt>| match words {
            "" => prompt.clone(),
            _ => Arc::new(Prompt::new(format!("{}{words}", prompt.text))),
        };
        Self {
            with_tools: longer(&self.with_tools),
            without_tools: longer(&self.without_tools),
            tools: self.tools.clone(),
            model: self.model.clone(),
            format: self.format.clone(),
            max_tokens: self.max_tokens,
            max_attempts: self.max_attempts,
        }
    }

    /// Returns the same with other tools.
    #[must_use]
    pub fn with_tools(mut self, tools: Arc<ToolSet>) -> Self {
        self.tools = tools;
        self
    }

    /// The allow-list of the run, whether the next request offers these tools or not.
    pub fn tools(&self) -> &Arc<ToolSet> {
        &self.tools
    }

    /// Makes the request for the context as it is. **This is the only place that enforces `force_text`**: with it, or
    /// without any tools in the run, the request contains no tools, and the system prompt is the one that does not
    /// mention them.
    pub fn request<'a>(&'a self, context: &'a LoopContext) -> ModelRequest<'a> {
        let tools = self.offered(&context.state);
        ModelRequest {
            prompt: if tools.is_some() { &self.with_tools } else { &self.without_tools },
            tools,
            messages: &context.messages,
            model: self.model.as_deref(),
            thinking: None,
            sampling: None,
            format: self.format.as_ref(),
            calls: None,
            send_pictures: true,
            later_system: true,
            max_tokens: self.max_tokens,
            max_attempts: self.max_attempts,
        }
    }

    /// Whether the answer has a declared form.
    pub(crate) fn has_format(&self) -> bool {
        self.format.is_some()
    }

    /// Whether a text is nothing but the JSON of calls of these tools, bare or in one code fence.
    pub(crate) fn is_call(&self, text: &str) -> bool {
        is_bare_call(unfenced(text), &|name| self.tools.get(name).is_some())
    }

    /// The tools that a request contains in this state; `None` for a request without tools.
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
    fn a_copy_shares_the_prompts_unless_words_are_added() {
        let first = Reasoning::new(Prompt::new("a"), Prompt::new("b"), Arc::default(), 1, 1);
        let (same, longer) = (first.with_words(""), first.with_words("!"));
        assert!(Arc::ptr_eq(&first.with_tools, &same.with_tools));
        assert!(Arc::ptr_eq(&first.without_tools, &same.without_tools));
        assert_eq!((&*longer.with_tools.text, &*longer.without_tools.text), ("a!", "b!"));
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
