//! Checks conversations against the rules of the format, from its reference and from the behaviour of its servers.
//!
//! Source: Anthropic API reference, "Messages", `messages`; "Tool use", errors; "Prompt caching", limits.

use std::collections::HashSet;

use serde_json::Value;

use super::request::{Marks, RequestShape};
use crate::config::LlmConfig;
use crate::testing::histories::every_history_is_accepted;
use crate::thinking::Ability;
use crate::wire::is_word;

/// Why the server would refuse a body.
fn judge(body: &Value) -> Result<(), String> {
    let turns = body["messages"].as_array().filter(|turns| !turns.is_empty()).ok_or("no messages")?;
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let refuse = |what: &str| Err(format!("turn {at}: {what}"));
        let role = ["user", "assistant"][at % 2];
        let blocks = turn["content"].as_array().filter(|blocks| turn["role"] == role && !blocks.is_empty());
        let Some(blocks) = blocks else { return refuse("the roles do not alternate, or it is empty") };
        let mut results = true;
        for block in blocks {
            match (block["type"].as_str().unwrap_or_default(), role) {
                ("text", _) if !block["text"].as_str().unwrap_or_default().trim().is_empty() => results = false,
                // Source: Anthropic, "Vision": pictures are blocks of user messages.
                ("image", "user") if block["source"]["data"].is_string() => results = false,
                ("tool_use", "assistant") => {
                    let id = use_id(block)?;
                    if !ids.insert(id) {
                        return refuse("an id comes twice");
                    }
                    open.push(id);
                }
                ("tool_result", "user") if results => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    let Some(which) = open.iter().position(|known| *known == id) else {
                        return refuse("a result of no call of the turn before");
                    };
                    open.remove(which);
                }
                _ => return refuse("a block that has no place there"),
            }
        }
        if role == "user" && !open.is_empty() {
            return refuse("a call has no result");
        }
    }
    if turns.len().is_multiple_of(2) {
        return Err("the last turn is not the person's".into());
    }
    let marks = body.to_string().matches("cache_control").count();
    if marks <= 4 { Ok(()) } else { Err(format!("{marks} marks")) }
}

fn use_id(block: &Value) -> Result<&str, String> {
    let name = block["name"].as_str().unwrap_or_default();
    let fits = (1..=64).contains(&name.len()) && name.chars().all(is_word) && block["input"].is_object();
    let id = block["id"].as_str().filter(|id| fits && !id.is_empty() && id.chars().all(is_word));
    id.ok_or_else(|| format!("a call that is none: {block}"))
}

#[test]
fn whatever_history_is_left_the_request_is_valid() {
    let shapes = [true, false].map(|vision| RequestShape::new(&LlmConfig::default(), vision, Ability::Levels));
    every_history_is_accepted(
        |asked| shapes[usize::from(asked.has_tools())].body(&asked.request(), "m", None, Marks::Sent),
        judge,
    );
}
