//! Imports SWE-agent's `.traj` files.
//!
//! Source: SWE-agent, "Output files": `trajectory`, a list of steps with `action`, `observation`, `thought`,
//! `response`; and `history`, the messages that the model saw. The steps are used if there are any. An action is a
//! command line: its first word becomes the tool, and the whole line the argument `command`.

use serde_json::{Value, json};

use super::content::{field, text_of, text_or_json};
use super::recorder::Recorder;
use super::{InvalidItem, parts};
use crate::event::CallArguments;

/// Whether a file has this format.
pub(super) fn is_typical(file: &Value) -> bool {
    ["trajectory", "history"].iter().any(|key| file.get(*key).is_some_and(Value::is_array))
}

/// Imports one file.
pub(super) fn read(file: &Value) -> Result<Recorder, InvalidItem> {
    let list = |name: &str| file.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut recorder = Recorder::default();
    let history = list("history");
    match list("trajectory") {
        [] => from_history(&mut recorder, history),
        steps => {
            if let Some(request) = request(history) {
                recorder.user(request);
            }
            for (index, step) in steps.iter().enumerate() {
                if !step.is_object() {
                    return Err(InvalidItem {
                        index,
                        item_kind: "step",
                        what: "must be an object with `action`".into(),
                    });
                }
                take_step(&mut recorder, step);
            }
        }
    }
    Ok(recorder)
}

fn take_step(recorder: &mut Recorder, step: &Value) {
    recorder.turn();
    let action = action(recorder, step);
    let thought = match field(step, "thought") {
        "" if action.is_empty() => field(step, "response"),
        thought => thought,
    };
    recorder.assistant(thought.to_owned(), !action.is_empty());
    if !action.is_empty() {
        act(recorder, action);
        recorder.result(None, None, None, text_or_json(step.get("observation")));
    }
}

/// The command of a step or of a message. One that is no text is counted as skipped.
fn action<'a>(recorder: &mut Recorder, of: &'a Value) -> &'a str {
    if of.get("action").is_some_and(|action| !action.is_string() && !action.is_null()) {
        recorder.skip("action that is no text");
    }
    field(of, "action").trim()
}

fn act(recorder: &mut Recorder, action: &str) {
    let tool = action.split_whitespace().next().unwrap_or("unknown").to_owned();
    recorder.call(None, tool, CallArguments::parse(&json!({ "command": action }).to_string()));
}

/// The request of the person: the last user message before the model begins, without demonstrations.
fn request(history: &[Value]) -> Option<String> {
    let before = history.iter().take_while(|message| field(message, "role") != "assistant" || is_demo(message));
    let asked = before.filter(|message| field(message, "role") == "user" && !is_demo(message));
    asked.last().map(|message| text_of(message.get("content")))
}

fn is_demo(message: &Value) -> bool {
    message.get("is_demo").and_then(Value::as_bool).unwrap_or(false)
}

/// Imports only messages: the message after an action is its observation, whatever its role is.
fn from_history(recorder: &mut Recorder, history: &[Value]) {
    let mut acted = false;
    for message in history.iter().filter(|message| !is_demo(message)) {
        let content = message.get("content");
        match field(message, "role") {
            "assistant" => {
                recorder.turn();
                let action = action(recorder, message);
                let thought = match action {
                    "" => parts::text_alone(recorder, content),
                    _ => field(message, "thought").to_owned(),
                };
                acted = !action.is_empty();
                recorder.assistant(thought, acted);
                if acted {
                    act(recorder, action);
                }
            }
            "user" | "tool" if acted => {
                recorder.result(None, None, None, text_or_json(content));
                acted = false;
            }
            "user" => {
                let text = parts::text_alone(recorder, content);
                recorder.user(text);
            }
            _ => {}
        }
    }
}
