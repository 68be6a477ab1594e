//! Tools, the choice among them, and the form of the answer, as a chat request has them.

use serde_json::{Value, json};

/// The tools: a function has its fields in an object of its own there. Tools that a server carries out are passed on as they
/// are; they are ignored where the tools are read.
pub(super) fn tools(mut tools: Value) -> Value {
    for tool in tools.as_array_mut().into_iter().flatten() {
        if tool["type"] == "function" && tool["function"].is_null() {
            let function = tool.take();
            *tool = json!({"type": "function", "function": function});
        }
    }
    tools
}

/// The choice. One of tools that a server carries out is the model's own, since there are none.
pub(super) fn choice(choice: Value) -> Value {
    let name = choice["name"].as_str().or(choice["function"]["name"].as_str());
    match (choice["type"].as_str(), name) {
        (Some("function"), Some(name)) => json!({"type": "function", "function": {"name": name}}),
        (Some("function"), None) | (None, _) => choice,
        (Some("allowed_tools"), _) if choice["allowed_tools"].is_null() => {
            let allowed = json!({"mode": choice["mode"], "tools": tools(choice["tools"].clone())});
            json!({"type": "allowed_tools", "allowed_tools": allowed})
        }
        (Some("allowed_tools"), _) => choice,
        (Some(_), _) => json!("auto"),
    }
}

/// The form of the answer: a schema is in an object of its own there.
pub(super) fn format(format: Value) -> Value {
    match format["type"].as_str() {
        Some("json_schema") if format["json_schema"].is_null() => {
            json!({"type": "json_schema", "json_schema": format})
        }
        _ => format,
    }
}

/// The name that a parameter of the chat request has here.
pub(super) fn param(name: &str) -> String {
    for (chat, ours) in [
        ("response_format.json_schema", "text.format"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("max_completion_tokens", "max_output_tokens"),
        ("messages", "input"),
    ] {
        if let Some(rest) = name.strip_prefix(chat) {
            return format!("{ours}{rest}");
        }
    }
    name.replace("].function.", "].")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flat_forms_become_those_of_a_chat_request() {
        let flat = json!({"type": "function", "name": "a", "parameters": {}, "strict": true});
        let found = tools(json!([flat, {"type": "web_search"}]));
        assert_eq!(found, json!([{"type": "function", "function": flat}, {"type": "web_search"}]));
        assert_eq!(tools(Value::Null), Value::Null);
        let function = json!({"type": "function", "function": {"name": "a"}});
        for (sent, expected) in [
            (json!("required"), json!("required")),
            (json!({"type": "function", "name": "a"}), function.clone()),
            (function.clone(), function),
            (json!({"type": "web_search"}), json!("auto")),
            (
                json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "a"}]}),
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                    {"type": "function", "function": {"type": "function", "name": "a"}},
                ]}}),
            ),
            (Value::Null, Value::Null),
        ] {
            assert_eq!(choice(sent.clone()), expected, "{sent}");
        }
        let schema = json!({"type": "json_schema", "name": "n", "schema": {}});
        assert_eq!(format(schema.clone()), json!({"type": "json_schema", "json_schema": schema}));
        assert_eq!(format(json!({"type": "json_object"})), json!({"type": "json_object"}));
    }

    #[test]
    fn errors_name_the_parameters_of_this_api() {
        for (chat, ours) in [
            ("messages[0].content", "input[0].content"),
            ("tools[3].function.name", "tools[3].name"),
            ("response_format.type", "text.format.type"),
            ("response_format.json_schema", "text.format"),
            ("max_completion_tokens", "max_output_tokens"),
            ("temperature", "temperature"),
        ] {
            assert_eq!(param(chat), ours);
        }
    }
}
