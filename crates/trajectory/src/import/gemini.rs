//! Reads sessions and checkpoints of Gemini CLI, and contents of the Gemini API.
//!
//! Seen in files of version 0.61.0 on 2026-11-29: `~/.gemini/tmp/PROJECT/chats/session-….jsonl`, records with `id` and
//! `type`. A message is written again, with the same id, when its calls have their results: the last one counts. The
//! results come once more in a message of the type `user`. A failed command has the status `success`, and its exit code
//! stands only in the text. Older versions wrote one document, `session-….json`; `/chat save` writes a checkpoint, a list
//! of contents with `role` and `parts`.

use std::collections::HashSet;

use belay_agent_loop::policies::CallOutcome;
use serde_json::Value;

use super::Reads;
use super::content::{field, list, number, part_text, text_of, text_or_json};
use super::parts::{kind_of, text_alone};
use super::recorder::Recorder;
use super::tape::Tape;
use crate::event::{CallArguments, looks_failed};

/// Whether a value is a session, a record or a content.
pub(super) fn is_typical(value: &Value) -> bool {
    (value.get("sessionId").is_some() && value.get("projectHash").is_some())
        || (field(value, "type") == "gemini" && !field(value, "id").is_empty())
        || value.get("$set").is_some_and(Value::is_object)
        || is_content(value)
        || ["history", "contents"].iter().any(|key| list(value, key).iter().any(is_content))
}

fn is_content(value: &Value) -> bool {
    matches!(field(value, "role"), "user" | "model" | "function")
        && value.get("parts").is_some_and(Value::is_array)
        && list(value, "parts").iter().all(|part| part.get("type").is_none()) // those of other formats have a type
}

/// Reads the records of one file.
#[derive(Default)]
pub(super) struct Gemini {
    /// The newest message, until it is clear that it is not written again.
    held: Option<Value>,
    seen: HashSet<String>,
    in_answer: bool,
}

impl Gemini {
    fn take(&mut self, record: &Value, tape: &mut Tape) {
        let id = field(record, "id");
        if !id.is_empty() && self.held.as_ref().is_some_and(|held| field(held, "id") == id) {
            self.held = Some(record.clone());
            return tape.skip("message written again");
        }
        self.release(tape);
        if !id.is_empty() && !self.seen.insert(id.to_owned()) {
            return tape.skip("message written again");
        }
        self.held = Some(record.clone());
    }

    fn release(&mut self, tape: &mut Tape) {
        let Some(message) = self.held.take() else { return };
        match field(&message, "type") {
            "user" => parts(tape.run("", String::new), &message["content"], "user"),
            "gemini" => answer(tape.run("", String::new), &message),
            kind => tape.skip(kind),
        }
    }

    fn content(&mut self, content: &Value, tape: &mut Tape) {
        let is_model = field(content, "role") == "model";
        let recorder = tape.run("", String::new);
        if is_model && !std::mem::replace(&mut self.in_answer, is_model) {
            recorder.turn();
        }
        self.in_answer = is_model;
        parts(recorder, &content["parts"], field(content, "role"));
    }
}

impl Reads for Gemini {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        let inner = ["messages", "history", "contents"].iter().find_map(|key| record.get(*key)?.as_array());
        match (record, inner) {
            (Value::Array(records), _) | (_, Some(records)) => {
                records.iter().for_each(|record| self.record(record, tape));
                self.release(tape);
            }
            _ if is_content(record) => self.content(record, tape),
            _ if record.get("type").is_some() => self.take(record, tape),
            _ if record.get("$rewindTo").is_some() => {
                self.release(tape);
                tape.run("", String::new).rewound();
                tape.skip("$rewindTo");
            }
            _ => {
                let kind = record.as_object().and_then(|object| object.keys().find(|key| key.starts_with('$')));
                tape.skip(kind.map_or("session head", String::as_str));
            }
        }
    }

    fn end(&mut self, tape: &mut Tape) {
        self.release(tape);
    }
}

/// Records a message of the type `gemini`.
fn answer(recorder: &mut Recorder, message: &Value) {
    recorder.turn();
    let tokens = &message["tokens"];
    recorder.usage(number(tokens, "input"), number(tokens, "output").saturating_add(number(tokens, "thoughts")));
    for thought in list(message, "thoughts") {
        recorder.thought([field(thought, "subject"), field(thought, "description")].join("\n").trim().to_owned());
    }
    let calls = list(message, "toolCalls");
    let text = text_alone(recorder, message.get("content"));
    recorder.assistant(text, !calls.is_empty());
    for call in calls {
        let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
        let args = call.get("args").map_or_else(String::new, Value::to_string);
        recorder.call(id, field(call, "name").to_owned(), CallArguments::parse(&args));
    }
    for call in calls {
        let responses = list(call, "result").iter().filter_map(|part| part.get("functionResponse")?.get("response"));
        let text = responses.map(response_text).collect::<Vec<_>>().join("\n");
        let text = if text.is_empty() { text_of(call.get("resultDisplay")) } else { text };
        let id = call.get("id").and_then(Value::as_str);
        match field(call, "status") {
            "cancelled" => recorder.result_with_outcome(id, None, CallOutcome::NotExecuted, text),
            "success" | "error" => result(recorder, id, None, field(call, "status") == "error", &text),
            _ => {} // it had not ended
        }
    }
}

/// Records the parts of a message of the person, or of a content.
fn parts(recorder: &mut Recorder, content: &Value, role: &str) {
    let single = [content.clone()];
    let parts = content.as_array().map_or(&single[..], Vec::as_slice);
    let is_thought = |part: &Value| part.get("thought").and_then(Value::as_bool) == Some(true);
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    for part in parts {
        let text = part.as_str().or_else(|| part.get("text")?.as_str());
        if let Some(response) = part.get("functionResponse") {
            let (id, name) = (response.get("id").and_then(Value::as_str), response.get("name").and_then(Value::as_str));
            // Without its call, it is the copy of a result that is recorded.
            if recorder.awaits(id, name) {
                let is_error = response.pointer("/response/error").is_some();
                result(recorder, id, name, is_error, &response_text(&response["response"]));
            }
        } else if let Some(call) = part.get("functionCall") {
            calls.push(call);
        } else if is_thought(part) {
            recorder.thought(text.unwrap_or_default().to_owned());
        } else {
            match part_text(part) {
                Some(text) => texts.push(text),
                None => recorder.skip(kind_of(part)),
            }
        }
    }
    // Thoughts alone are a piece of an answer.
    let is_answer = parts.is_empty() || !texts.is_empty() || recorder.has_skipped();
    let text = texts.join("\n");
    if role == "model" {
        if is_answer {
            recorder.assistant(text, !calls.is_empty());
        }
    } else if text.trim_start().starts_with("<session_context>") {
        recorder.thought(text);
    } else if !text.is_empty() {
        recorder.user(text);
    }
    for call in calls {
        let args = call.get("args").map_or_else(String::new, Value::to_string);
        let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
        recorder.call(id, field(call, "name").to_owned(), CallArguments::parse(&args));
    }
}

fn response_text(response: &Value) -> String {
    text_or_json(["error", "output", "content"].iter().find_map(|key| response.get(*key)).or(Some(response)))
}

/// Records a result. The result of a command has lines that differ in each call, and its exit code stands only there.
fn result(recorder: &mut Recorder, id: Option<&str>, name: Option<&str>, is_error: bool, text: &str) {
    let numbered = |line: &str| line.starts_with("Process Group PGID: ") || line.starts_with("Background PIDs: ");
    let code = text.lines().rev().find_map(|line| line.strip_prefix("Exit Code: "));
    let kept = match code {
        Some(_) => text.lines().filter(|line| !numbered(line)).collect::<Vec<_>>().join("\n"),
        None => text.to_owned(),
    };
    let failed = is_error || code.map_or_else(|| looks_failed(text), |code| !matches!(code.trim(), "0" | "(none)"));
    recorder.result(id, name, Some(!failed), kept);
}
