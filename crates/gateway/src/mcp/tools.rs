//! The five tools with their closed schemas, and the types of their arguments.

use std::sync::Arc;

use belay_protocol::{RunId, SessionKey};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::results::CallFailure;

use crate::checks::LIST_MAX;

/// Default number of messages of a conversation.
const READ_DEFAULT: u32 = 20;

/// Most messages of a conversation: a model reads them all.
const READ_MAX: u32 = 200;

/// Default number of sessions.
const SESSIONS_DEFAULT: u32 = 50;

/// Arguments of `send_message`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SendMessage {
    pub(super) session: String,
    pub(super) text: String,
    pub(super) wait_ms: Option<u64>,
    #[serde(default)]
    pub(super) stop_on_cancel: bool,
    pub(super) idempotency_key: Option<String>,
}

/// Arguments of `run_status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunStatus {
    run_id: String,
    pub(super) wait_ms: Option<u64>,
}

/// Arguments of `stop_run`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopRun {
    run_id: String,
}

/// Arguments of `list_sessions`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListSessions {
    limit: Option<u32>,
}

/// Arguments of `read_conversation`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadConversation {
    session: String,
    limit: Option<u32>,
}

impl RunStatus {
    pub(super) fn run(&self) -> Result<RunId, CallFailure> {
        run_of(&self.run_id)
    }
}

impl StopRun {
    pub(super) fn run(&self) -> Result<RunId, CallFailure> {
        run_of(&self.run_id)
    }
}

impl ListSessions {
    pub(super) fn limit(&self) -> Result<u32, CallFailure> {
        within(self.limit, SESSIONS_DEFAULT, LIST_MAX)
    }
}

impl ReadConversation {
    pub(super) fn session(&self) -> Result<SessionKey, CallFailure> {
        SessionKey::parse(&self.session).map_err(|why| CallFailure::wrong(format!("session: {why}")))
    }

    pub(super) fn limit(&self) -> Result<u32, CallFailure> {
        within(self.limit, READ_DEFAULT, READ_MAX)
    }
}

fn run_of(text: &str) -> Result<RunId, CallFailure> {
    let what = "run_id: must be the id that send_message answered with, a UUID";
    text.parse().map_err(|_not_a_uuid| CallFailure::wrong(what))
}

fn within(limit: Option<u32>, default: u32, most: u32) -> Result<u32, CallFailure> {
    match limit.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        limit => Err(CallFailure::wrong(format!("limit: must be 1 to {most}, not {limit}"))),
    }
}

/// Parses the arguments of a call.
///
/// # Errors
/// The path and the problem.
pub(super) fn arguments<T: DeserializeOwned>(given: Option<JsonObject>) -> Result<T, CallFailure> {
    serde_path_to_error::deserialize(Value::Object(given.unwrap_or_default())).map_err(|error| {
        let place = error.path().to_string();
        let what = error.inner();
        CallFailure::wrong(if place == "." { what.to_string() } else { format!("{place}: {what}") })
    })
}

/// The tools, in display order. `max_wait_ms` bounds the waits.
pub(super) fn catalogue(max_wait_ms: u64) -> Vec<Tool> {
    let run_id = json!({ "type": "string", "format": "uuid", "description": "The run, as send_message named it." });
    let session = json!({
        "type": "string", "minLength": 1,
        "description": "The conversation. A new name starts a new one; list_sessions lists the existing ones.",
    });
    let wait = |what: &str| json!({ "type": "integer", "minimum": 0, "maximum": max_wait_ms, "description": what });
    let limit =
        |default: u32, most: u32| json!({ "type": "integer", "minimum": 1, "maximum": most, "default": default });
    vec![
        tool(
            "send_message",
            "Sends a message to the agent. A run answers it in the background: with wait_ms the answer is returned as \
             `reply`, otherwise ask run_status for it. Messages to one session are answered one after another.",
            json!({
                "session": session,
                "text": { "type": "string", "minLength": 1, "description": "The request or the question." },
                "wait_ms": wait("How long to wait for the answer, in milliseconds. Without it the call returns at once."),
                "stop_on_cancel": {
                    "type": "boolean", "default": false,
                    "description": "Whether cancelling this call while it waits also stops the run that it started.",
                },
                "idempotency_key": {
                    "type": "string", "minLength": 1, "maxLength": 256,
                    "description": "A message that is sent again with the same key and text is accepted only once.",
                },
            }),
            &["session", "text"],
            Effect::Acts,
        ),
        tool(
            "run_status",
            "Returns the state of a run: its status, and its `reply` once there is one.",
            json!({ "run_id": run_id, "wait_ms": wait("How long to wait for its end, in milliseconds.") }),
            &["run_id"],
            Effect::Reads,
        ),
        tool(
            "stop_run",
            "Stops a run now, together with every program that it has started. Completed effects are not undone.",
            json!({ "run_id": run_id }),
            &["run_id"],
            Effect::Stops,
        ),
        tool(
            "list_sessions",
            "Lists conversations, the most recently used first.",
            json!({ "limit": limit(SESSIONS_DEFAULT, LIST_MAX) }),
            &[],
            Effect::Reads,
        ),
        tool(
            "read_conversation",
            "Returns the latest messages of a conversation, oldest first.",
            json!({ "session": session, "limit": limit(READ_DEFAULT, READ_MAX) }),
            &["session"],
            Effect::Reads,
        ),
    ]
}

/// The effect of a tool, for the annotations that clients show.
enum Effect {
    Reads,
    Acts,
    Stops,
}

fn tool(name: &'static str, description: &'static str, properties: Value, required: &[&str], effect: Effect) -> Tool {
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let schema = match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(), // it is always an object
    };
    let (reads, destroys, repeats, open) = match effect {
        Effect::Reads => (true, false, true, false),
        // The agent may do anything for the message.
        Effect::Acts => (false, true, false, true),
        Effect::Stops => (false, true, true, false),
    };
    let hints = ToolAnnotations::from_raw(None, Some(reads), Some(destroys), Some(repeats), Some(open));
    Tool::new(name, description, Arc::new(schema)).with_annotations(hints)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_schema_is_closed_and_requires_only_what_it_describes() {
        for tool in catalogue(600_000) {
            let schema = Value::Object((*tool.input_schema).clone());
            assert_eq!(schema["additionalProperties"], json!(false), "{}", tool.name);
            for required in schema["required"].as_array().unwrap() {
                assert!(schema["properties"].get(required.as_str().unwrap()).is_some(), "{}: {required}", tool.name);
            }
        }
    }

    #[test]
    fn arguments_that_do_not_fit_say_what_is_wrong_and_where() {
        let told = |given: Value| match given {
            Value::Object(given) => arguments::<SendMessage>(Some(given)).map(|_| ()).map_err(|told| told.text()),
            _ => panic!("an object"),
        };
        assert_eq!(told(json!({ "session": "s", "text": "t", "wait_ms": 5, "stop_on_cancel": true })), Ok(()));
        for (given, part) in [
            (json!({}), "missing field `session`"),
            (json!({ "session": "s" }), "missing field `text`"),
            (json!({ "session": 7, "text": "t" }), "session: invalid type"),
            (json!({ "session": "s", "text": "t", "wait_ms": -1 }), "wait_ms: invalid value"),
            (json!({ "session": "s", "text": "t", "wait": 1 }), "unknown field `wait`"),
            (json!({ "session": "s", "text": "t", "stop_on_cancel": "yes" }), "stop_on_cancel: invalid type"),
        ] {
            let text = told(given).unwrap_err();
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
