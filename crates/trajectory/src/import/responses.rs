//! Reads items in the format of OpenAI's Responses API.
//!
//! Source: OpenAI, API reference, "Responses": `message`, `reasoning`, `…_call` and `…_call_output` with `call_id`;
//! hosted tools have their result in the call. Items do not say which of them one model call gave: a model call begins
//! with the first item of the model behind one that is not of the model.

use belay_agent_loop::policies::CallOutcome;
use serde_json::{Value, json};

use super::command_output::output_of;
use super::content::{field, list, text_of, text_or_json};
use super::parts::text_alone;
use super::recorder::Recorder;
use crate::event::CallArguments;

/// The beginning of Codex' result for a tool that does not exist.
const NO_TOOL: &str = "unsupported call: ";

/// Whether a value is an item that only this format has.
pub(super) fn is_typical(item: &Value) -> bool {
    let kind = field(item, "type");
    let is_call = kind.ends_with("_call") || kind.ends_with("_call_output");
    (is_call && (item.get("call_id").is_some() || item.get("id").is_some()) && item.get("function").is_none())
        || (kind == "reasoning" && item.get("summary").is_some())
        || (field(item, "object") == "response" && item.get("output").is_some_and(Value::is_array))
        || list(item, "content").iter().any(|part| matches!(field(part, "type"), "input_text" | "output_text"))
}

/// Records items one after the other.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Whether the newest item is of the model.
    in_answer: bool,
}

impl Items {
    /// Records an item.
    ///
    /// # Errors
    /// The kind of an item that has no event.
    pub(super) fn item(&mut self, recorder: &mut Recorder, item: &Value) -> Result<(), String> {
        let kind = field(item, "type");
        match (kind, field(item, "role")) {
            ("message" | "", "user") => {
                self.in_answer = false;
                let text = text_alone(recorder, item.get("content"));
                if is_of_program(&text) { recorder.thought(text) } else { recorder.user(text) }
            }
            ("message" | "", "assistant") => {
                self.answer(recorder);
                let text = text_alone(recorder, item.get("content"));
                recorder.assistant(text, false);
            }
            ("message" | "", "system" | "developer") => return Err("developer message".into()),
            ("reasoning", _) => {
                self.answer(recorder);
                let texts = [text_of(item.get("summary")), text_of(item.get("content"))];
                recorder.thought(texts.iter().find(|text| !text.is_empty()).cloned().unwrap_or_default());
            }
            ("compaction" | "compaction_summary" | "context_compaction", _) => recorder.compacted(0, 0),
            _ if kind.ends_with("_output") => {
                self.in_answer = false;
                output(recorder, item);
            }
            _ if kind.ends_with("_call") => {
                self.answer(recorder);
                call(recorder, item, kind);
            }
            ("", role) if !role.is_empty() => return Err(format!("there is no role `{role}`")),
            _ => return Err(kind.to_owned()),
        }
        Ok(())
    }

    /// An item of the model: perhaps the first of a model call.
    fn answer(&mut self, recorder: &mut Recorder) {
        if !std::mem::replace(&mut self.in_answer, true) {
            recorder.turn();
        }
    }
}

/// Whether a text in the role of the person is one of the program: a tag around everything, or project notes.
fn is_of_program(text: &str) -> bool {
    let text = text.trim();
    let tag = text.strip_prefix('<').and_then(|rest| rest.split_once('>')).map(|(tag, _)| tag);
    let is_tag = |tag: &str| !tag.is_empty() && tag.chars().all(|c| c.is_ascii_lowercase() || "_- ".contains(c));
    tag.is_some_and(|tag| is_tag(tag) && text.ends_with(&format!("</{tag}>")))
        || text.starts_with("# AGENTS.md instructions")
}

fn call(recorder: &mut Recorder, item: &Value, kind: &str) {
    let name = match field(item, "name") {
        "" => kind.trim_end_matches("_call"),
        name => name,
    };
    let args = match (item.get("arguments"), item.get("input"), item.get("action")) {
        (Some(Value::String(written)), ..) => CallArguments::parse(written),
        (_, Some(Value::String(text)), _) => CallArguments::parse(&json!({ "input": text }).to_string()),
        (Some(object), ..) | (_, Some(object), _) | (.., Some(object)) => CallArguments::parse(&object.to_string()),
        _ => CallArguments::parse(&query_of(item).to_string()),
    };
    let id = ["call_id", "id"].iter().map(|key| field(item, key)).find(|id| !id.is_empty());
    recorder.call(id.map(str::to_owned), name.to_owned(), args);
    // A hosted tool has its result in the same item.
    let error = item.get("error").filter(|error| !error.is_null());
    let given = ["output", "results", "outputs", "result"].iter().find_map(|key| item.get(*key));
    if error.is_some() || given.is_some() || item.get("call_id").is_none() {
        let ok = error.is_none() && field(item, "status") != "failed";
        recorder.result(id, None, Some(ok), text_or_json(error.or(given)));
    }
}

/// The request to a hosted tool.
fn query_of(item: &Value) -> Value {
    let keys = ["queries", "query", "code", "operation"];
    keys.iter().find_map(|key| item.get(*key).map(|value| json!({ *key: value }))).unwrap_or_else(|| json!({}))
}

fn output(recorder: &mut Recorder, item: &Value) {
    let (ok, text) = match item.get("output") {
        Some(Value::String(text)) => output_of(text),
        // Older rollouts: a text beside a flag.
        Some(object @ Value::Object(_)) if object.get("success").is_some() => {
            (object["success"].as_bool(), text_or_json(object.get("content")))
        }
        other => (None, text_or_json(other)),
    };
    let ok = ok.or_else(|| (field(item, "status") == "failed").then_some(false));
    let id = item.get("call_id").and_then(Value::as_str);
    if text.starts_with(NO_TOOL) {
        return recorder.result_with_outcome(id, None, CallOutcome::UnknownTool, text);
    }
    recorder.result(id, None, ok, text);
}
