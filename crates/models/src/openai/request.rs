//! Builds the body of a request from the stored serialised forms of its parts.
//!
//! A tool message contains only text, and the tool messages of one batch must be adjacent. So the pictures of a batch
//! follow it in a user message that says which tool each is from. Their serialised form is not stored: they are large
//! and are written directly.

use std::borrow::Cow;

use belay_protocol::{
    CallChoice, CallId, CallRules, Message, MessageBody, ModelRequest, Picture, SchemaForm, TextFormat, Thinking,
    ToolCall, ToolResult, ToolSet, ToolSpec,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use url::Url;

use crate::config::LlmConfig;
use crate::formats::is_strict;
use crate::thinking::Ability;
use crate::vision::{NO_VISION, text_instead};
use crate::wire::{
    arguments_json, body_capacity, extra_fields, extra_maps, finished, json, push_json, ruled, sampled, tool_name,
};

/// The name under which parts store their serialised form.
const FORMAT: &str = "openai-chat";

/// The same for a message whose pictures are not sent.
const FORMAT_WITHOUT_PICTURES: &str = "openai-chat-blind";

/// The parts of the body that are the same for each request.
pub(super) struct RequestShape {
    /// The name of the field that limits the length of the answer.
    max_tokens_field: &'static str,
    always: Vec<u8>,
    /// The source of `always`, for requests that change some of the fields.
    always_fields: Map<String, Value>,
    with_tools: Vec<u8>,
    /// The source of `with_tools`, for requests with rules of a client.
    with_tools_fields: Map<String, Value>,
    /// Whether pictures are sent.
    vision: bool,
    /// The model's word for no thinking, if it has one.
    off: Option<&'static str>,
}

impl RequestShape {
    pub(super) fn new(config: &LlmConfig, url: &Url, vision: bool, ability: Ability) -> Self {
        let host = url.host_str().unwrap_or_default();
        // OpenAI's own models refuse the old name, and most other servers know only the old name.
        let is_openai = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        let usage = Map::from_iter([("stream_options".into(), json!({"include_usage": true}))]);
        let (always_fields, with_tools_fields) = extra_maps(config, usage.clone());
        let (always, with_tools) = extra_fields(config, usage);
        let max_tokens_field = match (config.extra_body.contains_key("max_completion_tokens"), is_openai) {
            (true, _) => "",
            (false, true) => "max_completion_tokens",
            (false, false) => "max_tokens",
        };
        let off = if let Ability::LevelsAndOff(word) = ability { Some(word) } else { None };
        Self { max_tokens_field, always, always_fields, with_tools, with_tools_fields, vision, off }
    }

    pub(super) fn body(&self, request: &ModelRequest<'_>, model: &str) -> Vec<u8> {
        let vision = self.vision && request.send_pictures;
        let mut out = Vec::with_capacity(body_capacity(request, vision));
        out.extend_from_slice(b"{\"model\":");
        push_json(&mut out, request.model.unwrap_or(model));
        out.extend_from_slice(b",\"stream\":true");
        if !self.max_tokens_field.is_empty() {
            out.extend_from_slice(format!(",\"{}\":{}", self.max_tokens_field, request.max_tokens).as_bytes());
        }
        match request.sampling {
            None => out.extend_from_slice(&self.always),
            Some(sampling) => out.extend_from_slice(&sampled(&self.always_fields, sampling, "stop")),
        }
        let level = match request.thinking {
            Some(Thinking::Off) => self.off,
            level => level.map(Thinking::word),
        };
        if let Some(level) = level {
            out.extend_from_slice(format!(",\"reasoning_effort\":\"{level}\"").as_bytes());
        }
        if let Some(format) = request.format {
            out.extend_from_slice(b",\"response_format\":");
            push_json(&mut out, &response_format(format));
        }
        if let Some(tools) = request.tools.filter(|tools| !tools.is_empty()) {
            out.extend_from_slice(b",\"tools\":");
            tools.wire.append(FORMAT, &mut out, || tools_form(tools));
            match request.calls {
                None => out.extend_from_slice(&self.with_tools),
                Some(rules) => out.extend_from_slice(&ruled(&self.with_tools_fields, rules_form(rules))),
            }
        }
        // The messages come last, so that everything before them is a prefix that servers can cache and people
        // recognise.
        out.extend_from_slice(b",\"messages\":[");
        let mut separator: &[u8] = b"";
        // Many servers accept only one system message, at the beginning. So the system messages at the beginning of the
        // conversation are joined with our prompt. Notices among them stay in the conversation, because they contain
        // untrusted content.
        let head =
            request.messages.iter().take_while(|message| matches!(message.body, MessageBody::System { .. })).count();
        let head = if request.prompt.text.is_empty() { 0 } else { head };
        let leading: Vec<&str> = request.messages[..head]
            .iter()
            .filter(|message| !message.is_notice())
            .map(|message| message.text())
            .collect();
        if !request.prompt.text.is_empty() {
            if leading.is_empty() {
                request.prompt.wire.append(FORMAT, &mut out, || said("system", &request.prompt.text))
            } else {
                out.extend_from_slice(one_system(&request.prompt.text, &leading).as_bytes())
            }
            separator = b",";
        }
        let mut unseen = Vec::new();
        let mut joined: Vec<Cow<'_, str>> = Vec::new();
        for (at, message) in request.messages.iter().enumerate() {
            if at < head && !message.is_notice() {
                continue;
            }
            if !matches!(message.body, MessageBody::Tool(_)) {
                push_pictures(&mut out, std::mem::take(&mut unseen));
            }
            if joined.is_empty() {
                out.extend_from_slice(std::mem::replace(&mut separator, b","));
            }
            // Templates that refuse later system messages refuse two user messages in a row as well.
            if !request.later_system
                && let Some(text) = in_role_of_user(message, at)
            {
                joined.push(text);
                let next = request.messages.get(at + 1).and_then(|next| in_role_of_user(next, at + 1));
                if next.is_none() {
                    out.extend_from_slice(said("user", &std::mem::take(&mut joined).join("\n\n")).as_bytes());
                }
                continue;
            }
            if vision && matches!(message.body, MessageBody::User { .. }) && !message.pictures.is_empty() {
                push_user_with_pictures(&mut out, message);
                continue;
            }
            match with_pictures(message) {
                _ if !vision && !message.pictures.is_empty() => {
                    message.wire.append(FORMAT_WITHOUT_PICTURES, &mut out, || form_without_pictures(message))
                }
                pictures => {
                    message.wire.append(FORMAT, &mut out, || message_form(message));
                    unseen.extend(pictures);
                }
            }
        }
        push_pictures(&mut out, unseen);
        out.extend_from_slice(b"]}");
        finished(out)
    }
}

/// The text of a message that is sent in the role of the user, if it is nothing but a text.
fn in_role_of_user(message: &Message, at: usize) -> Option<Cow<'_, str>> {
    match message.body {
        MessageBody::System { .. } if at > 0 => Some(message.told_as_user().into()),
        MessageBody::User { .. } | MessageBody::Data { .. } if message.pictures.is_empty() => Some(message.for_model()),
        _ => None,
    }
}

/// The form of an answer. It is enforced if the schema allows it; else the model only reads it.
fn response_format(format: &TextFormat) -> Value {
    let TextFormat { name, schema } = format;
    let mut schema = json!({"name": name, "schema": schema});
    if is_strict(&format.schema) {
        schema["strict"] = true.into();
    }
    json!({"type": "json_schema", "json_schema": schema})
}

/// The result and the pictures of a tool message, if it has any.
fn with_pictures(message: &Message) -> Option<(&ToolResult, &[Picture])> {
    match &message.body {
        MessageBody::Tool(result) if !message.pictures.is_empty() => Some((result, &message.pictures)),
        _ => None,
    }
}

/// Writes the pictures of a batch that has just ended.
fn push_pictures(out: &mut Vec<u8>, batch: Vec<(&ToolResult, &[Picture])>) {
    let mut opening = ",{\"role\":\"user\",\"content\":[";
    let any = !batch.is_empty();
    for (result, pictures) in batch {
        let origin = format!("[from the tool {}, call {}; not a user message]", result.name, result.call_id);
        out.extend_from_slice(std::mem::replace(&mut opening, ",").as_bytes());
        out.extend_from_slice(format!("{{\"type\":\"text\",\"text\":{}}}", json(&origin)).as_bytes());
        pictures.iter().for_each(|picture| push_picture(out, picture));
    }
    if any {
        out.extend_from_slice(b"]}");
    }
}

/// Writes a part with a picture, behind another part.
fn push_picture(out: &mut Vec<u8>, picture: &Picture) {
    out.extend_from_slice(b",{\"type\":\"image_url\",\"image_url\":{\"url\":");
    push_json(out, &format_args!("data:{};base64,{}", picture.media_type, picture.base64));
    out.extend_from_slice(b"}}");
}

/// Writes a user message with its pictures.
fn push_user_with_pictures(out: &mut Vec<u8>, message: &Message) {
    let text = json(&message.for_model());
    out.extend_from_slice(b"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":");
    out.extend_from_slice(text.as_bytes());
    out.push(b'}');
    message.pictures.iter().for_each(|picture| push_picture(out, picture));
    out.extend_from_slice(b"]}");
}

fn said(role: &str, text: &str) -> String {
    format!("{{\"role\":\"{role}\",\"content\":{}}}", json(text))
}

/// Joins our prompt and the instructions at the beginning of the conversation into one message.
fn one_system(prompt: &str, leading: &[&str]) -> String {
    let texts: Vec<&str> = std::iter::once(prompt).chain(leading.iter().copied()).collect();
    said("system", &texts.join("\n\n"))
}

fn message_form(message: &Message) -> String {
    match &message.body {
        // Untrusted content must not be an instruction. The notice itself says that it is not from the user.
        MessageBody::System { text } if message.is_notice() => said("user", text),
        MessageBody::System { text } => said("system", text),
        MessageBody::User { .. } | MessageBody::Data { .. } => said("user", &message.for_model()),
        MessageBody::Assistant { text, tool_calls } if tool_calls.is_empty() => said("assistant", text),
        MessageBody::Assistant { text, tool_calls } => {
            let content = if text.is_empty() { "null".to_owned() } else { json(text) };
            let calls: Vec<_> = tool_calls.iter().map(call_form).collect();
            format!("{{\"role\":\"assistant\",\"content\":{content},\"tool_calls\":[{}]}}", calls.join(","))
        }
        MessageBody::Tool(result) => tool_form(&result.call_id, &result.text),
    }
}

/// A message with a line instead of its pictures.
fn form_without_pictures(message: &Message) -> String {
    match &message.body {
        MessageBody::Tool(result) => tool_form(&result.call_id, &text_instead(message, NO_VISION)),
        MessageBody::User { .. } => said("user", &text_instead(message, NO_VISION)),
        _ => message_form(message),
    }
}

fn tool_form(id: &CallId, text: &str) -> String {
    format!("{{\"role\":\"tool\",\"tool_call_id\":{},\"content\":{}}}", json(id.as_str()), json(text))
}

fn call_form(call: &ToolCall) -> String {
    format!(
        "{{\"id\":{},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}}}",
        json(call.id.as_str()),
        json(&tool_name(&call.name)),
        json(&arguments_json(&call.arguments)),
    )
}

/// A tool as it is sent. It borrows the text of the schema: each request of a client with tools of its own has another
/// set of tools.
#[derive(Serialize)]
struct ToolForm<'a> {
    function: FunctionForm<'a>,
    r#type: &'static str,
}

#[derive(Serialize)]
struct FunctionForm<'a> {
    description: &'a str,
    name: &'a str,
    parameters: &'a RawValue,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
}

fn tools_form(tools: &ToolSet) -> String {
    let forms: Vec<_> = tools.iter().map(|tool| ToolForm::of(tool.spec())).collect();
    json(&forms)
}

impl<'a> ToolForm<'a> {
    fn of(spec: &'a ToolSpec) -> Self {
        let ToolSpec { description, name, schema_form, .. } = spec;
        let strict = *schema_form == SchemaForm::Strict;
        let function = FunctionForm { description, name, parameters: spec.shown_schema(), strict };
        Self { function, r#type: "function" }
    }
}

/// The fields for the rules of a client. Source: OpenAI, chat completions, `tool_choice` and `parallel_tool_calls`.
fn rules_form(rules: CallRules<'_>) -> Map<String, Value> {
    let choice = match rules.choice {
        CallChoice::Auto => None,
        CallChoice::Required => Some(json!("required")),
        CallChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": name}})),
    };
    let one = rules.one_at_a_time.then(|| Value::from(false));
    let fields = [("tool_choice", choice), ("parallel_tool_calls", one)];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use belay_protocol::{Sampling, ToolSpec};

    use super::*;
    use crate::testing::{Asked, declared, history_with_pictures, long_history, sample_history};

    fn shape(config: &LlmConfig, url: &str) -> RequestShape {
        RequestShape::new(config, &Url::parse(url).unwrap(), true, Ability::LevelsAndOff("none"))
    }

    fn body(config: &LlmConfig, url: &str, asked: &Asked) -> Value {
        serde_json::from_slice(&shape(config, url).body(&asked.request(), "m")).unwrap()
    }

    #[test]
    fn what_a_client_asks_for_stands_in_the_place_of_the_configured() {
        let asked = Asked::new("", false, vec![Message::user("hi")]);
        let config = LlmConfig { temperature: Some(0.5), ..LlmConfig::default() };
        let sampling = Sampling {
            temperature_milli: Some(0),
            top_p_milli: Some(900),
            seed: Some(7),
            stop: vec!["END".into()],
            ..Sampling::default()
        };
        let shape = RequestShape::new(&config, &"http://h/v1".parse().unwrap(), false, Ability::Unknown);
        let body: Value =
            serde_json::from_slice(&shape.body(&ModelRequest { sampling: Some(&sampling), ..asked.request() }, "m"))
                .unwrap();
        let expected =
            [("temperature", json!(0.0)), ("top_p", json!(0.9)), ("seed", json!(7)), ("stop", json!(["END"]))];
        for (field, value) in expected {
            assert_eq!(body[field], value, "{body}");
        }
    }

    #[test]
    fn a_request_is_what_the_reference_says() {
        let config = LlmConfig { temperature: Some(0.5), ..LlmConfig::default() };
        let body = body(&config, "http://h/v1", &Asked::new("be brief", true, sample_history()));
        assert_eq!(
            body,
            json!({
                "model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 100,
                "temperature": 0.5,
                "tools": [{"type": "function", "function": {
                    "name": "clock", "description": "tells the time",
                    "parameters": {"type": "object", "properties": {}},
                }}],
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "what \"time\"\n is it? 🕰"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{\"zone\":\"UTC\"}"}},
                        {"id": "c 2", "type": "function", "function": {
                            "name": "bad_name", "arguments": "{\"malformed_arguments\":\"{\\\"a\"}"}},
                    ]},
                    {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
                    {"role": "tool", "tool_call_id": "c 2", "content": "no such tool"},
                    {"role": "system", "content": "two steps are left"},
                    {"role": "assistant", "content": "noon"},
                ],
            })
        );
    }

    #[test]
    fn the_form_of_an_answer_is_enforced_if_its_schema_allows_it() {
        let asked = Asked::new("", true, vec![Message::user("hi")]);
        let closed = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
            "additionalProperties": false});
        for (schema, strict) in [(closed, json!({"strict": true})), (json!({"type": "object"}), json!({}))] {
            let format = TextFormat { name: "num".into(), schema: schema.clone() };
            let request = ModelRequest { format: Some(&format), ..asked.request() };
            let body = shape(&LlmConfig::default(), "https://api.openai.com/v1").body(&request, "m");
            let body: Value = serde_json::from_slice(&body).unwrap();
            let mut inner = json!({"name": "num", "schema": schema});
            inner.as_object_mut().unwrap().extend(strict.as_object().unwrap().clone());
            assert_eq!(body["response_format"], json!({"type": "json_schema", "json_schema": inner}));
            assert!(body["tools"].is_array(), "beside the tools: {body}");
        }
    }

    #[test]
    fn instructions_that_a_conversation_begins_with_join_ours_and_later_ones_stay_where_they_are() {
        let said = |messages: Vec<Message>, prompt: &str| {
            body(&LlmConfig::default(), "http://h/v1", &Asked::new(prompt, false, messages))["messages"].clone()
        };
        let talk = || {
            vec![
                Message::system("in French"),
                Message::system("in short"),
                Message::user("one"),
                Message::system("two steps are left"),
            ]
        };
        assert_eq!(
            said(talk(), "be kind"),
            json!([
                {"role": "system", "content": "be kind\n\nin French\n\nin short"},
                {"role": "user", "content": "one"},
                {"role": "system", "content": "two steps are left"},
            ])
        );
        assert_eq!(
            said(talk(), "").as_array().map(Vec::len),
            Some(4),
            "without a prompt of ours they are as they came"
        );
    }

    #[test]
    fn a_notice_stands_in_the_conversation_and_not_among_the_instructions() {
        let notice = || Message::notice("it is 42");
        let text = "This is a notice from Belay, not a message of the user. it is 42";
        for history in [
            vec![notice(), Message::system("in French"), Message::user("what came of it?"), notice()],
            vec![Message::system("in French"), notice(), Message::user("what came of it?"), notice()],
        ] {
            assert_eq!(
                body(&LlmConfig::default(), "http://h/v1", &Asked::new("be kind", false, history))["messages"],
                json!([
                    {"role": "system", "content": "be kind\n\nin French"},
                    {"role": "user", "content": text},
                    {"role": "user", "content": "what came of it?"},
                    {"role": "user", "content": text},
                ])
            );
        }
        let alone = body(&LlmConfig::default(), "http://h/v1", &Asked::new("", false, vec![notice()]));
        assert_eq!(alone["messages"], json!([{"role": "user", "content": text}]));
    }

    #[test]
    fn a_level_of_thinking_is_sent_in_the_words_of_the_format() {
        let asked = Asked::new("", false, sample_history());
        for (ability, level, sent) in [
            (Ability::Levels, None, None),
            (Ability::Levels, Some(Thinking::Low), Some("low")),
            (Ability::Unknown, Some(Thinking::Medium), Some("medium")),
            (Ability::LevelsAndOff("none"), Some(Thinking::High), Some("high")),
            (Ability::LevelsAndOff("none"), Some(Thinking::Off), Some("none")),
            (Ability::LevelsAndOff("minimal"), Some(Thinking::Off), Some("minimal")),
            (Ability::Levels, Some(Thinking::Off), None),
        ] {
            let shape = RequestShape::new(&LlmConfig::default(), &Url::parse("http://h/v1").unwrap(), true, ability);
            let request = ModelRequest { thinking: level, ..asked.request() };
            let body: Value = serde_json::from_slice(&shape.body(&request, "m")).unwrap();
            let effort = body.get("reasoning_effort").and_then(Value::as_str);
            assert_eq!((effort, &body["max_tokens"]), (sent, &json!(100)), "{ability:?} {level:?}");
        }
    }

    #[test]
    fn the_rules_of_a_client_stand_beside_the_tools_in_place_of_the_configured_ones() {
        let asked = Asked::new("be brief", true, Vec::new());
        let extra_body = Map::from_iter([("tool_choice".to_owned(), json!("auto"))]);
        let shape = shape(&LlmConfig { extra_body, ..LlmConfig::default() }, "http://h/v1");
        let body = |choice: &CallChoice, one_at_a_time| -> Value {
            let calls = Some(CallRules { choice, one_at_a_time });
            serde_json::from_slice(&shape.body(&ModelRequest { calls, ..asked.request() }, "m")).unwrap()
        };
        let one = body(&CallChoice::Tool("clock".into()), true);
        assert_eq!(one["tool_choice"], json!({"type": "function", "function": {"name": "clock"}}));
        assert_eq!(one["parallel_tool_calls"], json!(false));
        let required = body(&CallChoice::Required, false);
        assert_eq!((&required["tool_choice"], required.get("parallel_tool_calls")), (&json!("required"), None));
        assert_eq!(body(&CallChoice::Auto, false)["tool_choice"], json!("auto"), "the configured one");
    }

    #[test]
    fn a_strict_tool_is_strict_for_the_provider_and_others_say_nothing_of_it() {
        let spec = |name: &str, strict| {
            let schema_form = if strict { SchemaForm::Strict } else { SchemaForm::Short };
            ToolSpec { schema_form, ..ToolSpec::new(name, "d", json!({"type": "object"})) }
        };
        let tool = |name, strict| declared(spec(name, strict));
        let tools = tools_form(&ToolSet::new(vec![tool("a", true), tool("b", false)]));
        let tools: Value = serde_json::from_str(&tools).unwrap();
        let strict = |at: usize| tools[at]["function"].get("strict").cloned();
        assert_eq!((strict(0), strict(1)), (Some(json!(true)), None), "{tools}");
    }

    #[test]
    fn forced_text_sends_no_tools_and_nothing_about_them() {
        let config: LlmConfig = serde_json::from_value(json!({"extra_body": {
            "tool_choice": "required", "parallel_tool_calls": false, "chat_template_kwargs": {"tool_first": true},
        }}))
        .unwrap();
        let with = body(&config, "http://h/v1", &Asked::new("", true, sample_history()));
        let without = body(&config, "http://h/v1", &Asked::new("", false, sample_history()));
        for name in ["tools", "tool_choice", "parallel_tool_calls"] {
            assert!(with.get(name).is_some() && without.get(name).is_none(), "{name}");
        }
        assert_eq!(without["chat_template_kwargs"], json!({"tool_first": true}));
    }

    #[test]
    fn pictures_follow_their_batch_in_a_message_that_says_which_tool_each_is_from() {
        let asked = Asked::new("", false, history_with_pictures());
        let body = body(&LlmConfig::default(), "http://h/v1", &asked);
        let origin = |text: &str| json!({"type": "text", "text": text});
        let shown = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        assert_eq!(
            body["messages"].as_array().unwrap()[2..],
            [
                json!({"role": "tool", "tool_call_id": "c1", "content": ""}),
                json!({"role": "tool", "tool_call_id": "c2", "content": "12:00"}),
                json!({"role": "tool", "tool_call_id": "c3", "content": "[a.png]"}),
                json!({"role": "user", "content": [
                    origin("[from the tool take picture, call c1; not a user message]"),
                    shown("data:image/png;base64,UE5H"),
                    shown("data:image/jpeg;base64,SlBH"),
                    origin("[from the tool read_file, call c3; not a user message]"),
                    shown("data:image/png;base64,QQ=="),
                ]}),
                json!({"role": "user", "content": "and?"}),
            ]
        );
    }

    #[test]
    fn pictures_at_the_end_of_a_history_are_shown_too() {
        let mut history = history_with_pictures();
        history.pop();
        let body = body(&LlmConfig::default(), "http://h/v1", &Asked::new("", false, history));
        let last = body["messages"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["role"], last["content"].as_array().unwrap().len()), (&json!("user"), 5));
    }

    #[test]
    fn attached_pictures_stand_in_the_message_of_the_user() {
        let picture = Picture { media_type: "image/png".into(), base64: "UE5H".into() };
        let asked = Asked::new("", false, vec![Message::user("look").with_pictures(vec![picture])]);
        let seen = body(&LlmConfig::default(), "http://h/v1", &asked);
        assert_eq!(
            seen["messages"],
            json!([{"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5H"}},
            ]}])
        );
        let url = Url::parse("http://h/v1").unwrap();
        let blind = RequestShape::new(&LlmConfig::default(), &url, false, Ability::Unknown);
        let body: Value = serde_json::from_slice(&blind.body(&asked.request(), "m")).unwrap();
        let text = "look\n[1 picture not shown: this model does not accept pictures]";
        assert_eq!(body["messages"], json!([{"role": "user", "content": text}]));
    }

    #[test]
    fn a_model_that_cannot_see_is_told_how_many_pictures_it_misses() {
        let blind =
            RequestShape::new(&LlmConfig::default(), &Url::parse("http://h/v1").unwrap(), false, Ability::Unknown);
        let asked = Asked::new("", false, history_with_pictures());
        let seen = shape(&LlmConfig::default(), "http://h/v1").body(&asked.request(), "m");
        let body: Value = serde_json::from_slice(&blind.body(&asked.request(), "m")).unwrap();
        assert_eq!(
            body["messages"].as_array().unwrap()[2..],
            [
                json!({"role": "tool", "tool_call_id": "c1", "content": "[2 pictures not shown: this model does not accept pictures]"}),
                json!({"role": "tool", "tool_call_id": "c2", "content": "12:00"}),
                json!({"role": "tool", "tool_call_id": "c3",
                       "content": "[a.png]\n[1 picture not shown: this model does not accept pictures]"}),
                json!({"role": "user", "content": "and?"}),
            ]
        );
        let again = shape(&LlmConfig::default(), "http://h/v1").body(&asked.request(), "m");
        assert!(seen == again, "the form for the one is not taken for the other");
    }

    #[test]
    fn the_bound_goes_by_the_name_the_server_knows() {
        let asked = Asked::new("", false, sample_history());
        for (url, field) in [
            ("https://api.openai.com/v1", "max_completion_tokens"),
            ("https://x.openai.azure.com/v1", "max_completion_tokens"),
            ("http://127.0.0.1:8080/v1", "max_tokens"),
        ] {
            assert_eq!(body(&LlmConfig::default(), url, &asked)[field], 100, "{url}");
        }
        let config: LlmConfig = serde_json::from_value(json!({"extra_body": {"max_completion_tokens": 7}})).unwrap();
        let body = body(&config, "http://h/v1", &asked);
        assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(7), None));
    }

    #[test]
    fn a_body_does_not_move_while_it_grows_and_holds_nothing_but_itself_once_it_is_finished() {
        let asked = Asked::new("be brief", true, long_history(50)).with_tools(40);
        let body = shape(&LlmConfig::default(), "http://h/v1").body(&asked.request(), "m");
        let room = body_capacity(&asked.request(), true);
        assert!(room >= body.len() && room < body.len() * 3 / 2, "{room} for {}", body.len());
        assert_eq!(body.capacity(), body.len());
    }

    #[test]
    fn a_request_of_kept_forms_equals_one_of_fresh_forms() {
        let shape = shape(&LlmConfig::default(), "http://h/v1");
        let asked = Asked::new("be brief", true, long_history(200));
        let fresh = shape.body(&asked.request(), "m");
        let kept = shape.body(&asked.request(), "m");
        let again = shape.body(&asked.forgetful().request(), "m");
        assert!(fresh == kept && fresh == again, "the forms differ");
        assert_eq!(serde_json::from_slice::<Value>(&fresh).unwrap()["messages"].as_array().unwrap().len(), 201);
    }
}
