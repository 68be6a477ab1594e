//! Sessions that clients name.

use belay_protocol::{Body, Inbound};
use serde_json::{Value, json};

use super::{FACES, Face};
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

/// Whether the message of these reaches the session that they name.
async fn stays(harness: &Harness, face: Face, messages: Value) -> bool {
    let mut body = face.asking("");
    body[face.list()] = messages;
    let request = harness.client.post(harness.url(face.path())).header("X-Belay-Session", "zoo");
    let (status, answer) = read(request.json(&body)).await;
    assert_eq!(status, 200, "{face:?}: {answer}");
    last(harness).session.as_str() == "zoo"
}

#[tokio::test]
async fn a_command_or_a_decision_alone_goes_to_the_session_that_is_named() {
    for face in FACES {
        let harness = Harness::open().await;
        let (lemur, yes) = (said("user", "LEMUR"), said("user", "yes"));
        assert!(stays(&harness, face, json!([lemur])).await, "{face:?}");
        let more = json!([lemur, said("assistant", "LEMUR"), said("user", "ask ls")]);
        assert!(stays(&harness, face, more).await, "{face:?}");
        for order in ["/stop", " /approve 1", "/new"] {
            assert!(stays(&harness, face, json!([said("user", order)])).await, "{face:?}: {order}");
        }
        assert!(!stays(&harness, face, json!([lemur])).await, "{face:?}: its first message again");
        assert!(stays(&harness, face, json!([yes])).await, "{face:?}: a question waits");
        assert!(!stays(&harness, face, json!([yes])).await, "{face:?}: none waits");
    }
}

#[tokio::test]
async fn an_answer_without_a_message_before_it_makes_no_client_one_that_shows_all() {
    for face in FACES {
        let harness = Harness::open().await;
        assert!(stays(&harness, face, json!([said("user", "LEMUR")])).await, "{face:?}");
        let begun = json!([said("assistant", "Once"), said("user", "go on")]);
        assert!(stays(&harness, face, begun).await, "{face:?}");
        assert!(stays(&harness, face, json!([said("user", "OTTER")])).await, "{face:?}: it sends what is new");
    }
}
