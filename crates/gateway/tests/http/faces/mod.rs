//! The three faces for clients of other APIs: chat completions, responses and messages. What one promises, all do.

mod foreign;
mod refused;
mod results;
mod retried;
mod sessions;
mod used;

use serde_json::{Value, json};

use crate::harness::Harness;
use crate::streams::events;

/// An API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Face {
    Chat,
    Responses,
    Messages,
}

const FACES: [Face; 3] = [Face::Chat, Face::Responses, Face::Messages];

/// A whole answer, or what the events of a stream say together.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    text: String,
    /// The tokens of the input and of the output.
    used: (u64, u64),
}

impl Face {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// The field with the messages.
    fn list(self) -> &'static str {
        if self == Self::Responses { "input" } else { "messages" }
    }

    /// A request with a tool of the client.
    fn asking(self, text: &str) -> Value {
        let schema = json!({"type": "object"});
        let tool = match self {
            Self::Chat => json!({"type": "function", "function": {"name": "weather", "parameters": schema}}),
            Self::Responses => json!({"type": "function", "name": "weather", "parameters": schema}),
            Self::Messages => json!({"name": "weather", "input_schema": schema}),
        };
        let mut body = json!({"model": "belay", "max_tokens": 1024, "tools": [tool]});
        body[self.list()] = json!([{"role": "user", "content": text}]);
        body
    }

    /// The same as a stream.
    fn streamed(self, mut body: Value) -> Value {
        body["stream"] = json!(true);
        if self == Self::Chat {
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    /// The request with the answer to it, and a text for each of its calls. `said`: the words of the user around them.
    fn with_results(self, mut body: Value, answer: &Value, result: &str, said: (&str, &str)) -> Value {
        let user = |text: &str| (!text.is_empty()).then(|| json!({"role": "user", "content": text}));
        let list = body[self.list()].as_array_mut().unwrap();
        match self {
            Self::Chat => {
                let message = &answer["choices"][0]["message"];
                let calls = message["tool_calls"].as_array().unwrap().iter();
                let results = calls.map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
                let around = user(said.0).into_iter().chain(results).chain(user(said.1));
                list.extend([message.clone()].into_iter().chain(around));
            }
            Self::Responses => {
                let items = answer["output"].as_array().unwrap();
                let calls = items.iter().filter(|item| item["type"] == "function_call");
                let result = |call: &Value| json!({"type": "function_call_output", "call_id": call["call_id"], "output": result});
                let around = user(said.0).into_iter().chain(calls.map(result)).chain(user(said.1));
                list.extend(items.iter().cloned().chain(around));
            }
            Self::Messages => {
                let content = answer["content"].as_array().unwrap();
                let calls = content.iter().filter(|block| block["type"] == "tool_use");
                let result =
                    |call: &Value| json!({"type": "tool_result", "tool_use_id": call["id"], "content": result});
                let text = |text: &str| (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
                let blocks: Vec<Value> =
                    text(said.0).into_iter().chain(calls.map(result)).chain(text(said.1)).collect();
                list.push(json!({"role": "assistant", "content": content}));
                list.push(json!({"role": "user", "content": blocks}));
            }
        }
        body
    }

    fn read(self, answer: &Value) -> Answer {
        let text = match self {
            Self::Chat => answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned(),
            Self::Responses => texts(&answer["output"], |item| &item["content"][0]["text"]),
            Self::Messages => texts(&answer["content"], |block| &block["text"]),
        };
        Answer { text, used: self.used(&answer["usage"]) }
    }

    fn used(self, usage: &Value) -> (u64, u64) {
        let names =
            if self == Self::Chat { ["prompt_tokens", "completion_tokens"] } else { ["input_tokens", "output_tokens"] };
        let [input, output] = names.map(|name| usage[name].as_u64().unwrap_or_else(|| panic!("{usage}")));
        (input, output)
    }

    /// The events of a stream.
    async fn read_stream(self, response: reqwest::Response) -> Answer {
        assert_eq!(response.status().as_u16(), 200);
        let (mut text, mut usage) = (String::new(), Value::Null);
        for (_, _, data) in events(response, usize::MAX).await {
            let Ok(event) = serde_json::from_str::<Value>(&data) else { continue };
            let piece = match self {
                Self::Chat => &event["choices"][0]["delta"]["content"],
                Self::Responses if event["type"] == "response.output_text.delta" => &event["delta"],
                Self::Responses => &Value::Null,
                Self::Messages => &event["delta"]["text"],
            };
            text.push_str(piece.as_str().unwrap_or_default());
            let used = [&event["usage"], &event["response"]["usage"]].into_iter().find(|used| used.is_object());
            usage = used.cloned().unwrap_or(usage);
        }
        Answer { text, used: self.used(&usage) }
    }

    async fn ask(self, harness: &Harness, body: Value) -> Value {
        let (status, answer) = harness.post(self.path(), body).await;
        assert_eq!(status, 200, "{self:?}: {answer}");
        answer
    }

    async fn open(self, harness: &Harness, body: Value) -> reqwest::Response {
        harness.client.post(harness.url(self.path())).json(&self.streamed(body)).send().await.unwrap()
    }
}

fn texts(parts: &Value, text: impl Fn(&Value) -> &Value) -> String {
    parts.as_array().unwrap().iter().filter_map(|part| text(part).as_str()).collect()
}

/// The run of an answer.
fn run_of(response: &reqwest::Response) -> belay_protocol::RunId {
    response.headers()["x-belay-run"].to_str().unwrap().parse().unwrap()
}
