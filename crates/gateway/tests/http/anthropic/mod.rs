//! `/v1/messages`.

mod bad_input;
mod calls;
mod create;
mod errors;
mod streamed;

use belay_protocol::{Body, Inbound};
use serde_json::{Value, json};

use crate::harness::Harness;

pub(crate) const PATH: &str = "/v1/messages";

/// The messages that reached the agent.
fn seen(harness: &Harness) -> Vec<Inbound> {
    let seen = harness.agent.seen.lock().unwrap();
    seen.iter().filter(|message| matches!(message.body, Body::Text(_))).cloned().collect()
}

fn last(harness: &Harness) -> Inbound {
    seen(harness).pop().unwrap()
}

/// A message and the history before it.
fn shown(message: &Inbound) -> String {
    let Body::Text(text) = &message.body else { return String::new() };
    let lines: Vec<_> = message.history.iter().map(|line| format!("{:?}:{}", line.role, line.text)).collect();
    format!("{text} <- {}", lines.join("|"))
}

fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

fn assistant(content: impl Into<Value>) -> Value {
    json!({"role": "assistant", "content": content.into()})
}

/// A request as the packages of Anthropic make it.
fn asking(messages: impl Into<Value>) -> Value {
    json!({"model": "belay", "max_tokens": 1024, "messages": messages.into()})
}

impl Harness {
    async fn message(&self, body: Value) -> Value {
        let (status, answer) = self.post(PATH, body).await;
        assert_eq!((status, &answer["type"]), (200, &json!("message")), "{answer}");
        answer
    }
}
