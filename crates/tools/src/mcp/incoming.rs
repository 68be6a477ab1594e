//! Rewrites messages of a server that the SDK cannot read, or reads with a loss, before the SDK gets them. Without that,
//! the SDK drops such an answer, and its request waits for its time limit.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::mcp::tasks::{SERVER_TASKS, TASK};

/// The key of a tool list, instead of `tools`. The SDK does not know it, and passes the list on as it is, with the parts
/// of tools that the types of the SDK do not have.
pub(super) const TOOLS: &str = "belay/tools";

/// The message in a form that the SDK can read.
pub(super) fn readable(message: &[u8]) -> Cow<'_, [u8]> {
    let has = |word: &str| message.windows(word.len()).any(|part| part == word.as_bytes());
    if !["\"tools\"", "\"error\"", "\"taskId\"", "\"tasks\""].iter().any(|word| has(word)) {
        return Cow::Borrowed(message);
    }
    let Ok(Value::Object(mut table)) = serde_json::from_slice(message) else { return Cow::Borrowed(message) };
    let changed = !table.contains_key("method")
        && (keep_one(&mut table) | mend_error(&mut table) | rename(&mut table) | keep_tasks(&mut table));
    if changed { Cow::Owned(Value::Object(table).to_string().into_bytes()) } else { Cow::Borrowed(message) }
}

/// Keeps one of result and error: some servers send the other one as null.
fn keep_one(table: &mut Map<String, Value>) -> bool {
    let is = |key: &str| table.get(key).is_some_and(|value| !value.is_null());
    let null = match (is("result"), is("error")) {
        (_, true) => "result",
        (true, false) => "error",
        (false, false) => return false,
    };
    table.remove(null).is_some()
}

fn mend_error(table: &mut Map<String, Value>) -> bool {
    let Some(error) = table.get_mut("error") else { return false };
    let number = |code: &Value| code.as_i64().and_then(|code| i32::try_from(code).ok());
    if number(&error["code"]).is_some() && error["message"].is_string() {
        return false;
    }
    let words = match error.get("message").unwrap_or(if error.is_object() { &Value::Null } else { &*error }) {
        Value::String(text) if !text.trim().is_empty() => text.clone(),
        Value::Null | Value::String(_) => "it does not say which".into(),
        other => other.to_string(),
    };
    let code = match &error["code"] {
        Value::Null => Ok(0),
        Value::String(code) => code.trim().parse().map_err(|_| code.clone()),
        // A whole number may be written as a fraction.
        Value::Number(code) => {
            let whole = code.as_f64().filter(|code| code.fract() == 0.0).map(|code| format!("{code:.0}"));
            whole.and_then(|code| code.parse().ok()).ok_or_else(|| code.to_string())
        }
        other => Err(other.to_string()),
    };
    let (code, words): (i32, String) = match code {
        Ok(code) => (code, words),
        Err(code) => (0, format!("{code}: {words}")),
    };
    *error = json!({ "code": code, "message": words, "data": error.get("data") });
    true
}

fn rename(table: &mut Map<String, Value>) -> bool {
    let Some(Value::Object(result)) = table.get_mut("result") else { return false };
    let Some(tools) = result.remove("tools") else { return false };
    result.insert(TOOLS.into(), tools);
    true
}

/// Keeps what the types of the SDK do not have: a task in either form, and the capability `tasks` of 2025-11-25.
fn keep_tasks(table: &mut Map<String, Value>) -> bool {
    let Some(Value::Object(result)) = table.get_mut("result") else { return false };
    let has = |key: &str| result.get(key).is_some_and(|value| !value.is_null());
    let is_answer = has("content") || has("structuredContent");
    if !is_answer && (has("taskId") || result.get("task").is_some_and(|task| !task["taskId"].is_null())) {
        let task = std::mem::take(result);
        result.insert(TASK.into(), task.into());
        return true;
    }
    let Some(can) = result.get_mut("capabilities").and_then(Value::as_object_mut) else { return false };
    let Some(tasks @ Value::Object(_)) = can.remove("tasks") else { return false };
    match can.entry("experimental").or_insert_with(|| json!({})) {
        Value::Object(experimental) => experimental.insert(SERVER_TASKS.into(), tasks),
        other => {
            *other = json!({ SERVER_TASKS: tasks });
            None
        }
    };
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_what_the_sdk_cannot_read_is_rewritten() {
        for same in [
            "",
            "x",
            "[]",
            r#"{"error":"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"\"tools\"","data":{"a":1}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{}}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"error":"x","tools":1}}"#,
        ] {
            assert!(matches!(readable(same.as_bytes()), Cow::Borrowed(_)), "{same}");
        }
        let read = |text: Value| serde_json::from_slice::<Value>(&readable(text.to_string().as_bytes())).unwrap();
        assert_eq!(
            read(json!({ "id": 1, "result": { "tools": [], "nextCursor": "x" } })),
            json!({
                "id": 1, "result": { TOOLS: [], "nextCursor": "x" },
            })
        );
        assert_eq!(
            read(json!({ "id": 1, "result": null, "error": { "code": "E", "message": "no", "data": 1 } })),
            json!({
                "id": 1, "error": { "code": 0, "message": "E: no", "data": 1 },
            })
        );
        assert_eq!(read(json!({ "id": 1, "result": {}, "error": null })), json!({ "id": 1, "result": {} }));
        for task in [json!({ "taskId": "a", "status": "working" }), json!({ "task": { "taskId": "a" }, "_meta": {} })] {
            assert_eq!(read(json!({ "id": 1, "result": task })), json!({ "id": 1, "result": { TASK: task } }));
        }
        let answer = json!({ "id": 1, "result": { "content": [], "taskId": "a", "task": { "taskId": "b" } } });
        assert_eq!(read(answer.clone()), answer);
        assert_eq!(
            read(json!({ "id": 1, "result": { "capabilities": { "tasks": { "list": {} }, "tools": {} } } })),
            json!({ "id": 1, "result": { "capabilities": { "experimental": { SERVER_TASKS: { "list": {} } }, "tools": {} } } }),
        );
    }
}
