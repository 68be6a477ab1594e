//! Parses a chat request and finds its new messages.

use axum::http::HeaderValue;
use belay_protocol::inbound::{HistoryLine, HistoryRole};
use belay_protocol::{RunId, Sampling, SessionKey, Thinking};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::error::OpenAiError;
use super::format::AnswerForm;
use super::sampling::SamplingFields;

use crate::checks::check_text;

/// A chat request; unused fields are left out.
#[derive(Deserialize)]
pub(crate) struct ChatRequest {
    pub(crate) model: Option<String>,
    #[serde(default)]
    messages: Vec<ChatMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    user: Option<String>,
    n: Option<u64>,
    tools: Option<Value>,
    functions: Option<Value>,
    response_format: Option<Value>,
    reasoning_effort: Option<String>,
    #[serde(flatten)]
    sampling: SamplingFields,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
    Other(IgnoredAny),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// The new part of a request.
#[derive(Debug, PartialEq)]
pub(crate) struct Conversation {
    pub(crate) session: SessionKey,
    /// Whether the client has named the session, so that later requests can continue it.
    pub(crate) is_named: bool,
    pub(crate) text: String,
    pub(crate) history: Vec<HistoryLine>,
    /// The form of the answer.
    pub(crate) form: AnswerForm,
    /// The level of thinking.
    pub(crate) thinking: Option<Thinking>,
    /// The sampling parameters.
    pub(crate) sampling: Option<Box<Sampling>>,
}

impl ChatRequest {
    /// Whether the answer is streamed.
    pub(crate) fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with the usage.
    pub(crate) fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false)
    }

    /// The session and its new messages. In a named session these are the messages after the last assistant message.
    /// Without a name they are all messages, in a new session.
    pub(crate) fn conversation(&self, header: Option<&HeaderValue>) -> Result<Conversation, OpenAiError> {
        self.refuse_unsupported()?;
        let named = self.named_session(header)?;
        let lines = self.lines()?;
        if lines.last().is_none_or(|line| line.role != HistoryRole::User) {
            return Err(OpenAiError::invalid("messages", "invalid_value", "the last message must be the user's"));
        }
        let said = match named {
            Some(session) => continued(session, lines),
            None => fresh(lines),
        };
        let form = AnswerForm::read(self.response_format.as_ref())?;
        let sampling = self.sampling.read()?.map(Box::new);
        let conversation = Conversation { form, thinking: self.thinking()?, sampling, ..said };
        check_text(&conversation.text)
            .map_err(|e| OpenAiError::invalid("messages", "invalid_value", format!("the user's text {e}")))?;
        Ok(conversation)
    }

    fn refuse_unsupported(&self) -> Result<(), OpenAiError> {
        for (param, value) in [("tools", &self.tools), ("functions", &self.functions)] {
            if value.as_ref().is_some_and(|value| !value.is_null() && value.as_array().is_none_or(|a| !a.is_empty())) {
                let message = "client-side tools are not supported: Belay runs its own tools and answers with text";
                return Err(OpenAiError::invalid(param, "unsupported_parameter", message));
            }
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(OpenAiError::invalid("n", "unsupported_value", "only one answer can be asked for"));
        }
        if self.messages.is_empty() {
            return Err(OpenAiError::invalid("messages", "missing_required_parameter", "messages must not be empty"));
        }
        Ok(())
    }

    /// Converts the reasoning effort to a level of thinking.
    fn thinking(&self) -> Result<Option<Thinking>, OpenAiError> {
        let Some(effort) = &self.reasoning_effort else { return Ok(None) };
        match effort.as_str() {
            "none" => Ok(Some(Thinking::Off)),
            "minimal" | "low" => Ok(Some(Thinking::Low)),
            "medium" => Ok(Some(Thinking::Medium)),
            "high" | "xhigh" => Ok(Some(Thinking::High)),
            other => {
                let message = format!("must be none, minimal, low, medium, high or xhigh, not {other:?}");
                Err(OpenAiError::invalid("reasoning_effort", "invalid_value", message))
            }
        }
    }

    fn named_session(&self, header: Option<&HeaderValue>) -> Result<Option<SessionKey>, OpenAiError> {
        let (param, text) = match header {
            Some(value) => ("X-Belay-Session", std::str::from_utf8(value.as_bytes()).unwrap_or("\0")),
            None => ("user", self.user.as_deref().unwrap_or_default()),
        };
        if text.is_empty() {
            return Ok(None);
        }
        SessionKey::parse(text).map(Some).map_err(|e| OpenAiError::invalid(param, "invalid_value", e))
    }

    fn lines(&self) -> Result<Vec<HistoryLine>, OpenAiError> {
        self.messages.iter().enumerate().map(|(at, message)| message.line(at)).collect()
    }
}

impl ChatMessage {
    fn line(&self, at: usize) -> Result<HistoryLine, OpenAiError> {
        let role = match self.role.as_str() {
            "system" | "developer" => HistoryRole::System,
            "user" => HistoryRole::User,
            "assistant" => HistoryRole::Assistant,
            other => {
                let message = format!("the role {other:?} is not supported; system, developer, user and assistant are");
                return Err(OpenAiError::invalid(format!("messages[{at}].role"), "invalid_value", message));
            }
        };
        let param = || format!("messages[{at}].content");
        let text = match &self.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts
                .iter()
                .map(|part| match (part.kind.as_str(), &part.text) {
                    ("text", Some(text)) => Ok(text.as_str()),
                    (kind, _) => {
                        let message = format!("parts of type {kind:?} are not supported; text parts are");
                        Err(OpenAiError::invalid(param(), "unsupported_content", message))
                    }
                })
                .collect::<Result<String, _>>()?,
            None if role == HistoryRole::Assistant => String::new(),
            None | Some(Content::Other(_)) => {
                let message = "the content must be a text or a list of text parts";
                return Err(OpenAiError::invalid(param(), "invalid_type", message));
            }
        };
        Ok(HistoryLine { role, text })
    }
}

/// A named session: the store has the earlier messages.
fn continued(session: SessionKey, mut lines: Vec<HistoryLine>) -> Conversation {
    let known = lines.iter().rposition(|line| line.role == HistoryRole::Assistant).map_or(0, |at| at + 1);
    let (history, said): (Vec<_>, Vec<_>) = lines.drain(known..).partition(|line| line.role == HistoryRole::System);
    let text = said.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n\n");
    Conversation { session, is_named: true, text, history, form: AnswerForm::Text, thinking: None, sampling: None }
}

/// A new session under an unused key.
fn fresh(mut history: Vec<HistoryLine>) -> Conversation {
    let text = history.pop().map(|line| line.text).unwrap_or_default();
    history.retain(|line| !line.text.is_empty());
    let session = SessionKey::new(format!("openai:{}", RunId::new()));
    Conversation { session, is_named: false, text, history, form: AnswerForm::Text, thinking: None, sampling: None }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value, header: Option<&'static str>) -> Result<Conversation, String> {
        let request: ChatRequest = serde_json::from_value(body).unwrap();
        let header = header.map(HeaderValue::from_static);
        request.conversation(header.as_ref()).map_err(|error| error.body()["error"]["param"].to_string())
    }

    fn talk() -> Value {
        json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "1"},
            {"role": "developer", "content": "in French"},
            {"role": "user", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "thr"}, {"type": "text", "text": "ee"}]},
        ])
    }

    fn show(conversation: &Conversation) -> String {
        let lines: Vec<_> = conversation.history.iter().map(|l| format!("{:?}:{}", l.role, l.text)).collect();
        format!("{} <- {}", conversation.text, lines.join("|"))
    }

    #[test]
    fn a_named_session_takes_only_what_is_new_and_a_fresh_one_takes_all() {
        let named = read(json!({"messages": talk(), "user": "ada"}), None).unwrap();
        assert_eq!((named.session.as_str(), show(&named).as_str()), ("ada", "two\n\nthree <- System:in French"));
        let header = read(json!({"messages": talk(), "user": "ada"}), Some("eve")).unwrap();
        assert_eq!(header.session.as_str(), "eve");
        let fresh = read(json!({"messages": talk()}), None).unwrap();
        assert!(fresh.session.as_str().starts_with("openai:"));
        assert_eq!(show(&fresh), "three <- System:be brief|User:one|Assistant:1|System:in French|User:two");
        assert_ne!(read(json!({"messages": talk()}), None).unwrap().session, fresh.session);
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let user = json!([{"role": "user", "content": "hi"}]);
        for (body, param) in [
            (json!({}), "messages"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": [{"role": "assistant", "content": "hi"}]}), "messages"),
            (json!({"messages": [{"role": "user", "content": "  "}]}), "messages"),
            (json!({"messages": [{"role": "user", "content": []}]}), "messages"),
            (json!({"messages": [{"role": "user", "content": null}]}), "messages[0].content"),
            (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
                "messages[0].content",
            ),
            (json!({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}), "messages[0].role"),
            (json!({"messages": user, "tools": [{"type": "function"}]}), "tools"),
            (json!({"messages": user, "functions": {"a": 1}}), "functions"),
            (json!({"messages": user, "n": 2}), "n"),
            (json!({"messages": user, "reasoning_effort": "heroic"}), "reasoning_effort"),
            (json!({"messages": user, "response_format": {"type": "grammar"}}), "response_format.type"),
            (json!({"messages": user, "user": "x".repeat(300)}), "user"),
            (json!({"messages": user, "temperature": 2.5}), "temperature"),
            (json!({"messages": user, "logit_bias": {"7": 1}}), "logit_bias"),
        ] {
            assert_eq!(read(body.clone(), None), Err(format!("{param:?}")), "{body}");
        }
        for body in [
            json!({"messages": user, "tools": [], "functions": null, "n": 1, "temperature": 0.2, "seed": 7}),
            json!({"messages": [{"role": "assistant", "content": null}, user[0]]}),
        ] {
            assert!(read(body.clone(), None).is_ok(), "{body}");
        }
    }
}
