//! The parts of a content list, in the spellings of several programs: texts, thoughts, calls and results.
//!
//! A program may write its sessions as messages of OpenAI or Anthropic and spell a part in another way: `toolCall` (pi),
//! `tool-call` (Vercel AI SDK), `{"toolUse":{…}}` (Bedrock), `tool_call` (LangChain). A part whose kind or shape is not
//! known is counted as skipped, so that its step is not taken for an empty reply.

mod part;

use belay_agent_loop::policies::CallOutcome;
use serde_json::Value;

use self::part::Part;
use super::content::{part_text, text_of};
use super::recorder::Recorder;

pub(super) use self::part::kind_of;

/// The beginnings of results that say that a person, or a rule of theirs, refused the call.
const REJECTED: &[&str] =
    &["The user doesn't want to proceed", "The user doesn't want to take this action", "Permission to use "];

/// The parts of a content. A text is one part, and an empty text is none.
fn of_content(content: Option<&Value>) -> Vec<Part<'_>> {
    match content {
        Some(Value::String(text)) if !text.is_empty() => vec![Part::Text(text.clone())],
        Some(Value::Array(parts)) => parts.iter().map(Part::of).collect(),
        Some(object @ Value::Object(_)) => vec![Part::of(object)],
        _ => Vec::new(),
    }
}

/// Whether a content holds the result of a call.
pub(super) fn holds_result(content: Option<&Value>) -> bool {
    of_content(content).iter().any(|part| matches!(part, Part::Result { .. }))
}

/// The text of a content that holds nothing but texts. Other parts are counted as skipped.
pub(super) fn text_alone(recorder: &mut Recorder, content: Option<&Value>) -> String {
    let parts = content.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter(|part| part_text(part).is_none()).for_each(|part| recorder.skip(kind_of(part)));
    text_of(content)
}

/// Records the content of an answer of the model. `glue`: between its texts. `calls_beside`: whether calls stand beside
/// the content, which the caller records next.
pub(super) fn answer(recorder: &mut Recorder, content: Option<&Value>, glue: &str, calls_beside: bool) {
    let parts = of_content(content);
    let mut texts = Vec::new();
    let (mut with_calls, mut only_texts) = (calls_beside, true);
    for part in &parts {
        only_texts &= matches!(part, Part::Text(_));
        match part {
            Part::Text(text) => texts.push(text.as_str()),
            Part::Thought(text) => recorder.thought(text.clone()),
            Part::Call { .. } => with_calls = true,
            Part::Unknown(kind) => recorder.skip(kind),
            Part::Result { .. } | Part::Compaction => {}
        }
    }
    let text = texts.join(glue);
    // Thoughts alone are a piece of an answer: session logs write each part on a line of its own.
    if only_texts || !text.is_empty() || recorder.has_skipped() {
        recorder.assistant(text, with_calls);
    }
    parts.into_iter().for_each(|part| act(recorder, part));
}

/// Records the content of a message in the role of the person: results of calls, and texts beside them. Returns whether
/// there was any part.
pub(super) fn user(recorder: &mut Recorder, content: Option<&Value>) -> bool {
    let (mut texts, mut is_empty) = (Vec::new(), true);
    for part in of_content(content) {
        is_empty = false;
        match part {
            Part::Text(text) => texts.push(text),
            Part::Thought(text) => recorder.thought(text),
            Part::Unknown(kind) => recorder.skip(kind),
            part => act(recorder, part),
        }
    }
    let text = texts.join("\n");
    if !text.is_empty() {
        recorder.user(text);
    }
    !is_empty
}

/// Records a call, a result or a compaction.
fn act(recorder: &mut Recorder, part: Part<'_>) {
    match part {
        Part::Call { id, name, args } => recorder.call(id.map(str::to_owned), name.to_owned(), args),
        Part::Result { id, name, ok, text } => {
            if ok == Some(false) && REJECTED.iter().any(|beginning| text.starts_with(beginning)) {
                return recorder.result_with_outcome(id, name, CallOutcome::Denied, text);
            }
            recorder.result(id, name, ok, text);
        }
        Part::Compaction => recorder.compacted(0, 0),
        Part::Text(_) | Part::Thought(_) | Part::Unknown(_) => {}
    }
}
