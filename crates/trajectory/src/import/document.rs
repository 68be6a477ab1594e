//! Splits a file into conversations.

use serde_json::Value;

use super::{ImportError, mini_swe_agent};

/// One conversation of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Conversation {
    /// Messages in the format of an API.
    Messages(Vec<Value>),
    /// Messages of a run of tau-bench.
    TauBench(Vec<Value>),
    /// A `.traj` file.
    SweAgent(Value),
    /// A `.traj.json` file of mini-swe-agent.
    MiniSweAgent(Value),
}

/// Splits a file: one JSON value, or one on each line.
pub(super) fn conversations(text: &str) -> Result<Vec<Conversation>, ImportError> {
    let text = text.trim_start_matches('\u{feff}').trim_end();
    let mut found = Vec::new();
    match serde_json::from_str::<Value>(text) {
        Ok(value) => collect(value, &mut found),
        Err(whole) => {
            let values = lines(text, &whole)?;
            // If the lines are messages, they are one conversation. Otherwise each line is a conversation.
            if values.iter().any(|value| message(value).is_some()) && !values.iter().any(holds_conversations) {
                found.push(Conversation::Messages(
                    values.into_iter().filter_map(|value| message(&value).cloned()).collect(),
                ));
            } else {
                values.into_iter().for_each(|value| collect(value, &mut found));
            }
        }
    }
    found.retain(|conversation| match conversation {
        Conversation::Messages(messages) | Conversation::TauBench(messages) => !messages.is_empty(),
        Conversation::SweAgent(_) | Conversation::MiniSweAgent(_) => true,
    });
    if found.is_empty() { Err(ImportError::UnknownForm) } else { Ok(found) }
}

/// Parses one value on each line. If even the first line is not a value, the file was meant to be a single value.
fn lines(text: &str, whole: &serde_json::Error) -> Result<Vec<Value>, ImportError> {
    let not_json = |line: usize, error: &serde_json::Error| ImportError::NotJson {
        line,
        column: error.column(),
        what: error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
    };
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut values = Vec::new();
    for (index, line) in filled {
        match serde_json::from_str(line) {
            Ok(value) => values.push(value),
            Err(_) if values.is_empty() => return Err(not_json(whole.line(), whole)),
            Err(error) => return Err(not_json(index + 1, &error)),
        }
    }
    Ok(values)
}

/// The message in this value: the value itself, or the message that it wraps, as in session logs:
/// `{"type":"assistant","message":{…}}`.
fn message(value: &Value) -> Option<&Value> {
    let inner = value.get("message").filter(|inner| inner.get("role").is_some());
    inner.or_else(|| value.get("role").map(|_| value))
}

fn holds_conversations(value: &Value) -> bool {
    ["messages", "traj", "trajectory", "history", "simulations"]
        .iter()
        .any(|key| value.get(key).is_some_and(Value::is_array))
}

fn collect(value: Value, found: &mut Vec<Conversation>) {
    match value {
        Value::Array(items) if items.iter().any(|item| message(item).is_some()) => {
            found.push(Conversation::Messages(items.iter().filter_map(message).cloned().collect()));
        }
        Value::Array(items) => items.into_iter().for_each(|item| collect(item, found)),
        file if mini_swe_agent::is_typical(&file) => found.push(Conversation::MiniSweAgent(file)),
        Value::Object(mut object) => {
            if ["trajectory", "history"].iter().any(|key| object.get(*key).is_some_and(Value::is_array)) {
                found.push(Conversation::SweAgent(Value::Object(object)));
            } else if let Some(Value::Array(messages)) = object.remove("traj") {
                found.push(Conversation::TauBench(messages));
            } else if let Some(Value::Array(runs)) = object.remove("simulations") {
                let messages = runs.into_iter().filter_map(|mut run| match run.get_mut("messages").map(Value::take) {
                    Some(Value::Array(messages)) => Some(messages),
                    _ => None,
                });
                found.extend(messages.map(Conversation::TauBench));
            } else if let Some(messages) = object.remove("messages") {
                collect(messages, found);
            }
        }
        _ => {}
    }
}
