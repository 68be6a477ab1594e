//! Reads sessions of opencode.
//!
//! Seen in version 1.18.33 on 2026-11-29: `opencode export SESSION` prints `info` and `messages`, each with `info` and
//! `parts`; a call and its result are one part, and a failed command is `completed` with `metadata.exit`. `opencode run
//! --format json` prints one part a line. The sessions themselves are in a database.

use belay_agent_loop::policies::CallOutcome;
use serde_json::Value;

use super::Reads;
use super::content::{field, list, named, number};
use super::recorder::Recorder;
use super::tape::Tape;
use crate::event::CallArguments;

/// Whether a value is a session, a message or an event.
pub(super) fn is_typical(value: &Value) -> bool {
    is_message(value)
        || (value.get("info").is_some_and(Value::is_object) && list(value, "messages").iter().any(is_message))
        || (!field(value, "sessionID").is_empty() && value.get("part").is_some_and(Value::is_object))
}

fn is_message(value: &Value) -> bool {
    value.pointer("/info/role").is_some_and(Value::is_string) && value.get("parts").is_some_and(Value::is_array)
}

/// Reads sessions.
pub(super) struct Opencode;

impl Reads for Opencode {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        if is_message(record) {
            tape.next();
            let run = run_of(record.pointer("/info/sessionID"), tape);
            message(tape, &run, record);
        } else if let Some(part_of_event) = record.get("part") {
            let (run, mut results) = (run_of(record.get("sessionID"), tape), Vec::new());
            part(tape, &run, part_of_event, "assistant", &mut results);
            settle(tape.run(&run, String::new), &mut results);
        } else if let Some(records) = record.as_array().or_else(|| record.get("messages")?.as_array()) {
            records.iter().for_each(|record| self.record(record, tape));
        } else {
            tape.skip(field(record, "type"));
        }
    }
}

/// The run of a session. The first one has no name.
fn run_of(session: Option<&Value>, tape: &mut Tape) -> String {
    let key = session.and_then(Value::as_str).unwrap_or_default().to_owned();
    let before = tape.runs();
    tape.run(&key, || if before == 0 { String::new() } else { format!("session {key}") });
    key
}

type Results<'a> = Vec<(&'a Value, &'a Value)>;

fn message(tape: &mut Tape, run: &str, message: &Value) {
    let role = message.pointer("/info/role").and_then(Value::as_str).unwrap_or_default();
    let parts = list(message, "parts");
    let has_steps = parts.iter().any(|part| field(part, "type") == "step-start");
    if role == "assistant" && !has_steps {
        tape.run(run, String::new).turn();
    }
    let mut results = Vec::new();
    for one in parts {
        part(tape, run, one, role, &mut results);
    }
    settle(tape.run(run, String::new), &mut results);
    let error = message.pointer("/info/error/data/message").and_then(Value::as_str);
    tape.run(run, String::new).thought(error.unwrap_or_default().to_owned());
}

/// Records a part. The results of a step come behind all its calls.
fn part<'a>(tape: &mut Tape, run: &str, part: &'a Value, role: &str, results: &mut Results<'a>) {
    let recorder = tape.run(run, String::new);
    let text = field(part, "text").to_owned();
    match field(part, "type") {
        "text" if part.get("synthetic").and_then(Value::as_bool) == Some(true) => recorder.thought(text),
        "text" if role == "user" => recorder.user(text),
        "text" => recorder.assistant(text, false),
        "reasoning" => recorder.thought(text),
        "step-start" => {
            settle(recorder, results);
            recorder.turn();
        }
        "step-finish" => {
            settle(recorder, results);
            let tokens = &part["tokens"];
            recorder.usage(number(tokens, "input"), number(tokens, "output"));
        }
        "tool" => {
            let state = &part["state"];
            let args = state.get("input").map_or_else(String::new, Value::to_string);
            let id = part.get("callID").and_then(Value::as_str).map(str::to_owned);
            recorder.call(id, field(part, "tool").to_owned(), CallArguments::parse(&args));
            results.push((part, state));
        }
        "compaction" => recorder.compacted(0, 0),
        "file" if role == "user" => recorder.user_in_request(named(part).unwrap_or_default()),
        kind => tape.skip(kind),
    }
}

/// Records the results of the calls of a step.
fn settle(recorder: &mut Recorder, results: &mut Results<'_>) {
    for (part, state) in results.drain(..) {
        let id = part.get("callID").and_then(Value::as_str);
        let exit = state.pointer("/metadata/exit").and_then(Value::as_i64);
        match field(state, "status") {
            "completed" => {
                recorder.result(id, None, exit.map(|code| code == 0).or(Some(true)), field(state, "output").to_owned())
            }
            "error" if field(state, "error").contains("rejected permission") => {
                recorder.result_with_outcome(id, None, CallOutcome::Denied, field(state, "error").to_owned());
            }
            "error" => recorder.result(id, None, Some(false), field(state, "error").to_owned()),
            _ => {} // it had not ended
        }
    }
}
