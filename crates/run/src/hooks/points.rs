//! The data of each hook point. The guide for authors of hooks (`docs/develop/writing-a-hook.md`) describes the same in
//! words.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Attachment, AttachmentContent, Authority, CallId, ChannelId, EventKind, HookPoint, Inbound, Message, MessageBody,
    NOT_SHOWN, Outbound, PrincipalRole, RunId, RunRecord, SessionKey, TextKind, ToolResult, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{About, HookChain, HookDecision, HookRefusal};
use crate::live::bounded;
use crate::request::RunRequest;

/// Characters of a reply or a result.
const REPLY_CHARS: usize = 16_000;

/// Characters of each message in a list.
const MESSAGE_CHARS: usize = 2_000;

/// The most messages in a list: with [`MESSAGE_CHARS`], at most 200,000 characters.
const MESSAGES_MOST: usize = 100;

/// The session and run of an event.
#[derive(Clone, Copy, Debug)]
pub struct HookContext<'a> {
    /// The session.
    pub session: &'a SessionKey,
    /// The run.
    pub run: RunId,
}

/// A text for people, for the hooks at [`HookPoint::MessageSending`].
pub struct Sending<'a> {
    /// Its session and its run.
    pub about: About<'a>,
    /// The channel that sends it; `None`: a program reads it.
    pub channel: Option<&'a ChannelId>,
    /// Its kind.
    pub kind: TextKind,
    /// The text.
    pub text: String,
    /// Time limit of all hooks together; `None`: each has its own limit.
    pub limit: Option<Duration>,
}

/// The tool call of an event.
#[derive(Clone, Copy, Debug)]
pub struct CallAbout<'a> {
    pub place: HookContext<'a>,
    pub id: &'a CallId,
    pub tool: &'a str,
}

impl<'a> From<&'a RunRequest> for HookContext<'a> {
    fn from(RunRequest { session, run, .. }: &'a RunRequest) -> Self {
        Self { session, run: *run }
    }
}

impl<'a> From<HookContext<'a>> for About<'a> {
    fn from(HookContext { session, run }: HookContext<'a>) -> Self {
        Self { session: Some(session), run: Some(run), tool: None }
    }
}

impl<'a> From<CallAbout<'a>> for About<'a> {
    fn from(CallAbout { place, tool, .. }: CallAbout<'a>) -> Self {
        Self { tool: Some(tool), ..place.into() }
    }
}

impl HookChain {
    /// Notifies hooks that the daemon accepts messages.
    pub fn gateway_start<'a>(&self, version: &str, channels: impl Iterator<Item = &'a ChannelId>) {
        self.observe(HookPoint::GatewayStart, About::default(), || {
            let mut channels: Vec<&str> = channels.map(ChannelId::as_str).collect();
            channels.sort_unstable();
            json!({ "version": version, "channels": channels })
        });
    }

    /// Notifies hooks that the daemon begins to drain.
    pub fn gateway_stop(&self, version: &str) {
        self.observe(HookPoint::GatewayStop, About::default(), || json!({ "version": version }));
    }

    /// Lets hooks change or refuse a message that has arrived. Returns its text.
    ///
    /// # Errors
    /// A hook refused the message.
    pub async fn message_received(
        &self,
        inbound: &Inbound,
        text: String,
        facts: &mut Vec<EventKind>,
    ) -> Result<String, HookRefusal> {
        if !self.is_bound(HookPoint::MessageReceived) {
            return Ok(text);
        }
        let about = About { session: Some(&inbound.session), ..About::default() };
        let mut data = sender(inbound);
        data.insert("text".into(), text.into());
        let files = inbound.provenance.as_ref().map_or(&[][..], |provenance| &provenance.attachments[..]);
        if !files.is_empty() {
            data.insert("attachments".into(), files.iter().map(file).collect());
        }
        let decision = self.decide(HookPoint::MessageReceived, about, Value::Object(data), None, facts).await;
        field(decision, "text").map(text_of)
    }

    /// The same for what a person has written behind the results of a client's tools, which joins the run of this request.
    ///
    /// # Errors
    /// A hook refused the text.
    pub(crate) async fn joined_text(
        &self,
        request: &RunRequest,
        text: String,
        facts: &mut Vec<EventKind>,
    ) -> Result<String, HookRefusal> {
        if !self.is_bound(HookPoint::MessageReceived) {
            return Ok(text);
        }
        let role = match request.asker.authority {
            Authority::Conversation => "user",
            Authority::Token => "client",
            Authority::Operator => "operator",
        };
        let data = json!({
            "channel": request.channel, "principal": request.asker.principal, "role": role, "text": text,
        });
        let place = HookContext { session: &request.session, run: request.run };
        let decision = self.decide(HookPoint::MessageReceived, place.into(), data, None, facts).await;
        field(decision, "text").map(text_of)
    }

    /// Notifies hooks of a command. Some commands have a point of their own, which is notified too.
    pub fn command(&self, inbound: &Inbound, word: &str, text: &str) {
        let own = match word {
            "/new" => Some(HookPoint::CommandNew),
            "/reset" => Some(HookPoint::CommandReset),
            "/stop" => Some(HookPoint::CommandStop),
            _ => None,
        };
        let about = About { session: Some(&inbound.session), ..About::default() };
        for point in [Some(HookPoint::Command), own].into_iter().flatten() {
            self.observe(point, about, || {
                let mut data = sender(inbound);
                data.extend([("command".to_owned(), word.into()), ("text".to_owned(), text.into())]);
                Value::Object(data)
            });
        }
    }

    /// Notifies hooks of the first message of a session.
    pub fn session_start(&self, place: HookContext<'_>, inbound: &Inbound) {
        self.observe(HookPoint::SessionStart, place.into(), || Value::Object(sender(inbound)));
    }

    /// Notifies hooks that a command ended a session.
    pub fn session_end(&self, session: &SessionKey, command: &str) {
        let about = About { session: Some(session), ..About::default() };
        self.observe(HookPoint::SessionEnd, about, || json!({ "reason": command.trim_start_matches('/') }));
    }

    /// Lets hooks change or refuse a run that is about to call the model for the first time. Returns the persona and
    /// the workspace files for the prompt.
    ///
    /// # Errors
    /// A hook refused the run.
    pub async fn before_agent_start(
        &self,
        place: HookContext<'_>,
        prompt: String,
        files: Value,
        message: &str,
        facts: &mut Vec<EventKind>,
    ) -> Result<(String, Value), HookRefusal> {
        let data = json!({ "prompt": prompt, "files": files });
        let mut data = self.change(HookPoint::Bootstrap, place.into(), data, facts).await;
        let files = data.get_mut("files").map(Value::take).unwrap_or_default();
        let prompt = text_of(take(data, "prompt"));
        let data = json!({ "prompt": prompt, "message": message });
        let decision = self.decide(HookPoint::BeforeAgentStart, place.into(), data, None, facts).await;
        Ok((field(decision, "prompt").map(text_of)?, files))
    }

    /// Notifies hooks that a run has ended. `messages`: its own messages.
    pub fn agent_end(&self, record: &RunRecord, messages: &[Arc<Message>]) {
        let place = HookContext { session: &record.session, run: record.run_id };
        self.observe(HookPoint::AgentEnd, place.into(), || {
            json!({
                "status": record.status.word(),
                "reason": record.reason.map(|reason| reason.word()),
                "evidence": record.evidence,
                "model_calls": record.usage.model_calls,
                "tool_calls": record.usage.tool_calls,
                "cost_micro_usd": record.cost_micro_usd,
                "reply": record.reply.as_deref().map(|text| bounded(text, REPLY_CHARS)),
                "messages": contents(messages.iter().map(|message| &**message)),
            })
        });
    }

    /// Lets hooks change or refuse a tool call that is about to be checked. Returns its arguments. Hooks do not see
    /// arguments that the tool declares sensitive. Those stay unchanged unless a hook sets another value.
    ///
    /// # Errors
    /// A hook refused the call.
    pub async fn before_tool_call(
        &self,
        call: CallAbout<'_>,
        spec: &ToolSpec,
        arguments: &Map<String, Value>,
        facts: &mut Vec<EventKind>,
    ) -> Result<Map<String, Value>, HookRefusal> {
        if !self.is_bound(HookPoint::BeforeToolCall) {
            return Ok(arguments.clone());
        }
        let data = json!({ "tool": call.tool, "call_id": call.id, "arguments": shown(arguments, spec) });
        let decision = self.decide(HookPoint::BeforeToolCall, call.into(), data, None, facts).await;
        field(decision, "arguments").map(|changed| put_back(changed, arguments, spec))
    }

    /// Notifies hooks that a tool call has ended, whatever its result.
    pub fn after_tool_call(
        &self,
        call: CallAbout<'_>,
        spec: Option<&ToolSpec>,
        arguments: Option<&Map<String, Value>>,
        result: &ToolResult,
        took_ms: u64,
    ) {
        self.observe(HookPoint::AfterToolCall, call.into(), || {
            // For an unknown tool, nobody knows which arguments are sensitive, so none is shown.
            let arguments = spec.zip(arguments).map(|(spec, arguments)| shown(arguments, spec)).unwrap_or_default();
            json!({
                "tool": call.tool,
                "call_id": call.id,
                "arguments": arguments,
                "status": result.status.word(),
                "text": bounded(&result.text, REPLY_CHARS),
                "took_ms": took_ms,
            })
        });
    }

    /// Lets hooks change the text of a result that is about to enter the conversation. Returns the text.
    pub async fn tool_result_persist(
        &self,
        call: CallAbout<'_>,
        result: &ToolResult,
        facts: &mut Vec<EventKind>,
    ) -> String {
        let data = json!({
            "tool": call.tool, "call_id": call.id, "status": result.status.word(), "text": result.text,
        });
        text_of(take(self.change(HookPoint::ToolResultPersist, call.into(), data, facts).await, "text"))
    }

    /// Notifies hooks that a compaction begins, of a context with this many messages, which removes `leaving`.
    pub fn before_compaction<'a>(
        &self,
        session: &SessionKey,
        run: Option<RunId>,
        messages: usize,
        leaving: impl DoubleEndedIterator<Item = &'a Message>,
    ) {
        let about = About { session: Some(session), run, tool: None };
        self.observe(
            HookPoint::BeforeCompaction,
            about,
            || json!({ "messages": messages, "leaving": contents(leaving) }),
        );
    }

    /// Notifies hooks that a compaction has ended. `messages`: number of messages in the context now; `dropped`: number
    /// of removed messages; `summary`: the summary at the beginning of the context.
    pub fn after_compaction(
        &self,
        session: &SessionKey,
        run: Option<RunId>,
        messages: usize,
        dropped: u32,
        summary: Option<&str>,
    ) {
        let about = About { session: Some(session), run, tool: None };
        self.observe(
            HookPoint::AfterCompaction,
            about,
            || json!({ "messages": messages, "dropped": dropped, "summary": summary }),
        );
    }

    /// Lets hooks change or refuse a text for people that is about to be stored or sent. Returns the text.
    ///
    /// # Errors
    /// A hook refused the text.
    pub async fn message_sending(
        &self,
        sending: Sending<'_>,
        facts: &mut Vec<EventKind>,
    ) -> Result<String, HookRefusal> {
        let Sending { about, channel, kind, text, limit } = sending;
        if !self.is_bound(HookPoint::MessageSending) {
            return Ok(text);
        }
        let data = json!({ "text": text, "channel": channel, "kind": kind.word() });
        let decision = self.decide(HookPoint::MessageSending, about, data, limit, facts).await;
        field(decision, "text").map(text_of)
    }

    /// Notifies hooks of the outcome of a delivery: `sent`, `failed` or `ambiguous`.
    pub fn message_sent(&self, message: &Outbound, outcome: &str) {
        let about = About { run: message.run_id, ..About::default() };
        self.observe(
            HookPoint::MessageSent,
            about,
            || json!({ "text": message.text, "channel": message.route.channel, "outcome": outcome }),
        );
    }
}

/// The messages as objects with role and text: the newest [`MESSAGES_MOST`] of them.
fn contents<'a>(messages: impl DoubleEndedIterator<Item = &'a Message>) -> Value {
    let object = |message: &Message| {
        let role = match &message.body {
            MessageBody::System { .. } | MessageBody::Data { .. } => "system",
            MessageBody::User { .. } => "user",
            MessageBody::Assistant { .. } => "assistant",
            MessageBody::Tool(_) => "tool",
        };
        let calls: Vec<&str> = message.tool_calls().iter().map(|call| call.name.as_str()).collect();
        let mut object = json!({ "role": role, "text": bounded(&message.for_people(), MESSAGE_CHARS) });
        if !calls.is_empty() {
            object["calls"] = json!(calls);
        }
        if message.untrusted {
            object["untrusted"] = true.into();
        }
        object
    };
    let mut newest: Vec<Value> = messages.rev().take(MESSAGES_MOST).map(object).collect();
    newest.reverse();
    Value::Array(newest)
}

/// The sender of a message and the channel.
fn sender(inbound: &Inbound) -> Map<String, Value> {
    let role = match inbound.principal.role {
        PrincipalRole::User => "user",
        PrincipalRole::Client => "client",
        PrincipalRole::Operator => "operator",
    };
    let fields = [("channel", inbound.channel.as_str()), ("principal", &*inbound.principal.id), ("role", role)];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The arguments with sensitive values masked.
fn shown(arguments: &Map<String, Value>, spec: &ToolSpec) -> Map<String, Value> {
    let mut shown = arguments.clone();
    for name in &spec.sensitive {
        if let Some(value) = shown.get_mut(name) {
            *value = NOT_SHOWN.into();
        }
    }
    shown
}

/// The arguments as changed by hooks, with masked values restored.
fn put_back(changed: Value, arguments: &Map<String, Value>, spec: &ToolSpec) -> Map<String, Value> {
    let Value::Object(mut changed) = changed else { return arguments.clone() };
    for name in &spec.sensitive {
        if let (Some(value), Some(real)) = (changed.get_mut(name), arguments.get(name))
            && value.as_str() == Some(NOT_SHOWN)
        {
            *value = real.clone();
        }
    }
    changed
}

fn field(decision: HookDecision, name: &str) -> Result<Value, HookRefusal> {
    match decision {
        HookDecision::Go(data) => Ok(take(data, name)),
        HookDecision::Refused(refusal) => Err(refusal),
    }
}

fn take(mut data: Value, name: &str) -> Value {
    data.get_mut(name).map(Value::take).unwrap_or_default()
}

/// The text of a field. The chain guarantees that a changed text is still a text.
fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        _ => String::new(),
    }
}

/// An attached file, for a hook. With the text that the model reads of it, so that a hook can refuse the message.
fn file(attachment: &Attachment) -> Value {
    let Attachment { name, media_type, bytes, content, .. } = attachment;
    let mut file = json!({ "name": name, "media_type": media_type, "bytes": bytes });
    if let (AttachmentContent::Text { text, .. }, Value::Object(file)) = (content, &mut file) {
        file.insert("text".into(), text.as_str().into());
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_shown_comes_back_unless_a_hook_gives_another_value() {
        let spec = ToolSpec { sensitive: vec!["pin".into()], ..ToolSpec::new("door", "", json!({})) };
        let object = |value: Value| match value {
            Value::Object(map) => map,
            other => panic!("{other} is no object"),
        };
        let real = object(json!({"pin": "1234", "wait": 1}));
        assert_eq!(shown(&real, &spec), object(json!({"pin": NOT_SHOWN, "wait": 1})));
        for (answered, expected) in [
            (json!({"pin": NOT_SHOWN, "wait": 2}), json!({"pin": "1234", "wait": 2})),
            (json!({"pin": "9999", "wait": 1}), json!({"pin": "9999", "wait": 1})),
            (json!({"wait": 1}), json!({"wait": 1})),
            (json!({"pin": NOT_SHOWN, "note": NOT_SHOWN}), json!({"pin": "1234", "note": NOT_SHOWN})),
            (json!("nonsense"), json!({"pin": "1234", "wait": 1})),
        ] {
            assert_eq!(put_back(answered.clone(), &real, &spec), object(expected), "{answered}");
        }
    }
}
