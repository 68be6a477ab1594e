//! Records spans in the order of their beginnings.

use std::collections::HashMap;

use serde_json::Value;

use super::messages::{Messages, parsed, record, role, written};
use super::span::{Event, Span};
use crate::event::CallArguments;
use crate::import::content::text_or_json;
use crate::import::recorder::Recorder;
use crate::import::tape::Tape;

/// Most parents that are followed. A longer chain, or a circle, belongs to no agent.
const DEPTH: usize = 64;

/// Records all spans.
pub(super) fn replay(mut spans: Vec<Span>, logs: Vec<(String, String, Event)>, tape: &mut Tape) {
    let mut of_span: HashMap<(String, String), Vec<Event>> = HashMap::new();
    for (trace, span, event) in logs {
        of_span.entry((trace, span)).or_default().push(event);
    }
    let keys: Vec<_> = spans.iter().map(|span| (span.trace.clone(), span.id.clone())).collect();
    let runs = runs(&spans);
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by(|a, b| spans[*a].begin.cmp(&spans[*b].begin));
    let mut begun: HashMap<String, bool> = HashMap::new();
    for at in order {
        tape.next();
        let (key, name) = &runs[at];
        let logs = of_span.remove(&keys[at]).unwrap_or_default();
        let span = &mut spans[at];
        if span.is_model_call() {
            let is_first = !begun.insert(key.clone(), true).unwrap_or(false);
            model_call(tape.run(key, || name.clone()), &Messages::of(span, &logs), span, is_first);
        } else if span.operation() == "execute_tool" || span.attributes.contains_key("gen_ai.tool.name") {
            tool_call(tape.run(key, || name.clone()), span);
        } else {
            tape.skip(&format!("span {}", span.operation()));
        }
    }
    for _ in of_span {
        tape.skip("log without its span");
    }
}

/// The run of each span, and its name: the conversation or the trace, or the agent that another agent has called.
fn runs(spans: &[Span]) -> Vec<(String, String)> {
    let by_id: HashMap<_, _> = spans.iter().map(|span| ((&span.trace, &span.id), span)).collect();
    let mut conversations: HashMap<&str, &str> = HashMap::new();
    for span in spans.iter().filter(|span| !span.word("gen_ai.conversation.id").is_empty()) {
        conversations.entry(&span.trace).or_insert(span.word("gen_ai.conversation.id"));
    }
    let of = |span: &Span| {
        let parent = |span: &&Span| by_id.get(&(&span.trace, &span.parent)).copied();
        let above = std::iter::successors(by_id.get(&(&span.trace, &span.id)).copied(), parent).take(DEPTH);
        let agents: Vec<&Span> = above.filter(|above| above.operation() == "invoke_agent").collect();
        match agents.as_slice() {
            [nearest, _, ..] => (nearest.id.clone(), format!("agent {}", nearest.word("gen_ai.agent.name"))),
            _ => (
                conversations.get(span.trace.as_str()).map_or_else(|| span.trace.clone(), |id| (*id).to_owned()),
                String::new(),
            ),
        }
    };
    spans.iter().map(of).collect()
}

/// Records a model call. Its input repeats the conversation: what stands behind the last answer in it is new.
fn model_call(recorder: &mut Recorder, messages: &Messages, span: &Span, is_first: bool) {
    let is_answer = |message: &Value| matches!(role(message), "assistant" | "model");
    let known = messages.input.iter().rposition(is_answer).map_or(0, |at| at + 1);
    let mut before_answer = false;
    for message in &messages.input[if is_first { 0 } else { known }..] {
        if is_answer(message) && !before_answer {
            recorder.turn();
        }
        before_answer = is_answer(message);
        record(recorder, message);
    }
    recorder.turn();
    let tokens = |names: [&str; 2]| names.iter().find_map(|name| span.attributes.get(*name)?.as_u64()).unwrap_or(0);
    recorder.usage(
        tokens(["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"]),
        tokens(["gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"]),
    );
    // Of several choices only the first goes on.
    if let Some(answer) = messages.output.first() {
        record(recorder, &with_role(answer));
    } else if span.failed {
        recorder.thought(format!("the model call failed: {}", span.word("error.type")));
    }
}

fn with_role(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(object) = answer.as_object_mut() {
        object.insert("role".into(), "assistant".into());
    }
    answer
}

/// Records a call of a tool, unless the model call before it has recorded it, and its result.
fn tool_call(recorder: &mut Recorder, span: &Span) {
    let name = match span.word("gen_ai.tool.name") {
        "" => span.name.strip_prefix("execute_tool ").unwrap_or("unknown"),
        name => name,
    };
    let id = Some(span.word("gen_ai.tool.call.id")).filter(|id| !id.is_empty());
    if !recorder.awaits(id, Some(name)) {
        let args = span.attributes.get("gen_ai.tool.call.arguments").map(written).unwrap_or_default();
        recorder.call(id.map(str::to_owned), name.to_owned(), CallArguments::parse(&args));
    }
    let result = span.attributes.get("gen_ai.tool.call.result").map(parsed);
    match result {
        None if !span.failed => recorder.result(id, Some(name), Some(true), String::new()),
        None => recorder.result(id, Some(name), Some(false), span.word("error.type").to_owned()),
        Some(result) => recorder.result(id, Some(name), span.failed.then_some(false), text_or_json(Some(&result))),
    }
}
