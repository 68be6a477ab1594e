//! The tools of a chat request, and the calls and results in its messages.
//!
//! Source: the OpenAI API reference, "Chat Completions": `tools`, `tool_choice`, `parallel_tool_calls`, `tool_calls`.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::inbound::HistoryLine;
use belay_protocol::{Arguments, CallChoice, CallId, ClientTools, Message, ToolCall, ToolResult, ToolStatus};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::OpenAiError;
use super::offered::tools_in;
use super::request::{ChatMessage, Content};
use crate::foreign::shown;

/// The name of a tool whose call the client does not show.
const UNKNOWN_TOOL: &str = "tool";

/// The fields of a request about tools of the client, beside the tools. These are a field of the request itself: serde
/// copies all that a flattened struct reads.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ToolFields {
    #[cfg_attr(test, schemars(with = "Option<Vec<serde_json::Map<String, Value>>>", length(max = 0)))]
    functions: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<ChoiceForm>"))]
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
}

/// `none`, `auto`, `required`, one function, or the mode and the functions of a part of the tools (`allowed_tools`).
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "ToolChoice", untagged)]
#[allow(dead_code)]
enum ChoiceForm {
    Word(String),
    Function(serde_json::Map<String, Value>),
}

impl ToolFields {
    /// The tools that the client offers; `None`: none, or the model must not call them.
    pub(super) fn read(&self, tools: Option<&RawValue>) -> Result<Option<Arc<ClientTools>>, OpenAiError> {
        match &self.functions {
            None | Some(Value::Null) => {}
            Some(Value::Array(functions)) if functions.is_empty() => {}
            Some(Value::Array(_)) => {
                let message = "functions is not supported; send them as tools of type function";
                return Err(OpenAiError::invalid("functions", "unsupported_parameter", message));
            }
            Some(_) => return Err(OpenAiError::invalid("functions", "invalid_type", "must be a list")),
        }
        let tools = tools.map(tools_in).transpose()?.unwrap_or_default();
        let (places, offered): (Vec<_>, Vec<_>) = tools.into_iter().filter(|(_, tool)| self.allows(&tool.name)).unzip();
        let Some(choice) = self.choice()?.filter(|_| !offered.is_empty()) else { return Ok(None) };
        let one_at_a_time = self.parallel_tool_calls == Some(false);
        let offered = ClientTools { tools: offered, choice, one_at_a_time };
        match offered.check() {
            Ok(()) => Ok(Some(Arc::new(offered))),
            Err(problem) => {
                let param = match (problem.at, problem.field) {
                    (Some(at), field) => format!("tools[{}].function.{field}", places.get(at).unwrap_or(&at)),
                    (None, "choice") => "tool_choice".to_owned(),
                    (None, _) => "tools".to_owned(),
                };
                Err(OpenAiError::invalid(param, "invalid_value", shown(&problem.why)))
            }
        }
    }

    /// The choice of a part of the tools.
    fn allowed(&self) -> Option<&Value> {
        let choice = self.tool_choice.as_ref().filter(|choice| choice["type"] == "allowed_tools")?;
        Some(&choice["allowed_tools"]).filter(|allowed| allowed.is_object())
    }

    /// Whether the model may see this tool of the client.
    fn allows(&self, name: &str) -> bool {
        let Some(allowed) = self.allowed() else { return true };
        allowed["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["function"]["name"] == name))
    }

    /// Whether a call is demanded; `None`: the model must not call tools of the client.
    fn choice(&self) -> Result<Option<CallChoice>, OpenAiError> {
        let Some(choice) = self.tool_choice.as_ref().filter(|choice| !choice.is_null()) else {
            return Ok(Some(CallChoice::Auto));
        };
        let mode = self.allowed().map_or(choice, |allowed| &allowed["mode"]);
        match (mode.as_str(), choice["function"]["name"].as_str()) {
            (Some("auto"), _) => Ok(Some(CallChoice::Auto)),
            (Some("required" | "any"), _) => Ok(Some(CallChoice::Required)),
            (Some("none"), _) => Ok(None),
            (_, Some(name)) => Ok(Some(CallChoice::Tool(name.to_owned()))),
            _ => {
                let message = "must be none, auto, required, {\"type\": \"function\", \"function\": {\"name\": NAME}}, or \
                               {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\" or \"required\", \"tools\": TOOLS}}";
                Err(OpenAiError::invalid("tool_choice", "invalid_value", message))
            }
        }
    }
}

/// The lines of calls and results among the messages of a request.
#[derive(Default)]
pub(super) struct ToolLines {
    /// The tools of the calls so far, by the ids of the calls.
    called: HashMap<String, String>,
}

impl ToolLines {
    /// The line of a message with calls or with a result; `None`: it is a message of another kind.
    pub(super) fn line(&mut self, message: &ChatMessage, at: usize) -> Result<Option<HistoryLine>, OpenAiError> {
        let calls = message.calls();
        if !calls.is_empty() {
            self.called.extend(calls.iter().map(|call| (call.id.to_string(), call.name.clone())));
            let text = message.line(at)?.text;
            return Ok(Some(HistoryLine::of_tools(&Message::assistant_calls(text, calls))));
        }
        let Some(text) = message.result(at)? else { return Ok(None) };
        let id = message.tool_call_id.clone().unwrap_or_default();
        let name = self.called.get(&id).cloned().unwrap_or_else(|| UNKNOWN_TOOL.to_owned());
        let result = ToolResult { call_id: CallId::from(id), name, status: ToolStatus::Success, text };
        Ok(Some(HistoryLine::of_tools(&Message::tool(result))))
    }
}

impl ChatMessage {
    /// Whether it is the result of a tool.
    pub(super) fn is_result(&self) -> bool {
        matches!(self.role.as_str(), "tool" | "function")
    }

    /// The calls of an answer.
    pub(super) fn calls(&self) -> Vec<ToolCall> {
        let calls = self.tool_calls.as_ref().and_then(Value::as_array).filter(|_| self.role == "assistant");
        let call = |call: &Value| {
            let function = &call["function"];
            let arguments = match &function["arguments"] {
                Value::String(text) => Arguments::parse(text),
                Value::Object(arguments) => Arguments::Object(arguments.clone()),
                _ => Arguments::parse(""),
            };
            let name = function["name"].as_str()?.to_owned();
            Some(ToolCall { id: call["id"].as_str()?.into(), name, arguments })
        };
        calls.into_iter().flatten().filter_map(call).collect()
    }

    /// The text of a result; `None`: the message is no result.
    pub(super) fn result(&self, at: usize) -> Result<Option<String>, OpenAiError> {
        if !self.is_result() {
            return Ok(None);
        }
        Ok(Some(match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let text_of = |part: &super::request::Part| match &part.text {
                    Some(text) => text.clone(),
                    None => format!("[a part of type {} is not shown]", shown(&part.kind)),
                };
                parts.iter().map(text_of).collect::<Vec<_>>().join("\n")
            }
            Some(Content::Other(_)) => {
                let message = "the content must be a text or a list of parts";
                return Err(OpenAiError::invalid(format!("messages[{at}].content"), "invalid_type", message));
            }
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<Option<Arc<ClientTools>>, Value> {
        let fields: ToolFields = serde_json::from_value(body.clone()).unwrap();
        let tools = body.get("tools").filter(|tools| !tools.is_null());
        let tools = tools.map(|tools| serde_json::value::to_raw_value(tools).unwrap());
        fields.read(tools.as_deref()).map_err(|error| error.body()["error"]["param"].clone())
    }

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name}})
    }

    #[test]
    fn tools_are_read_with_their_choice_and_other_kinds_are_left_out() {
        let search = json!({"type": "web_search"});
        for (choice, expected) in [
            (Value::Null, Some(CallChoice::Auto)),
            (json!("auto"), Some(CallChoice::Auto)),
            (json!("required"), Some(CallChoice::Required)),
            (json!("none"), None),
            (tool("a"), Some(CallChoice::Tool("a".into()))),
        ] {
            let found = read(json!({"tools": [tool("a"), search], "tool_choice": choice})).unwrap();
            assert_eq!(
                found.map(|found| (found.tools.len(), found.choice.clone())),
                expected.map(|choice| (1, choice))
            );
        }
        for (mode, names, expected) in [
            ("auto", &["b"][..], Some((CallChoice::Auto, vec!["b"]))),
            ("required", &["c", "a", "z"], Some((CallChoice::Required, vec!["a", "c"]))),
            ("auto", &["z"], None),
        ] {
            let allowed = json!({"mode": mode, "tools": names.iter().map(|name| tool(name)).collect::<Vec<_>>()});
            let choice = json!({"type": "allowed_tools", "allowed_tools": allowed});
            let found = read(json!({"tools": [tool("a"), tool("b"), tool("c")], "tool_choice": choice})).unwrap();
            let names = |found: &ClientTools| found.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
            let expected = expected.map(|(choice, names)| (choice, names.into_iter().map(str::to_owned).collect()));
            assert_eq!(found.map(|found| (found.choice.clone(), names(&found))), expected, "{choice}");
        }
        for nothing in [json!({}), json!({"tools": null}), json!({"tools": [], "tool_choice": "auto", "functions": []})]
        {
            assert_eq!(read(nothing.clone()), Ok(None), "{nothing}");
        }
        let one = read(json!({"tools": [tool("a")], "parallel_tool_calls": false})).unwrap().unwrap();
        assert!(one.one_at_a_time && one.tools[0].parameters == json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_tool_and_field() {
        for (body, param) in [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [tool("a"), {"type": "function", "function": {}}]}), "tools[1].function.name"),
            (json!({"tools": [tool("a"), tool("a")]}), "tools[1].function.name"),
            (json!({"tools": [tool(&"x".repeat(200))]}), "tools[0].function.name"),
            (json!({"tools": [tool("a")], "tool_choice": tool("b")}), "tool_choice"),
            (json!({"tools": [tool("a")], "tool_choice": "sometimes"}), "tool_choice"),
            (json!({"tools": [tool("a")], "tool_choice": {"type": "allowed_tools"}}), "tool_choice"),
            (
                json!({"tools": [tool("a")], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x"}}}),
                "tool_choice",
            ),
            (json!({"functions": [{"name": "a"}]}), "functions"),
            (json!({"tools": (0..600).map(|n| tool(&format!("t{n}"))).collect::<Vec<_>>()}), "tools"),
        ] {
            assert_eq!(read(body.clone()), Err(json!(param)), "{param}");
        }
    }

    #[test]
    fn calls_and_results_of_a_history_stay_what_they_are() {
        let messages: Vec<ChatMessage> = serde_json::from_value(json!([
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Oslo\"}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "rain"}]},
            {"role": "tool", "tool_call_id": "unknown", "content": "snow"},
            {"role": "assistant", "content": "It rains."},
        ]))
        .unwrap();
        let mut lines = ToolLines::default();
        let found: Vec<_> = messages.iter().enumerate().map(|(at, message)| lines.line(message, at).unwrap()).collect();
        let calls = found[0].as_ref().unwrap().tools().unwrap();
        assert_eq!((calls.text(), calls.tool_calls()[0].name.as_str()), ("I look.", "weather"));
        let result = found[1].as_ref().unwrap();
        assert_eq!(
            (result.role, result.tools().unwrap().text()),
            (belay_protocol::inbound::HistoryRole::Result, "rain")
        );
        let orphan = found[2].as_ref().unwrap();
        assert_eq!(orphan.tools().unwrap().text(), "snow");
        assert!(found[3].is_none());
    }
}
