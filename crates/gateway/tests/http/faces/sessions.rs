//! Sessions that clients name.

use belay_protocol::{Body, Inbound};
use serde_json::{Value, json};

use super::FACES;
use crate::harness::{Harness, read};

/// The last text that reached the agent.
fn last(harness: &Harness) -> Inbound {
    let seen = harness.agent.seen.lock().unwrap();
    seen.iter().rev().find(|message| matches!(message.body, Body::Text(_))).unwrap().clone()
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

#[tokio::test]
async fn a_client_that_shows_all_leaves_its_session_when_it_goes_back_to_its_first_message() {
    for (face, in_metadata) in FACES.into_iter().flat_map(|face| [(face, true), (face, false)]) {
        let harness = Harness::open().await;
        let session_of = async |program: &str, messages: Value| {
            let mut body = face.asking("");
            body[face.list()] = messages;
            let mut request = harness.client.post(harness.url(face.path())).header("User-Agent", program);
            match in_metadata {
                true => body["metadata"] = json!({"session": "zoo"}),
                false => request = request.header("X-Belay-Session", "zoo"),
            }
            let (status, answer) = read(request.json(&body)).await;
            assert_eq!(status, 200, "{face:?}: {answer}");
            let Inbound { session, history, .. } = last(&harness);
            assert!(history.is_empty(), "{face:?}: {history:?}");
            session.as_str() == "zoo"
        };
        let (lemur, otter) = (said("user", "LEMUR"), said("user", "OTTER"));
        assert!(session_of("chat", json!([lemur])).await, "{face:?}");
        // So far it may be a client that sends what is new.
        assert!(session_of("chat", json!([otter])).await, "{face:?}");
        assert!(session_of("chat", json!([lemur, said("assistant", "LEMUR"), said("user", "more")])).await, "{face:?}");
        for first in [&otter, &lemur] {
            assert!(!session_of("chat", json!([first])).await, "{face:?}: {first}");
        }
        // Another program of the same caller sends what is new.
        assert!(session_of("script", json!([otter])).await, "{face:?}");
    }
}
