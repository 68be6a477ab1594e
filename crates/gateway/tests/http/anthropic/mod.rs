//! `/v1/messages`.

mod bad_input;
mod calls;
mod create;
mod errors;
mod streamed;

use serde_json::{Value, json};

use crate::harness::Harness;
use crate::responses::{last, seen, shown};

pub(crate) const PATH: &str = "/v1/messages";

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
