//! The tools that a chat request offers, read from its text. A tool in the form that clients write keeps the text of its
//! schema, and no tree is made of it: a front end sends dozens of tools with each request.

use belay_protocol::{ClientTool, ToolSchema};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::OpenAiError;
use crate::foreign::shown;

/// A tool as clients write it. Others are read as a tree.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    name: String,
    description: Option<String>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    strict: Option<bool>,
}

/// The tools of a request with their places. Those that a server carries out, such as a search, are of other types.
///
/// # Errors
/// 400: they are no list, or one has no name or cannot be read.
pub(super) fn tools_in(tools: &RawValue) -> Result<Vec<(usize, ClientTool)>, OpenAiError> {
    if let Ok(written) = serde_json::from_str::<Vec<Written<'_>>>(tools.get()) {
        return written.into_iter().enumerate().filter_map(|(at, tool)| kept(at, tool.tool(at))).collect();
    }
    list(tools)?.into_iter().enumerate().filter_map(|(at, tool)| kept(at, tool_of(tool, at))).collect()
}

fn kept(at: usize, tool: Result<Option<ClientTool>, OpenAiError>) -> Option<Result<(usize, ClientTool), OpenAiError>> {
    Some(tool.transpose()?.map(|tool| (at, tool)))
}

/// The tools of a request, each as its text; an error if they are no list.
pub(super) fn list(tools: &RawValue) -> Result<Vec<&RawValue>, OpenAiError> {
    serde_json::from_str(tools.get())
        .map_err(|_no_list| OpenAiError::invalid("tools", "invalid_type", "must be a list"))
}

/// The tool at this place; `None`: one that a server carries out.
fn tool_of(tool: &RawValue, at: usize) -> Result<Option<ClientTool>, OpenAiError> {
    match serde_json::from_str::<Written<'_>>(tool.get()) {
        Ok(written) => written.tool(at),
        Err(_other_form) => of_tree(&serde_json::from_str(tool.get()).map_err(|e| unreadable(&e, at))?, at),
    }
}

impl Written<'_> {
    fn tool(self, at: usize) -> Result<Option<ClientTool>, OpenAiError> {
        let Self { kind, function } = self;
        if !is_function(kind.as_deref()) {
            return Ok(None);
        }
        Ok(Some(ClientTool {
            name: function.name,
            description: function.description.unwrap_or_default(),
            parameters: match function.parameters {
                Some(text) => ToolSchema::of_text(text).map_err(|error| unreadable(&error, at))?,
                None => no_arguments(),
            },
            strict: function.strict.unwrap_or(false),
        }))
    }
}

fn unreadable(error: &serde_json::Error, at: usize) -> OpenAiError {
    let message = format!("the tool cannot be read: {}", shown(&error.to_string()));
    OpenAiError::invalid(format!("tools[{at}]"), "invalid_value", message)
}

/// The same for any form. A field of an unexpected type is as none.
fn of_tree(tool: &Value, at: usize) -> Result<Option<ClientTool>, OpenAiError> {
    if !is_function(tool["type"].as_str()) {
        return Ok(None);
    }
    let function = &tool["function"];
    let Some(name) = function["name"].as_str() else {
        let (param, why) = (format!("tools[{at}].function.name"), "a tool needs a function with a name");
        return Err(OpenAiError::invalid(param, "missing_required_parameter", why));
    };
    Ok(Some(ClientTool {
        name: name.to_owned(),
        description: function["description"].as_str().unwrap_or_default().to_owned(),
        parameters: match &function["parameters"] {
            Value::Null => no_arguments(),
            parameters => ToolSchema::of_tree(parameters).map_err(|error| unreadable(&error, at))?,
        },
        strict: function["strict"].as_bool().unwrap_or(false),
    }))
}

fn is_function(kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| kind == "function")
}

fn no_arguments() -> ToolSchema {
    json!({"type": "object", "properties": {}}).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<ClientTool>, Value> {
        tool_of(serde_json::from_str(text).unwrap(), 3).map_err(|error| error.body()["error"]["param"].clone())
    }

    #[test]
    fn a_tool_is_the_same_by_its_text_and_by_its_tree() {
        for text in [
            r#"{"type": "function", "function": {"name": "a", "description": "b", "parameters": {"type": "object"}, "strict": true}}"#,
            r#"{"function": {"name": "a", "parameters": null, "more": [1]}}"#,
            r#"{"type": "web_search", "function": {"name": "a"}}"#,
        ] {
            let (by_text, tree) = (read(text).unwrap(), serde_json::from_str(text).unwrap());
            assert_eq!(by_text, of_tree(&tree, 3).unwrap(), "{text}");
        }
    }

    #[test]
    fn a_field_of_another_type_is_as_none_and_a_tool_without_a_name_is_refused() {
        let tool = |text: &str| read(text).unwrap().map(|tool| (tool.name, tool.strict));
        let plain = Some(("a".to_owned(), false));
        assert_eq!(tool(r#"{"type": 7, "function": {"name": "a", "description": [], "strict": "yes"}}"#), plain);
        assert_eq!(tool(r#"{"type": "web_search"}"#), None);
        for text in [r#"{"type": "function"}"#, "7", r#"{"function": {"name": 7}}"#] {
            assert_eq!(read(text), Err(json!("tools[3].function.name")), "{text}");
        }
    }

    #[test]
    fn a_schema_that_nobody_could_read_later_is_refused() {
        for schema in [r#"{"const": "\ud83d"}"#, r#"{"const": 1e999}"#] {
            let text = format!(r#"{{"function": {{"name": "a", "parameters": {schema}}}}}"#);
            assert_eq!(read(&text), Err(json!("tools[3]")), "{text}");
        }
    }

    #[test]
    fn a_schema_that_would_be_too_deep_in_a_stored_run_is_refused() {
        for (depth, is_taken) in [(99, true), (100, true), (101, false), (124, false)] {
            let schema = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            for more in ["", r#""description": [], "#] {
                let text = format!(r#"{{"function": {{"name": "a", {more}"parameters": {schema}}}}}"#);
                assert_eq!(read(&text).map(|_| ()), if is_taken { Ok(()) } else { Err(json!("tools[3]")) }, "{text}");
            }
        }
    }
}
