//! `/v1/responses`.

mod answers;
mod bad_input;
mod calls;
mod checked;
mod continued;
mod create;
mod resumed;
mod stored;
mod streamed;

use belay_protocol::{Body, Inbound};
use serde_json::{Value, json};

use crate::harness::{Harness, read};
use crate::streams::events;

pub(crate) const PATH: &str = "/v1/responses";

/// The messages that reached the agent.
pub(crate) fn seen(harness: &Harness) -> Vec<Inbound> {
    let seen = harness.agent.seen.lock().unwrap();
    seen.iter().filter(|message| matches!(message.body, Body::Text(_))).cloned().collect()
}

pub(crate) fn last(harness: &Harness) -> Inbound {
    seen(harness).pop().unwrap()
}

/// A message and the history before it.
pub(crate) fn shown(message: &Inbound) -> String {
    let Body::Text(text) = &message.body else { return String::new() };
    let lines: Vec<_> = message.history.iter().map(|line| format!("{:?}:{}", line.role, line.text)).collect();
    format!("{text} <- {}", lines.join("|"))
}

impl Harness {
    /// A response to that text.
    async fn response(&self, input: &str) -> Value {
        self.response_to(json!({"input": input})).await
    }

    async fn response_to(&self, body: Value) -> Value {
        let (status, answer) = self.post(PATH, body).await;
        assert_eq!((status, &answer["object"]), (200, &json!("response")), "{answer}");
        answer
    }

    async fn show(&self, response: &Value) -> (u16, Value) {
        self.get(&path_of(response, "")).await
    }

    async fn remove(&self, response: &Value) -> (u16, Value) {
        read(self.client.delete(self.url(&path_of(response, "")))).await
    }
}

fn path_of(response: &Value, rest: &str) -> String {
    format!("{PATH}/{}{rest}", response["id"].as_str().unwrap())
}

/// The text of a response.
fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message");
    items.filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

/// The data of the events of a stream.
pub(crate) async fn data(response: reqwest::Response) -> Vec<Value> {
    assert_eq!(response.status().as_u16(), 200);
    let parse = |(_, name, data): (String, String, String)| {
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(data["type"], *name);
        data
    };
    events(response, usize::MAX).await.into_iter().map(parse).collect()
}

/// The names and numbers of events, without the beginning of each name.
fn brief(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event["type"].as_str().unwrap().trim_start_matches("response.").to_owned();
    events.iter().map(|event| format!("{} {}", event["sequence_number"], name(event))).collect()
}

/// The pieces of the text.
fn pieces(events: &[Value]) -> String {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}
