//! The body of a request, put together from the forms that its parts keep.

use belay_protocol::{Message, MessageBody, ModelRequest, ToolCall, ToolSet};
use serde_json::{Map, json};
use url::Url;

use crate::config::LlmConfig;
use crate::wire::{arguments_json, body_capacity, extra_fields, json, push_json, tool_name};

/// The name under which parts keep their form.
const FORMAT: &str = "openai-chat";

/// What is the same for each request.
pub(super) struct RequestShape {
    /// The field that bounds the answer.
    max_tokens_field: &'static str,
    always: Vec<u8>,
    with_tools: Vec<u8>,
}

impl RequestShape {
    pub(super) fn new(config: &LlmConfig, url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        // OpenAI's own models refuse the old name, and most other servers know only that one.
        let is_openai = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        let usage = Map::from_iter([("stream_options".into(), json!({"include_usage": true}))]);
        let (always, with_tools) = extra_fields(config, usage);
        let max_tokens_field = match (config.extra_body.contains_key("max_completion_tokens"), is_openai) {
            (true, _) => "",
            (false, true) => "max_completion_tokens",
            (false, false) => "max_tokens",
        };
        Self { max_tokens_field, always, with_tools }
    }

    pub(super) fn body(&self, request: &ModelRequest<'_>, model: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(body_capacity(request));
        out.extend_from_slice(b"{\"model\":");
        push_json(&mut out, request.model.unwrap_or(model));
        out.extend_from_slice(b",\"stream\":true");
        if !self.max_tokens_field.is_empty() {
            out.extend_from_slice(format!(",\"{}\":{}", self.max_tokens_field, request.max_tokens).as_bytes());
        }
        out.extend_from_slice(&self.always);
        if let Some(tools) = request.tools.filter(|tools| !tools.is_empty()) {
            out.extend_from_slice(b",\"tools\":");
            tools.wire.append(FORMAT, &mut out, || tools_form(tools));
            out.extend_from_slice(&self.with_tools);
        }
        // Last, so that what comes before is a prefix that servers and people recognise.
        out.extend_from_slice(b",\"messages\":[");
        let mut separator: &[u8] = b"";
        if !request.prompt.text.is_empty() {
            request.prompt.wire.append(FORMAT, &mut out, || said("system", &request.prompt.text));
            separator = b",";
        }
        for message in request.messages {
            out.extend_from_slice(std::mem::replace(&mut separator, b","));
            message.wire.append(FORMAT, &mut out, || message_form(message));
        }
        out.extend_from_slice(b"]}");
        out
    }
}

fn said(role: &str, text: &str) -> String {
    format!("{{\"role\":\"{role}\",\"content\":{}}}", json(text))
}

fn message_form(message: &Message) -> String {
    match &message.body {
        MessageBody::System { text } => said("system", text),
        MessageBody::User { text } => said("user", text),
        MessageBody::Assistant { text, tool_calls } if tool_calls.is_empty() => said("assistant", text),
        MessageBody::Assistant { text, tool_calls } => {
            let content = if text.is_empty() { "null".to_owned() } else { json(text) };
            let calls: Vec<_> = tool_calls.iter().map(call_form).collect();
            format!("{{\"role\":\"assistant\",\"content\":{content},\"tool_calls\":[{}]}}", calls.join(","))
        }
        MessageBody::Tool(result) => format!(
            "{{\"role\":\"tool\",\"tool_call_id\":{},\"content\":{}}}",
            json(result.call_id.as_str()),
            json(&result.text)
        ),
    }
}

fn call_form(call: &ToolCall) -> String {
    format!(
        "{{\"id\":{},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}}}",
        json(call.id.as_str()),
        json(&tool_name(&call.name)),
        json(&arguments_json(&call.arguments)),
    )
}

fn tools_form(tools: &ToolSet) -> String {
    let tools: Vec<_> = tools
        .iter()
        .map(|tool| {
            let spec = tool.spec();
            json!({"type": "function", "function": {
                "name": spec.name, "description": spec.description, "parameters": spec.schema,
            }})
        })
        .collect();
    json(&tools)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::*;
    use crate::testing::{Asked, long_history, sample_history};

    fn shape(config: &LlmConfig, url: &str) -> RequestShape {
        RequestShape::new(config, &Url::parse(url).unwrap())
    }

    fn body(config: &LlmConfig, url: &str, asked: &Asked) -> Value {
        serde_json::from_slice(&shape(config, url).body(&asked.request(), "m")).unwrap()
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
                    "parameters": {"type": "object", "properties": {}, "additionalProperties": false},
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
