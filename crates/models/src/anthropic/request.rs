//! Builds the body of a request from the stored serialised forms of its parts.
//!
//! The format requires turns that alternate and that begin and end with the user's. System text is separate, and blocks
//! must not be empty. The server caches prefixes up to marked blocks, at most four. We mark the tools, the prompt, the
//! system text of the history, and the last block of the conversation.
//!
//! A model that thinks gets its thoughts back (`thoughts`), and must not get a temperature.
//!
//! A message stores its blocks without the last closing brace, because only the request knows whether a cache mark
//! follows.

use std::sync::Arc;

use belay_protocol::{
    CallChoice, CallId, CallRules, Message, MessageBody, ModelRequest, Picture, Thinking, ToolCall, ToolResult,
    ToolSet, ToolSpec,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::thoughts::Replay;
use crate::config::LlmConfig;
use crate::thinking::Ability;
use crate::vision::{NO_VISION, text_instead};
use crate::wire::{
    arguments_json, body_capacity, extra_fields, extra_maps, finished, is_word, json, push_json, ruled, sampled,
    tool_name,
};

/// The name under which parts store their serialised form.
const FORMAT: &str = "anthropic";

/// The same for a message whose pictures are not sent.
const FORMAT_WITHOUT_PICTURES: &str = "anthropic-blind";

/// The same for tools without a mark.
const FORMAT_WITHOUT_MARK: &str = "anthropic-unmarked";

/// The reason why the pictures of a failed call are not sent: the format allows none in the result of such a call.
const FAILED: &str = "the call failed";

/// Marks a block as the end of a cacheable prefix. It is written inside the block.
const CACHE_MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

/// Whether a request marks the ends of cacheable prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    Sent,
    /// The server refuses them.
    LeftOut,
}

impl Marks {
    fn push(self, out: &mut Vec<u8>) {
        if self == Self::Sent {
            out.extend_from_slice(CACHE_MARK);
        }
    }
}

/// Text of a user turn that the format requires and the history does not have: before an assistant message at the
/// beginning (after compaction), and after one at the end (newer models refuse to continue their own message). It is
/// neutral, because the user has made no request.
const FILLER: &str = r#"{"type":"text","text":"(conversation continues)""#;

/// The parts of the body that are the same for each request.
pub(super) struct RequestShape {
    always: Vec<u8>,
    /// The same for a model that thinks.
    always_thinking: Vec<u8>,
    /// The source of both, for requests that change some of the fields.
    fields: [Map<String, Value>; 2],
    with_tools: Vec<u8>,
    /// The source of `with_tools`, for requests with rules of a client.
    with_tools_fields: Map<String, Value>,
    /// Whether pictures are sent.
    vision: bool,
    /// How the model is asked to think.
    ability: Ability,
}

/// The role that a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    User,
    Assistant,
}

impl RequestShape {
    pub(super) fn new(config: &LlmConfig, vision: bool, ability: Ability) -> Self {
        let (always, with_tools) = extra_fields(config, Map::new());
        let (always_thinking, _) = extra_fields(&LlmConfig { temperature: None, ..config.clone() }, Map::new());
        let thinking = LlmConfig { temperature: None, ..config.clone() };
        let with_tools_fields = extra_maps(config, Map::new()).1;
        let fields = [extra_maps(config, Map::new()).0, extra_maps(&thinking, Map::new()).0];
        Self { always, always_thinking, fields, with_tools, with_tools_fields, vision, ability }
    }

    /// Builds the body. With a `replay`, the model is asked to think, at the level of the request.
    pub(super) fn body(
        &self,
        request: &ModelRequest<'_>,
        model: &str,
        replay: Option<&Replay>,
        marks: Marks,
    ) -> Vec<u8> {
        let vision = self.vision && request.send_pictures;
        let mut out = Vec::with_capacity(body_capacity(request, vision));
        out.extend_from_slice(b"{\"model\":");
        push_json(&mut out, request.model.unwrap_or(model));
        let level = request.thinking.filter(|_| replay.is_some());
        // Thoughts count as output, so their budget is added to the limit of the answer.
        let max_tokens = request.max_tokens.saturating_add(level.map_or(0, Thinking::budget_tokens));
        out.extend_from_slice(format!(",\"stream\":true,\"max_tokens\":{max_tokens}").as_bytes());
        match level {
            None => self.push_always(&mut out, &self.always, &self.fields[0], request),
            Some(level) => {
                out.extend_from_slice(self.thinking(level).as_bytes());
                self.push_always(&mut out, &self.always_thinking, &self.fields[1], request);
            }
        }
        if let Some(config) = self.output_config(request, level) {
            out.extend_from_slice(b",\"output_config\":");
            push_json(&mut out, &config);
        }
        if let Some(tools) = request.tools.filter(|tools| !tools.is_empty()) {
            out.extend_from_slice(b",\"tools\":");
            let format = if marks == Marks::Sent { FORMAT } else { FORMAT_WITHOUT_MARK };
            tools.wire.append(format, &mut out, || tools_form(tools, marks));
            match request.calls {
                None => out.extend_from_slice(&self.with_tools),
                Some(rules) => {
                    out.extend_from_slice(&ruled(&self.with_tools_fields, rules_form(rules, replay.is_some())));
                }
            }
        }
        push_system(&mut out, request, marks);
        out.extend_from_slice(b",\"messages\":[");
        push_turns(&mut out, request, vision, replay.map_or(&[], Vec::as_slice));
        marks.push(&mut out);
        out.extend_from_slice(b"}]}");
        out.extend_from_slice(b"]}");
        finished(out)
    }

    fn push_always(&self, out: &mut Vec<u8>, written: &[u8], fields: &Map<String, Value>, request: &ModelRequest<'_>) {
        match request.sampling {
            None => out.extend_from_slice(written),
            Some(sampling) => out.extend_from_slice(&sampled(fields, sampling, "stop_sequences")),
        }
    }

    /// The fields that make the model think. Newer models choose the number of tokens themselves and refuse a budget.
    /// They show their thoughts only on request.
    fn thinking(&self, level: Thinking) -> String {
        match self.ability {
            Ability::Adaptive => ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"summarized\"}".to_owned(),
            _ => format!(",\"thinking\":{{\"type\":\"enabled\",\"budget_tokens\":{}}}", level.budget_tokens()),
        }
    }

    /// The effort of thinking, for models that choose the number of tokens themselves, and the form of the answer.
    fn output_config(&self, request: &ModelRequest<'_>, level: Option<Thinking>) -> Option<Map<String, Value>> {
        let effort = level.filter(|_| matches!(self.ability, Ability::Adaptive)).map(|level| level.word().into());
        let format = request.format.map(|format| json!({"type": "json_schema", "schema": format.schema}));
        let fields = [("effort", effort), ("format", format)];
        let config: Map<_, _> =
            fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        (!config.is_empty()).then_some(config)
    }
}

fn push_system(out: &mut Vec<u8>, request: &ModelRequest<'_>, marks: Marks) {
    let prompt = (!is_blank(&request.prompt.text)).then_some((&request.prompt.text, &request.prompt.wire));
    let history = request.messages.iter().filter_map(|message| match &message.body {
        MessageBody::System { text } if !is_blank(text) && !message.is_notice() => Some((text, &message.wire)),
        _ => None,
    });
    let mut blocks = prompt.into_iter().chain(history).peekable();
    if blocks.peek().is_none() {
        return;
    }
    let mut opening: &[u8] = b",\"system\":[";
    let mut is_prompt = prompt.is_some();
    while let Some((text, wire)) = blocks.next() {
        out.extend_from_slice(std::mem::replace(&mut opening, b","));
        out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        wire.append(FORMAT, out, || json(text));
        // The prompt remains the same when the notices of the history change, so it has a mark of its own.
        if std::mem::take(&mut is_prompt) || blocks.peek().is_none() {
            marks.push(out);
        }
        out.push(b'}');
    }
    out.push(b']');
}

/// Writes the turns, without the end of the last block.
fn push_turns(out: &mut Vec<u8>, request: &ModelRequest<'_>, vision: bool, replay: &[(usize, Arc<str>)]) {
    let mut turn = None;
    let mut replay = replay.iter().peekable();
    for (at, message) in request.messages.iter().enumerate() {
        let Some(role) = role_of(message) else { continue };
        if turn.is_none() && role == Role::Assistant {
            open_turn(out, &mut turn, Role::User);
            out.extend_from_slice(FILLER.as_bytes());
        }
        open_turn(out, &mut turn, role);
        if let Some((_, thoughts)) = replay.next_if(|(before, _)| *before == at) {
            out.extend_from_slice(thoughts.as_bytes());
        }
        push_blocks(out, message, vision);
    }
    if turn != Some(Role::User) {
        open_turn(out, &mut turn, Role::User);
        out.extend_from_slice(FILLER.as_bytes());
    }
}

/// Writes the blocks of a message, without the last closing brace.
fn push_blocks(out: &mut Vec<u8>, message: &Message, vision: bool) {
    match &message.body {
        MessageBody::Tool(result) if !message.pictures.is_empty() => match (vision, result.status.is_failure()) {
            (true, false) => push_seen_result(out, result, message),
            (true, true) => out.extend_from_slice(open_result(result, &text_instead(message, FAILED)).as_bytes()),
            (false, _) => {
                message
                    .wire
                    .append(FORMAT_WITHOUT_PICTURES, out, || open_result(result, &text_instead(message, NO_VISION)));
            }
        },
        MessageBody::User { .. } if !message.pictures.is_empty() && vision => {
            out.extend_from_slice(open_text(&message.for_model()).as_bytes());
            for picture in &message.pictures {
                out.extend_from_slice(b"},");
                push_open_picture(out, picture);
                out.push(b'}'); // of its source
            }
        }
        MessageBody::User { .. } if !message.pictures.is_empty() => {
            message.wire.append(FORMAT_WITHOUT_PICTURES, out, || open_text(&text_instead(message, NO_VISION)));
        }
        _ => message.wire.append(FORMAT, out, || open_blocks(message)),
    }
}

/// Writes a result with its pictures. Its serialised form is not stored: pictures are large and are written directly.
fn push_seen_result(out: &mut Vec<u8>, result: &ToolResult, message: &Message) {
    out.extend_from_slice(open_result_head(result).as_bytes());
    let mut opening = "[";
    if !is_blank(&result.text) {
        out.extend_from_slice(format!("[{}}}", open_text(&result.text)).as_bytes());
        opening = ",";
    }
    for picture in &message.pictures {
        out.extend_from_slice(std::mem::replace(&mut opening, ",").as_bytes());
        push_open_picture(out, picture);
        out.extend_from_slice(b"}}");
    }
    out.push(b']');
}

/// Writes a block with a picture, without the closing braces of its source and of the block.
fn push_open_picture(out: &mut Vec<u8>, picture: &Picture) {
    let (media_type, data) = (json(&picture.media_type), json(&*picture.base64));
    out.extend_from_slice(b"{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":");
    out.extend_from_slice(media_type.as_bytes());
    out.extend_from_slice(b",\"data\":");
    out.extend_from_slice(data.as_bytes());
}

/// Ends the block before, and the turn before unless it has the same role.
fn open_turn(out: &mut Vec<u8>, turn: &mut Option<Role>, role: Role) {
    match *turn {
        Some(before) if before == role => {
            out.extend_from_slice(b"},");
            return;
        }
        Some(_) => out.extend_from_slice(b"}]},"),
        None => {}
    }
    let name = if role == Role::User { "user" } else { "assistant" };
    out.extend_from_slice(format!("{{\"role\":\"{name}\",\"content\":[").as_bytes());
    *turn = Some(role);
}

/// The role of a message; `None` if it has no block to send there.
pub(super) fn role_of(message: &Message) -> Option<Role> {
    match &message.body {
        // Untrusted content must not be in the system prompt. The notice itself says that it is not from the user.
        MessageBody::System { text } => (message.is_notice() && !is_blank(text)).then_some(Role::User),
        MessageBody::User { .. } | MessageBody::Data { .. } => (!is_blank(&message.for_model())).then_some(Role::User),
        MessageBody::Assistant { text, tool_calls } => {
            (!is_blank(text) || !tool_calls.is_empty()).then_some(Role::Assistant)
        }
        MessageBody::Tool(_) => Some(Role::User),
    }
}

/// Whether a text contains only white space. The format refuses such text.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// The blocks of a message, without the last closing brace. For a system message that is not a notice: its bare text,
/// which becomes a block of the system text.
fn open_blocks(message: &Message) -> String {
    match &message.body {
        MessageBody::System { text } if message.is_notice() => open_text(text),
        MessageBody::System { text } => json(text),
        MessageBody::User { .. } | MessageBody::Data { .. } => open_text(&message.for_model()),
        MessageBody::Tool(result) => open_result(result, &result.text),
        MessageBody::Assistant { text, tool_calls } => {
            let text = (!is_blank(text)).then(|| open_text(text));
            text.into_iter().chain(tool_calls.iter().map(open_call)).collect::<Vec<_>>().join("},")
        }
    }
}

fn open_text(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}", json(text))
}

fn open_call(call: &ToolCall) -> String {
    format!(
        "{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{}",
        json(&block_id(&call.id)),
        json(&tool_name(&call.name)),
        arguments_json(&call.arguments),
    )
}

fn open_result(result: &ToolResult, text: &str) -> String {
    open_result_head(result) + &json(text)
}

fn open_result_head(result: &ToolResult) -> String {
    format!(
        "{{\"type\":\"tool_result\",\"tool_use_id\":{},\"is_error\":{},\"content\":",
        json(&block_id(&result.call_id)),
        result.status.is_failure(),
    )
}

/// An id in the form that the format accepts, `[a-zA-Z0-9_-]+`. Other forms come from another provider earlier in the
/// session.
fn block_id(id: &CallId) -> String {
    let mut out = String::new();
    for c in id.as_str().chars() {
        if is_word(c) {
            out.push(c);
        } else {
            out.push_str(&format!("_{:x}", u32::from(c)));
        }
    }
    if out.is_empty() { "_".into() } else { out }
}

/// The fields for the rules of a client. Source: Anthropic, Messages, `tool_choice`. A model that thinks cannot be forced
/// to call a tool.
fn rules_form(rules: CallRules<'_>, thinks: bool) -> Map<String, Value> {
    let mut choice = match rules.choice {
        CallChoice::Required if !thinks => json!({"type": "any"}),
        CallChoice::Tool(name) if !thinks => json!({"type": "tool", "name": name}),
        _ if rules.one_at_a_time => json!({"type": "auto"}),
        _ => return Map::new(),
    };
    if rules.one_at_a_time {
        choice["disable_parallel_tool_use"] = true.into();
    }
    Map::from_iter([("tool_choice".to_owned(), choice)])
}

/// A tool as it is sent.
#[derive(Serialize)]
struct ToolForm<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Value>,
}

impl<'a> ToolForm<'a> {
    fn of(spec: &'a ToolSpec) -> Self {
        let ToolSpec { name, description, .. } = spec;
        Self { name, description, input_schema: spec.shown_schema(), cache_control: None }
    }
}

fn tools_form(tools: &ToolSet, marks: Marks) -> String {
    let mut forms: Vec<_> = tools.iter().map(|tool| ToolForm::of(tool.spec())).collect();
    if let Some(last) = forms.last_mut().filter(|_| marks == Marks::Sent) {
        last.cache_control = Some(json!({"type": "ephemeral"}));
    }
    json(&forms)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use belay_protocol::ToolStatus;
    use serde_json::Value;

    use super::*;
    use crate::testing::{Asked, history_with_pictures, long_history, result, sample_history};

    fn body(asked: &Asked) -> Value {
        serde_json::from_slice(&RequestShape::new(&LlmConfig::default(), true, Ability::Levels).body(
            &asked.request(),
            "m",
            None,
            Marks::Sent,
        ))
        .unwrap()
    }

    #[test]
    fn a_request_is_what_the_reference_says() {
        let mark = json!({"type": "ephemeral"});
        assert_eq!(
            body(&Asked::new("be brief", true, sample_history())),
            json!({
                "model": "m", "stream": true, "max_tokens": 100,
                "tools": [{
                    "name": "clock", "description": "tells the time", "cache_control": mark,
                    "input_schema": {"type": "object", "properties": {}},
                }],
                "system": [
                    {"type": "text", "text": "be brief", "cache_control": mark},
                    {"type": "text", "text": "two steps are left", "cache_control": mark},
                ],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "what \"time\"\n is it? 🕰"}]},
                    {"role": "assistant", "content": [
                        {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": "UTC"}},
                        {"type": "tool_use", "id": "c_202", "name": "bad_name",
                         "input": {"malformed_arguments": "{\"a"}},
                    ]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "is_error": false, "content": "12:00"},
                        {"type": "tool_result", "tool_use_id": "c_202", "is_error": true, "content": "no such tool"},
                    ]},
                    {"role": "assistant", "content": [{"type": "text", "text": "noon"}]},
                    {"role": "user", "content": [
                        {"type": "text", "text": "(conversation continues)", "cache_control": mark},
                    ]},
                ],
            })
        );
    }

    #[test]
    fn a_notice_stands_in_the_conversation_and_not_among_the_instructions() {
        let history = vec![Message::notice("it is 42"), Message::user("what came of it?")];
        let body = body(&Asked::new("be brief", false, history));
        assert_eq!(body["system"].as_array().map(Vec::len), Some(1), "{body}");
        let text = "This is a notice from Belay, not a message of the user. it is 42";
        assert_eq!(body["messages"][0]["role"], "user");
        assert_eq!(body["messages"][0]["content"][0], json!({"type": "text", "text": text}));
    }

    #[test]
    fn pictures_stand_in_the_result_that_they_belong_to() {
        let body = body(&Asked::new("", false, history_with_pictures()));
        let shown = |media_type: &str, data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}});
        assert_eq!(
            body["messages"][2]["content"],
            json!([
                {"type": "tool_result", "tool_use_id": "c1", "is_error": false,
                 "content": [shown("image/png", "UE5H"), shown("image/jpeg", "SlBH")]},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": false, "content": "12:00"},
                {"type": "tool_result", "tool_use_id": "c3", "is_error": false,
                 "content": [{"type": "text", "text": "[a.png]"}, shown("image/png", "QQ==")]},
                {"type": "text", "text": "and?", "cache_control": {"type": "ephemeral"}},
            ])
        );
    }

    #[test]
    fn attached_pictures_stand_in_the_message_of_the_user() {
        let picture = Picture { media_type: "image/png".into(), base64: "UE5H".into() };
        let asked = Asked::new("", false, vec![Message::user("look").with_pictures(vec![picture])]);
        assert_eq!(
            body(&asked)["messages"],
            json!([{"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "UE5H"},
                 "cache_control": {"type": "ephemeral"}},
            ]}])
        );
        let blind = RequestShape::new(&LlmConfig::default(), false, Ability::Levels);
        let body: Value = serde_json::from_slice(&blind.body(&asked.request(), "m", None, Marks::Sent)).unwrap();
        let text = "look\n[1 picture not shown: this model does not accept pictures]";
        assert_eq!(body["messages"][0]["content"][0]["text"], text);
    }

    #[test]
    fn a_result_with_pictures_can_end_the_conversation_and_be_marked() {
        let mut history = history_with_pictures();
        history.pop();
        let body = body(&Asked::new("", false, history));
        let last = body["messages"][2]["content"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["tool_use_id"], &last["cache_control"]["type"]), (&json!("c3"), &json!("ephemeral")));
    }

    #[test]
    fn pictures_that_are_not_shown_are_told_in_words() {
        let asked = Asked::new("", false, history_with_pictures());
        let seen = RequestShape::new(&LlmConfig::default(), true, Ability::Levels);
        let (before, blind) = (
            seen.body(&asked.request(), "m", None, Marks::Sent),
            RequestShape::new(&LlmConfig::default(), false, Ability::Levels),
        );
        let body: Value = serde_json::from_slice(&blind.body(&asked.request(), "m", None, Marks::Sent)).unwrap();
        let texts: Vec<_> = (0..3).map(|at| body["messages"][2]["content"][at]["content"].clone()).collect();
        let expected = [
            "[2 pictures not shown: this model does not accept pictures]",
            "12:00",
            "[a.png]\n[1 picture not shown: this model does not accept pictures]",
        ];
        assert_eq!(texts, expected);
        assert!(
            before == seen.body(&asked.request(), "m", None, Marks::Sent),
            "the form for the one is not taken for the other"
        );

        let mut history = history_with_pictures();
        history[4] = result("c3", "read_file", ToolStatus::Error, "no").with_pictures(history[4].pictures.clone());
        let body: Value =
            serde_json::from_slice(&seen.body(&Asked::new("", false, history).request(), "m", None, Marks::Sent))
                .unwrap();
        let failed = &body["messages"][2]["content"][2];
        assert_eq!(
            (&failed["is_error"], &failed["content"]),
            (&json!(true), &json!("no\n[1 picture not shown: the call failed]"))
        );
    }

    #[test]
    fn a_model_that_thinks_has_tokens_for_it_and_no_temperature_and_reads_its_thoughts_again() {
        let config = LlmConfig { temperature: Some(0.5), ..LlmConfig::default() };
        let asked = Asked::new("", false, sample_history()[..4].to_vec());
        let ask = |ability, thinking, replay: Option<&Replay>| -> Value {
            let shape = RequestShape::new(&config, true, ability);
            let request = ModelRequest { thinking, ..asked.request() };
            serde_json::from_slice(&shape.body(&request, "m", replay, Marks::Sent)).unwrap()
        };
        let thoughts: Replay = vec![(1, r#"{"type":"thinking","thinking":"hm","signature":"s"},"#.into())];
        for (level, budget) in [(Thinking::Low, 2048), (Thinking::Medium, 8192), (Thinking::High, 24_576)] {
            let body = ask(Ability::Levels, Some(level), Some(&thoughts));
            assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": budget}));
            assert_eq!((&body["max_tokens"], body.get("temperature")), (&json!(budget + 100), None));
            let blocks = &body["messages"][1]["content"];
            assert_eq!(blocks[0], json!({"type": "thinking", "thinking": "hm", "signature": "s"}));
            assert_eq!(blocks[1]["type"], "tool_use");
        }
        let body = ask(Ability::Adaptive, Some(Thinking::Low), Some(&thoughts));
        assert_eq!(
            (&body["thinking"]["type"], &body["output_config"]),
            (&json!("adaptive"), &json!({"effort": "low"}))
        );
        for body in [ask(Ability::Levels, None, None), ask(Ability::Levels, Some(Thinking::High), None)] {
            assert_eq!((body.get("thinking"), &body["max_tokens"]), (None, &json!(100)));
            assert_eq!(
                (&body["temperature"], &body["messages"][1]["content"][0]["type"]),
                (&json!(0.5), &json!("tool_use"))
            );
        }
    }

    #[test]
    fn the_form_of_an_answer_stands_beside_the_tools_and_the_effort() {
        let asked = Asked::new("", true, vec![Message::user("hi")]);
        let format = belay_protocol::TextFormat { name: "num".into(), schema: json!({"type": "object"}) };
        let thoughts: Replay = vec![];
        for (thinking, replay, effort) in
            [(None, None, json!({})), (Some(Thinking::Low), Some(&thoughts), json!({"effort": "low"}))]
        {
            let shape = RequestShape::new(&LlmConfig::default(), true, Ability::Adaptive);
            let request = ModelRequest { thinking, format: Some(&format), ..asked.request() };
            let body: Value = serde_json::from_slice(&shape.body(&request, "m", replay, Marks::Sent)).unwrap();
            let mut expected = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
            expected.as_object_mut().unwrap().extend(effort.as_object().unwrap().clone());
            assert_eq!(body["output_config"], expected);
            assert!(body["tools"].is_array(), "{body}");
        }
    }

    /// Roles and texts of the turns, as `u:a|b` for two blocks of the user.
    fn turns(history: Vec<Message>) -> Vec<String> {
        let body = body(&Asked::new("", false, history));
        let turn = |turn: &Value| {
            let texts: Vec<_> =
                turn["content"].as_array().unwrap().iter().map(|b| b["text"].as_str().unwrap_or("-")).collect();
            format!("{}:{}", &turn["role"].as_str().unwrap()[..1], texts.join("|"))
        };
        body["messages"].as_array().unwrap().iter().map(turn).collect()
    }

    #[test]
    fn turns_alternate_and_begin_and_end_with_the_persons() {
        const F: &str = "u:(conversation continues)";
        let (u, a, s) = (Message::user, Message::assistant, Message::system);
        assert_eq!(turns(vec![]), [F]);
        assert_eq!(turns(vec![u("a"), u("b"), a("c"), a("d"), u("e")]), ["u:a|b", "a:c|d", "u:e"]);
        assert_eq!(turns(vec![a("a"), u("b")]), [F, "a:a", "u:b"]);
        assert_eq!(turns(vec![s("x"), u("a"), a("b")]), ["u:a", "a:b", F]);
        assert_eq!(turns(vec![u("a"), a(" "), s(""), u(""), u("b")]), ["u:a|b"]);
    }

    #[test]
    fn system_text_is_left_out_when_there_is_none() {
        assert_eq!(body(&Asked::new(" ", false, vec![Message::system("\n")])).get("system"), None);
    }

    #[test]
    fn a_request_of_kept_forms_equals_one_of_fresh_forms() {
        let shape = RequestShape::new(&LlmConfig::default(), true, Ability::Levels);
        let asked = Asked::new("be brief", true, long_history(200));
        let fresh = shape.body(&asked.request(), "m", None, Marks::Sent);
        let kept = shape.body(&asked.request(), "m", None, Marks::Sent);
        let again = shape.body(&asked.forgetful().request(), "m", None, Marks::Sent);
        assert!(fresh == kept && fresh == again, "the forms differ");
        serde_json::from_slice::<Value>(&fresh).unwrap();
    }
}
