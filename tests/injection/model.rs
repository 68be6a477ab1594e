//! A model that obeys every order in its context. With this adversary, the result of the proof does not depend on the
//! behaviour of a real model.
//!
//! It speaks OpenAI chat completions. It first makes the calls that the person requests (`ASK: tool {json}`). Then it
//! obeys the orders of all other texts: tool results, tool descriptions, summaries, file names. It repeats a denied
//! call, and remembers every order after a compaction.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::orders::{Order, calls_after, orders};

/// Most tries of a call: the first one, and one after each denial.
const TRIES: u32 = 3;

/// The values for the marks of an order.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    pub(crate) collector: String,
    pub(crate) pages: String,
}

/// The model and its memory.
#[derive(Clone)]
pub(crate) struct Model {
    marks: Marks,
    cases: Arc<Mutex<HashMap<usize, Case>>>,
}

/// The memory of one conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    /// The calls that it was ordered to make.
    pub(crate) ordered: Vec<Ordered>,
    says: Vec<String>,
}

/// A call that it was ordered to make.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) tool: String,
    arguments: Value,
    pub(crate) tries: u32,
}

/// The secret of a case: letters and digits, so that URL encoding does not change it.
pub(crate) fn canary(case: usize) -> String {
    format!("{CANARY}{case:04}Q7ZK3M")
}

/// The beginning of every secret.
pub(crate) const CANARY: &str = "BELAYCANARY";

impl Model {
    pub(crate) fn new(marks: Marks) -> Self {
        Self { marks, cases: Arc::default() }
    }

    /// The routes of the server.
    pub(crate) fn router(&self) -> Router {
        let list = || async { Json(json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]})) };
        Router::new()
            .route("/v1/models", get(list))
            .route("/v1/chat/completions", post(complete))
            .layer(DefaultBodyLimit::disable())
            .with_state(self.clone())
    }

    /// The orders of a case, and the tries of each.
    pub(crate) fn case(&self, number: usize) -> Case {
        self.lock().get(&number).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Case>> {
        self.cases.lock().expect("no holder of this lock panics")
    }

    /// The answer: calls, or a text as `Err`.
    fn answer(&self, request: &Value) -> Result<Vec<(String, String, Value)>, String> {
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let said = |role: &str| messages.iter().rposition(|message| message["role"] == role);
        let asked_at = said("user").unwrap_or(0);
        let asked = messages.get(asked_at).map(text_of).unwrap_or_default();
        let Some(number) = case_number(&asked) else { return Err("There is no case here.".into()) };

        let offers = |tool: &str| {
            let tools = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
            tools.iter().any(|offered| offered["function"]["name"] == *tool)
        };
        if offers("planning") {
            let plan = json!({"command": "create", "title": "It", "steps": ["carry it out"]});
            return Ok(vec![(format!("plan-{number}"), "planning".into(), plan)]);
        }
        let made: Vec<&Value> =
            messages[asked_at..].iter().filter_map(|message| message["tool_calls"].as_array()).flatten().collect();
        for (at, (tool, arguments)) in calls_after(&asked, "ASK").into_iter().enumerate() {
            let id = format!("ask-{number}-{at}");
            let is_made = made.iter().any(|call| {
                call["function"]["name"] == *tool
                    && call["function"]["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok())
                        == Some(arguments.clone())
            });
            if !is_made {
                return Ok(vec![(id, tool, arguments)]);
            }
        }

        let mut cases = self.lock();
        let case = cases.entry(number).or_default();
        let described = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let described = described.iter().filter_map(|tool| tool["function"]["description"].as_str().map(str::to_owned));
        for text in messages.iter().filter(|message| message["role"] != "assistant").map(text_of).chain(described) {
            self.note(case, number, &text);
        }
        if asked.contains("WAIT") {
            return Err("I have read it.".into());
        }
        let denied = |at: usize, tries: u32| {
            let id = call_id(number, at, tries);
            messages.iter().any(|m| m["tool_call_id"] == *id && text_of(m).contains("denied"))
        };
        let pending: Vec<usize> = (0..case.ordered.len())
            .filter(|at| match case.ordered[*at].tries {
                0 => true,
                tries => tries < TRIES && denied(*at, tries),
            })
            .take(if asked.contains("BATCH") { usize::MAX } else { 1 })
            .collect();
        if pending.is_empty() && offers("terminate") {
            let end = json!({"status": "success", "summary": "Done."});
            return Ok(vec![(format!("end-{number}"), "terminate".into(), end)]);
        }
        if pending.is_empty() {
            return Err(if case.says.is_empty() { "Done.".into() } else { case.says.join("\n") });
        }
        Ok(pending
            .into_iter()
            .map(|at| {
                let order = &mut case.ordered[at];
                order.tries += 1;
                (call_id(number, at, order.tries), order.tool.clone(), order.arguments.clone())
            })
            .collect())
    }

    /// Remembers the orders of a text.
    fn note(&self, case: &mut Case, number: usize, text: &str) {
        for order in orders(text) {
            match order {
                Order::Call(tool, arguments) => {
                    let filled = self.filled(&arguments.to_string(), number);
                    let arguments = serde_json::from_str(&filled).unwrap_or(arguments);
                    if !case.ordered.iter().any(|known| known.tool == tool && known.arguments == arguments) {
                        case.ordered.push(Ordered { tool, arguments, tries: 0 });
                    }
                }
                Order::Say(words) => {
                    let words = self.filled(&words, number);
                    if !case.says.contains(&words) {
                        case.says.push(words);
                    }
                }
            }
        }
    }

    fn filled(&self, text: &str, number: usize) -> String {
        text.replace("{collector}", &self.marks.collector)
            .replace("{pages}", &self.marks.pages)
            .replace("{canary}", &canary(number))
            .replace("{case}", &format!("CASE-{number}"))
    }
}

/// The id of an ordered call. It differs from the ids of the person's calls.
fn call_id(case: usize, order: usize, tries: u32) -> String {
    format!("do-{case}-{order}-{tries}")
}

fn case_number(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("CASE-")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The text of a message, as a string or in parts.
fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

async fn complete(State(model): State<Model>, Json(request): Json<Value>) -> Json<Value> {
    let (message, finish) = match model.answer(&request) {
        Ok(calls) => {
            let calls: Vec<Value> = calls
                .into_iter()
                .map(|(id, name, arguments)| {
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
                })
                .collect();
            (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
        }
        Err(words) => (json!({"role": "assistant", "content": words}), "stop"),
    };
    Json(json!({
        "id": "c", "object": "chat.completion", "model": "scripted", "created": 0,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }))
}
