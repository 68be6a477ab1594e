//! `/v1/embeddings`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_protocol::{Embedder, EmbeddingError};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::harness::{Harness, PATIENCE};

const PATH: &str = "/v1/embeddings";

/// Makes of each text its length and a half; fails at `broken`.
struct Lengths;

#[async_trait::async_trait]
impl Embedder for Lengths {
    fn model(&self) -> &str {
        "small/2"
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        assert!(texts.len() <= 64, "{}", texts.len());
        match texts.iter().any(|text| text == "broken") {
            true => Err(EmbeddingError(format!("HTTP 503: {}\u{7}", "x".repeat(1000)))),
            false => Ok(texts.iter().map(|text| vec![text.len() as f32, 0.5]).collect()),
        }
    }
}

async fn configured() -> Harness {
    Harness::with(|parts| parts.models.embedder = Some(Arc::new(Lengths))).await
}

#[tokio::test]
async fn texts_become_vectors_in_their_order_as_numbers_or_in_base64() {
    let harness = configured().await;
    let (status, answer) = harness.post(PATH, json!({"input": "hello", "model": "small"})).await;
    let data = json!([{"object": "embedding", "index": 0, "embedding": [5.0, 0.5]}]);
    let usage = json!({"prompt_tokens": 2, "total_tokens": 2});
    assert_eq!((status, answer), (200, json!({"object": "list", "data": data, "model": "small", "usage": usage})));

    // The packages of OpenAI ask for base64 unless they are told.
    let body = json!({"input": ["a", "bb"], "model": "belay", "encoding_format": "base64", "dimensions": 2});
    let (_, answer) = harness.post(PATH, body).await;
    let vector = |at: usize| {
        let bytes = STANDARD.decode(answer["data"][at]["embedding"].as_str().unwrap()).unwrap();
        bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!((vector(0), vector(1)), (vec![1.0, 0.5], vec![2.0, 0.5]), "{answer}");

    let many: Vec<String> = (0..200).map(|n| "x".repeat(n + 1)).collect();
    let (_, answer) = harness.post(PATH, json!({"input": many, "encoding_format": null})).await;
    let last = &answer["data"][199];
    assert_eq!((&last["index"], &last["embedding"][0]), (&json!(199), &json!(200.0)));
}

#[tokio::test]
async fn what_cannot_be_made_is_refused_by_name() {
    let harness = configured().await;
    for (body, status, param) in [
        (json!({}), 400, json!("input")),
        (json!({"input": []}), 400, json!("input")),
        (json!({"input": ["a", ""]}), 400, json!("input")),
        (json!({"input": [1, 2, 3]}), 400, json!("input")),
        (json!({"input": vec!["a"; 2049]}), 400, json!("input")),
        (json!({"input": "a", "encoding_format": "hex"}), 400, json!("encoding_format")),
        (json!({"input": "a", "dimensions": 256}), 400, json!("dimensions")),
        (json!({"input": "a", "model": "large"}), 404, json!("model")),
        (json!({"input": "broken"}), 502, Value::Null),
    ] {
        let (found, answer) = harness.post(PATH, body.clone()).await;
        assert_eq!((found, &answer["error"]["param"]), (status, &param), "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.len() < 300 && !message.contains('\u{7}'), "{message}");
    }
    let (status, answer) = Harness::open().await.post(PATH, json!({"input": "a"})).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 404 && message.contains("memory.embeddings.base_url"), "{answer}");
}

/// Answers when it is told to.
struct Waiting {
    asked: Semaphore,
    gate: Semaphore,
}

#[async_trait::async_trait]
impl Embedder for Waiting {
    fn model(&self) -> &str {
        "small"
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        self.asked.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
        Ok(vec![vec![0.5]; texts.len()])
    }
}

#[tokio::test]
async fn a_fifth_request_at_once_is_to_be_sent_again_later() {
    let embedder = Arc::new(Waiting { asked: Semaphore::new(0), gate: Semaphore::new(0) });
    let harness = Harness::with(|parts| parts.models.embedder = Some(embedder.clone())).await;
    let send = || harness.client.post(harness.url(PATH)).json(&json!({"input": "a"})).send();
    let open: Vec<_> = (0..4).map(|_| tokio::spawn(send())).collect();
    tokio::time::timeout(PATIENCE, embedder.asked.acquire_many(4)).await.unwrap().unwrap().forget();
    let refused = send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "busy", "{body}");
    embedder.gate.add_permits(5);
    for request in open {
        assert_eq!(request.await.unwrap().unwrap().status().as_u16(), 200);
    }
    assert_eq!(send().await.unwrap().status().as_u16(), 200);
}

#[tokio::test]
async fn a_freeze_ends_a_request_before_its_next_texts() {
    let harness = configured().await;
    for (thawed, texts, status) in [(0, 1, 503), (1, 64, 200), (1, 65, 503), (2, 65, 200)] {
        harness.agent.thawed_checks.store(thawed, Ordering::SeqCst);
        let (found, answer) = harness.post(PATH, json!({"input": vec!["a"; texts]})).await;
        assert_eq!(found, status, "{thawed} {texts}: {answer}");
        let code = if status == 503 { json!("frozen") } else { Value::Null };
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
}
