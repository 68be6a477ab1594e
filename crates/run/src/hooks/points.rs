//! The points: what each is about, as data. The one table of it besides the guide for those who write hooks
//! (`docs/develop/writing-a-hook.md`), which says the same in words.

use belay_protocol::{
    CallId, ChannelId, EventKind, HookPoint, Inbound, NOT_SHOWN, Outbound, PrincipalRole, RunId, RunRecord, SessionKey,
    ToolResult, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{About, HookChain, HookDecision, HookRefusal};
use crate::request::RunRequest;

/// Where something happens.
#[derive(Clone, Copy, Debug)]
pub struct HookContext<'a> {
    /// The session.
    pub session: &'a SessionKey,
    /// The run.
    pub run: RunId,
}

/// A tool call that something is about.
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
    /// The daemon takes messages.
    pub fn gateway_start<'a>(&self, version: &str, channels: impl Iterator<Item = &'a ChannelId>) {
        self.observe(HookPoint::GatewayStart, About::default(), || {
            let mut channels: Vec<&str> = channels.map(ChannelId::as_str).collect();
            channels.sort_unstable();
            json!({ "version": version, "channels": channels })
        });
    }

    /// The daemon drains.
    pub fn gateway_stop(&self, version: &str) {
        self.observe(HookPoint::GatewayStop, About::default(), || json!({ "version": version }));
    }

    /// A message has come in; returns its text as hooks have left it.
    ///
    /// # Errors
    /// It is refused.
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
        let decision = self.decide(HookPoint::MessageReceived, about, Value::Object(data), facts).await;
        field(decision, "text").map(text_of)
    }

    /// A command, told under its own name too where it has one.
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

    /// A session has its first message.
    pub fn session_start(&self, place: HookContext<'_>, inbound: &Inbound) {
        self.observe(HookPoint::SessionStart, place.into(), || Value::Object(sender(inbound)));
    }

    /// A session was ended by this command.
    pub fn session_end(&self, session: &SessionKey, command: &str) {
        let about = About { session: Some(session), ..About::default() };
        self.observe(HookPoint::SessionEnd, about, || json!({ "reason": command.trim_start_matches('/') }));
    }

    /// A run is about to ask the model for the first time; returns who it is told it is, and the files of the workspace that
    /// it is told of, as hooks have left them.
    ///
    /// # Errors
    /// The run is refused.
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
        let decision = self.decide(HookPoint::BeforeAgentStart, place.into(), data, facts).await;
        Ok((field(decision, "prompt").map(text_of)?, files))
    }

    /// A run has ended.
    pub fn agent_end(&self, record: &RunRecord) {
        let place = HookContext { session: &record.session, run: record.run_id };
        self.observe(HookPoint::AgentEnd, place.into(), || {
            json!({
                "status": record.status.word(),
                "reason": record.reason.map(|reason| reason.word()),
                "evidence": record.evidence,
                "model_calls": record.usage.model_calls,
                "tool_calls": record.usage.tool_calls,
                "cost_micro_usd": record.cost_micro_usd,
            })
        });
    }

    /// A call is about to be looked at; returns its arguments as hooks have left them. They are shown none of those that
    /// the tool calls sensitive, and those stay as they are unless a hook gives another value.
    ///
    /// # Errors
    /// It is refused.
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
        let decision = self.decide(HookPoint::BeforeToolCall, call.into(), data, facts).await;
        field(decision, "arguments").map(|changed| put_back(changed, arguments, spec))
    }

    /// A call has come to its end, whatever became of it.
    pub fn after_tool_call(
        &self,
        call: CallAbout<'_>,
        spec: Option<&ToolSpec>,
        arguments: Option<&Map<String, Value>>,
        result: &ToolResult,
        took_ms: u64,
    ) {
        self.observe(HookPoint::AfterToolCall, call.into(), || {
            // Of a tool that there is not nobody knows what is sensitive: nothing is shown.
            let arguments = spec.zip(arguments).map(|(spec, arguments)| shown(arguments, spec)).unwrap_or_default();
            json!({
                "tool": call.tool,
                "call_id": call.id,
                "arguments": arguments,
                "status": result.status.word(),
                "took_ms": took_ms,
            })
        });
    }

    /// A result is about to enter the conversation; returns its text as hooks have left it.
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

    /// Older messages are about to be replaced by a summary: of so many in the context.
    pub fn before_compaction(&self, session: &SessionKey, run: Option<RunId>, messages: usize) {
        let about = About { session: Some(session), run, tool: None };
        self.observe(HookPoint::BeforeCompaction, about, || json!({ "messages": messages }));
    }

    /// So many messages are left in the context, and so many have left it.
    pub fn after_compaction(&self, session: &SessionKey, run: Option<RunId>, messages: usize, dropped: u32) {
        let about = About { session: Some(session), run, tool: None };
        self.observe(HookPoint::AfterCompaction, about, || json!({ "messages": messages, "dropped": dropped }));
    }

    /// A reply is about to be stored and to go out; returns it as hooks have left it.
    ///
    /// # Errors
    /// It is refused.
    pub async fn message_sending(
        &self,
        place: HookContext<'_>,
        channel: Option<&ChannelId>,
        text: String,
        facts: &mut Vec<EventKind>,
    ) -> Result<String, HookRefusal> {
        if !self.is_bound(HookPoint::MessageSending) {
            return Ok(text);
        }
        let data = json!({ "text": text, "channel": channel });
        let decision = self.decide(HookPoint::MessageSending, place.into(), data, facts).await;
        field(decision, "text").map(text_of)
    }

    /// A message went out, or could not: `sent`, `failed` or `ambiguous`.
    pub fn message_sent(&self, message: &Outbound, outcome: &str) {
        let about = About { run: message.run_id, ..About::default() };
        self.observe(
            HookPoint::MessageSent,
            about,
            || json!({ "text": message.text, "channel": message.route.channel, "outcome": outcome }),
        );
    }
}

/// Who sends a message, and through what.
fn sender(inbound: &Inbound) -> Map<String, Value> {
    let role = match inbound.principal.role {
        PrincipalRole::User => "user",
        PrincipalRole::Client => "client",
        PrincipalRole::Operator => "operator",
    };
    let fields = [("channel", inbound.channel.as_str()), ("principal", &*inbound.principal.id), ("role", role)];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// Arguments without those that are never shown.
fn shown(arguments: &Map<String, Value>, spec: &ToolSpec) -> Map<String, Value> {
    let mut shown = arguments.clone();
    for name in &spec.sensitive {
        if let Some(value) = shown.get_mut(name) {
            *value = NOT_SHOWN.into();
        }
    }
    shown
}

/// Arguments as hooks have left them, with those in their place that were not shown.
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

/// The text of a field. The chain has seen to it that a changed text is still one.
fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        _ => String::new(),
    }
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
