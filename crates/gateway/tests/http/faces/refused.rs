//! Streams that do not begin: what is known before the answer begins is a status, as without a stream.

use serde_json::Value;

use super::{FACES, Face};
use crate::harness::Harness;

async fn answered(harness: &Harness, face: Face, text: &str, key: Option<&str>, streams: bool) -> (u16, String, Value) {
    let body = if streams { face.streamed(face.asking(text)) } else { face.asking(text) };
    let mut request = harness.client.post(harness.url(face.path())).json(&body);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    let response = request.send().await.unwrap();
    let (status, kind) = (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap().to_owned());
    let mut answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default();
    answer["request_id"] = Value::Null; // each has its own
    (status, kind, answer)
}

#[tokio::test]
async fn a_refusal_is_a_status_before_a_stream() {
    let harness = Harness::open().await;
    for face in FACES {
        for (text, status) in
            [("busy", 429), ("conflict", 409), ("forbidden", 403), ("draining", 503), ("unstored", 503)]
        {
            let whole = answered(&harness, face, text, None, false).await;
            let streamed = answered(&harness, face, text, None, true).await;
            assert_eq!((whole.0, whole.1.as_str()), (status, "application/json"), "{face:?} {text}");
            if text != "conflict" {
                assert_eq!(streamed, whole, "{face:?} {text}"); // which names a run of its own
            }
            assert_eq!((streamed.0, streamed.1.as_str()), (status, "application/json"), "{face:?} {text}");
        }
    }
}

#[tokio::test]
async fn a_retry_of_a_stream_whose_run_has_failed_is_the_status_of_its_failure() {
    for face in FACES {
        let harness = Harness::open().await;
        let (status, kind, _) = answered(&harness, face, "fail provider_quota", Some("k-1"), true).await;
        assert_eq!((status, kind.as_str()), (200, "text/event-stream"), "{face:?}: the headers are sent at once");
        let again = answered(&harness, face, "fail provider_quota", Some("k-1"), true).await;
        assert_eq!((again.0, again.1.as_str()), (402, "application/json"), "{face:?}");
        assert_eq!(again, answered(&harness, face, "fail provider_quota", Some("k-2"), false).await, "{face:?}");
    }
}
