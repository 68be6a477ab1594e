//! Checks conversations against the rules of the format, from its reference and from the behaviour of its servers.
//!
//! Source: OpenAI API reference, "Chat completions", `messages`.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use serde_json::Value;

use super::request::RequestShape;
use crate::config::LlmConfig;
use crate::testing::histories::every_history_is_accepted;
use crate::thinking::Ability;
use crate::wire::is_word;

/// Why the server would refuse a body.
fn judge(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty()).ok_or("no messages")?;
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let refuse = |what: &str| Err(format!("message {at}: {what}"));
        let (role, content) = (message["role"].as_str().unwrap_or_default(), &message["content"]);
        if role != "tool" && !open.is_empty() {
            return refuse("a call has no result");
        }
        match role {
            "system" if content.is_string() => {}
            "user" if content.is_string() || content.as_array().is_some_and(|parts| !parts.is_empty()) => {}
            "assistant" => {
                let Some(calls) = message.get("tool_calls") else {
                    if content.as_str().is_none_or(|text| text.trim().is_empty()) {
                        return refuse("neither text nor calls");
                    }
                    continue;
                };
                for call in calls.as_array().filter(|calls| !calls.is_empty()).ok_or("no calls")? {
                    open.push(call_id(call)?);
                }
                if !(content.is_null() || content.is_string()) || !open.iter().all(|id| ids.insert(*id)) {
                    return refuse("an id comes twice, or the content is none");
                }
                open.reverse();
            }
            "tool" if content.is_string() => {
                if open.pop() != message["tool_call_id"].as_str() {
                    return refuse("a result of no call, or out of order");
                }
            }
            _ => return refuse("no such message"),
        }
    }
    if open.is_empty() { Ok(()) } else { Err("the last call has no result".into()) }
}

fn call_id(call: &Value) -> Result<&str, String> {
    let function = &call["function"];
    let name = function["name"].as_str().unwrap_or_default();
    let arguments = serde_json::from_str::<Value>(function["arguments"].as_str().unwrap_or_default());
    let fits = call["type"] == "function"
        && (1..=64).contains(&name.len())
        && name.chars().all(is_word)
        && arguments.is_ok_and(|arguments| arguments.is_object());
    let id = call["id"].as_str().filter(|id| fits && !id.trim().is_empty());
    id.ok_or_else(|| format!("a call that is none: {call}"))
}

#[test]
fn whatever_history_is_left_the_request_is_valid() {
    let url = "http://h/v1".parse().unwrap();
    let shapes = [true, false].map(|vision| RequestShape::new(&LlmConfig::default(), &url, vision, Ability::Levels));
    every_history_is_accepted(|asked| shapes[usize::from(asked.has_tools())].body(&asked.request(), "m"), judge);
}
