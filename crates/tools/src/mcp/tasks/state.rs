//! What a server says of a task, in the forms of both protocols.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{CustomResult, ServerResult};
use serde_json::Value;

use crate::mcp::untrusted::line;

/// The key of a task in an answer. The SDK does not know it, and passes the answer on as it is.
pub(in crate::mcp) const TASK: &str = "belay/task";

/// Longest id of a task, in bytes. 1 KiB: an id may be a signed token.
pub(super) const MAX_ID: usize = 1024;

/// Longest words about a task that are shown, in bytes.
const MAX_WORDS: usize = 300;

/// Shortest id that is taken out of words, in bytes. A shorter one is a number or a word, and no secret.
const MIN_HIDDEN: usize = 8;

/// The state of a task.
#[derive(Debug)]
pub(in crate::mcp) struct TaskState {
    /// The server's name of the task: any text; a number is sent back as text. Servers may use it as a
    /// token, so Belay neither logs nor shows it.
    pub(super) id: String,
    pub(super) status: Status,
    /// The words of the server about it, cleaned and without the id; may be empty.
    pub(super) words: String,
    /// The pause that the server wants between two questions for the state.
    pub(super) every: Option<Duration>,
    /// How long the server keeps the task; `None`: without a limit, or it does not say.
    pub(super) ttl: Option<Duration>,
    /// What the server wants to know, by its names.
    pub(super) requests: BTreeMap<String, Value>,
    /// The result of the call; null: `tasks/result` has it.
    pub(super) result: Value,
    /// The error of the call; null: `tasks/result` has it.
    pub(super) error: Value,
}

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It runs. So does a task with an unknown status: only an end ends it.
    Working,
    /// It waits for a person.
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskState {
    /// Reads an answer: of a call that has become a task, or of `tasks/get`. `None`: it is another answer.
    pub(in crate::mcp) fn read(result: &ServerResult) -> Option<Self> {
        let value = match result {
            ServerResult::CreateTaskResult(task) => serde_json::to_value(task).ok()?,
            ServerResult::GetTaskResult(task) => serde_json::to_value(task).ok()?,
            ServerResult::CustomResult(CustomResult(value)) => match value.get(TASK) {
                Some(task) => task.clone(),
                // An answer that has not come through `incoming`, which is no result of a tool.
                None if value["content"].is_null() && value["structuredContent"].is_null() => value.clone(),
                None => return None,
            },
            _ => return None,
        };
        Self::of(if value["task"].is_object() { &value["task"] } else { &value })
    }

    fn of(task: &Value) -> Option<Self> {
        let id = match &task["taskId"] {
            Value::String(id) if !id.is_empty() => id.clone(),
            Value::Number(id) => id.to_string(),
            _ => return None,
        };
        let time = |keys: [&str; 2]| keys.iter().find_map(|key| millis(&task[*key]));
        let requests = task["inputRequests"].as_object().cloned().unwrap_or_default();
        let words = about(task["statusMessage"].as_str().unwrap_or_default(), &id, MAX_WORDS);
        Some(Self {
            id,
            status: match task["status"].as_str() {
                Some("input_required") => Status::InputRequired,
                Some("completed") => Status::Completed,
                Some("failed") => Status::Failed,
                Some("cancelled" | "canceled") => Status::Cancelled,
                _ => Status::Working,
            },
            words,
            every: time(["pollIntervalMs", "pollInterval"]),
            ttl: time(["ttlMs", "ttl"]),
            requests: requests.into_iter().collect(),
            result: task["result"].clone(),
            error: task["error"].clone(),
        })
    }
}

/// The words of a server about a task, cleaned, without its id, and at most this long in bytes.
pub(super) fn about(words: &str, id: &str, most: usize) -> String {
    match id.len() < MIN_HIDDEN {
        true => line(words, most),
        false => line(&words.replace(id, "[task]"), most),
    }
}

/// A number of milliseconds, which may be a text or a fraction.
fn millis(value: &Value) -> Option<Duration> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.and_then(|ms: f64| Duration::try_from_secs_f64(ms / 1000.0).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_a_task_are_read_and_odd_parts_cost_themselves_only() {
        let read = |task: Value| TaskState::read(&ServerResult::CustomResult(CustomResult(json!({ TASK: task }))));
        let old = json!({ "task": { "taskId": "a", "status": "working", "ttl": 60_000, "pollInterval": 500 } });
        let new =
            json!({ "resultType": "task", "taskId": "a", "status": "working", "ttlMs": 60_000, "pollIntervalMs": 500 });
        for task in [old, new] {
            let state = read(task).unwrap();
            assert_eq!((state.id.as_str(), state.status), ("a", Status::Working));
            assert_eq!((state.ttl, state.every), (Some(Duration::from_secs(60)), Some(Duration::from_millis(500))));
        }
        let odd = read(json!({
            "taskId": 7, "status": "paused", "ttl": null, "pollInterval": "250", "statusMessage": "a\u{200b}\nb", "inputRequests": [],
        }));
        let odd = odd.unwrap();
        assert_eq!((odd.id.as_str(), odd.status, odd.words.as_str()), ("7", Status::Working, "a b"));
        assert_eq!((odd.ttl, odd.every, odd.requests.len()), (None, Some(Duration::from_millis(250)), 0));
        let of_sdk = json!({ "taskId": "a", "status": "completed", "createdAt": "", "lastUpdatedAt": "", "ttlMs": 5, "result": {} });
        let state = TaskState::read(&serde_json::from_value(of_sdk).unwrap()).unwrap();
        assert_eq!(
            (state.status, state.ttl, state.result),
            (Status::Completed, Some(Duration::from_millis(5)), json!({}))
        );
        let odd = CustomResult(json!({ "content": [], "taskId": "a" }));
        assert!(TaskState::read(&ServerResult::CustomResult(odd)).is_none(), "a result of a tool");
        for other in [json!({}), json!({ "taskId": "" }), json!({ "task": { "id": "a" } }), json!(null)] {
            assert!(read(other.clone()).is_none(), "{other}");
        }
        for (ms, time) in [(json!(-1), None), (json!(1e300), None), (json!(1.5), Some(Duration::from_micros(1500)))] {
            assert_eq!(millis(&ms), time, "{ms}");
        }
    }
}
