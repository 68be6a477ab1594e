//! Who comes in, as whom, and who does not.

use serde_json::json;

use super::client::{End, Socket, connect, message};
use crate::harness::Harness;

#[tokio::test]
async fn a_client_is_challenged_and_welcomed_as_who_its_address_or_its_token_says() {
    let open = Harness::open().await;
    let (_, hello) = Socket::hello(&open, None).await;
    assert_eq!(
        (&hello["type"], &hello["protocol"], &hello["server"]["version"]),
        (&json!("hello-ok"), &json!(4), &json!("0.0.0"))
    );
    let scopes = json!(["operator.read", "operator.write", "operator.admin", "operator.approvals"]);
    assert_eq!(hello["auth"], json!({ "role": "operator", "scopes": scopes }));
    let policy = json!({ "maxPayload": 1_048_576, "maxBufferedBytes": 1_572_864, "tickIntervalMs": 15_000, "silenceLimitMs": 60_000 });
    assert_eq!(hello["policy"], policy);
    for name in ["agent", "agent.wait", "chat.send", "sessions.subscribe", "health"] {
        assert!(hello["features"]["methods"].as_array().unwrap().contains(&json!(name)), "{name}");
    }

    let locked = Harness::locked().await;
    for (token, expected) in [
        ("client", json!(["operator.read", "operator.write", "operator.approvals"])),
        ("operator", json!(["operator.read", "operator.write", "operator.admin", "operator.approvals"])),
    ] {
        let (_, hello) = Socket::hello(&locked, Some(token)).await;
        assert_eq!(hello["auth"]["scopes"], expected, "{token}");
        let mut by_header = Socket::raw(&locked, &[("authorization", &format!("Bearer {token}"))]).await.unwrap();
        let answer = by_header.call("connect", connect(json!({}))).await;
        assert_eq!(answer["payload"]["auth"]["scopes"], expected, "{token} in the header");
    }
}

#[tokio::test]
async fn what_a_client_says_of_itself_never_widens_what_it_may() {
    let harness = Harness::locked().await;
    let mut socket = Socket::raw(&harness, &[]).await.unwrap();
    let asked = json!({ "auth": { "token": "client" }, "scopes": ["operator.admin", "operator.read"] });
    let answer = socket.call("connect", connect(asked)).await;
    assert_eq!(answer["payload"]["auth"]["scopes"], json!(["operator.read", "operator.write"]));
    let mut model = message("s", "hi", "k");
    model["model"] = "another".into();
    assert_eq!(socket.refusal("agent", model).await, "FORBIDDEN");
    for (method, field, value) in [("agent", "timeout", 0), ("agent", "timeout", 601), ("chat.send", "timeoutMs", 0)] {
        let mut endless = message("s", "hi", "k");
        endless[field] = value.into();
        assert_eq!(socket.refusal(method, endless).await, "FORBIDDEN", "{method} {value}");
    }
    assert_eq!(socket.refusal("approvals.list", json!({})).await, "FORBIDDEN");

    let mut reader = Socket::raw(&harness, &[]).await.unwrap();
    let asked = json!({ "auth": { "token": "operator" }, "scopes": ["operator.read"] });
    reader.call("connect", connect(asked)).await;
    let refused = reader.call("agent", message("s", "hi", "k")).await;
    let details =
        json!({ "code": "MISSING_SCOPE", "missingScope": "operator.write", "requiredScopes": ["operator.write"] });
    assert_eq!(refused["error"]["details"], details);
    assert_eq!(reader.payload("health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn without_a_valid_token_nobody_comes_in() {
    let harness = Harness::locked().await;
    for (auth, code) in [
        (json!({}), "UNAUTHORIZED"),
        (json!({ "token": "wrong" }), "UNAUTHORIZED"),
        (json!({ "token": "" }), "UNAUTHORIZED"),
        (json!({ "password": "client" }), "INVALID_REQUEST"),
    ] {
        let mut socket = Socket::raw(&harness, &[]).await.unwrap();
        assert_eq!(socket.refusal("connect", connect(json!({ "auth": auth }))).await, code, "{auth}");
        assert_eq!(socket.end().await, End::Code(1008));
    }
    let header = [("authorization", "Bearer client")];
    let mut two = Socket::raw(&harness, &header).await.unwrap();
    let other = connect(json!({ "auth": { "token": "operator" } }));
    assert_eq!(two.refusal("connect", other).await, "FORBIDDEN", "two tokens that say different things");
    assert_eq!(Socket::raw(&harness, &[("authorization", "Bearer wrong")]).await.err(), Some(401));
    let page = [("authorization", "Bearer client"), ("origin", "http://evil.example")];
    assert_eq!(Socket::raw(&harness, &page).await.err(), Some(403));
    assert_eq!(Socket::raw(&harness, &page[1..]).await.err(), Some(403), "also where the token is still to come");
    let open = Harness::open().await;
    assert_eq!(Socket::raw(&open, &page[1..]).await.err(), Some(403));
    assert_eq!(open.get("/ws").await.0, 400, "a request that is no upgrade");
}

#[tokio::test]
async fn wrong_tokens_are_slowed_and_the_right_one_of_the_same_address_is_let_in() {
    let harness = Harness::locked().await;
    for n in 0..10 {
        if n % 2 == 0 {
            assert_eq!(Socket::raw(&harness, &[("authorization", "Bearer wrong")]).await.err(), Some(401));
        } else {
            let mut socket = Socket::raw(&harness, &[]).await.unwrap();
            socket.refusal("connect", connect(json!({ "auth": { "token": "wrong" } }))).await;
        }
    }
    assert_eq!(Socket::raw(&harness, &[("authorization", "Bearer wrong")]).await.err(), Some(429));
    let mut wrong = Socket::raw(&harness, &[]).await.unwrap();
    assert_eq!(wrong.refusal("connect", connect(json!({ "auth": { "token": "wrong" } }))).await, "UNAVAILABLE");
    let mut by_header = Socket::raw(&harness, &[("authorization", "Bearer operator")]).await.unwrap();
    assert_eq!(by_header.payload("connect", connect(json!({}))).await["type"], "hello-ok");
    let mut by_message = Socket::raw(&harness, &[]).await.unwrap();
    let hello = by_message.payload("connect", connect(json!({ "auth": { "token": "client" } }))).await;
    assert_eq!(hello["type"], "hello-ok");
}

#[tokio::test]
async fn the_first_frame_is_connect_and_nothing_else() {
    let harness = Harness::open().await;
    for (frame, code, end) in [
        (json!({ "type": "req", "id": "1", "method": "health" }), Some("INVALID_REQUEST"), 1008),
        (json!({ "type": "req", "id": "1", "method": "connect" }), Some("INVALID_REQUEST"), 1008),
        (
            json!({ "type": "req", "id": "1", "method": "connect", "params": connect(json!({ "minProtocol": 5, "maxProtocol": 9 })) }),
            Some("INVALID_REQUEST"),
            1008,
        ),
        (
            json!({ "type": "req", "id": "1", "method": "connect", "params": connect(json!({ "maxProtocol": 0 })) }),
            Some("INVALID_REQUEST"),
            1008,
        ),
        (
            json!({ "type": "req", "id": "1", "method": "connect", "params": connect(json!({ "role": "node" })) }),
            Some("INVALID_REQUEST"),
            1008,
        ),
        (
            json!({ "type": "req", "id": "1", "method": "connect", "params": connect(json!({ "device": {} })) }),
            Some("INVALID_REQUEST"),
            1008,
        ),
        (json!({ "type": "event", "event": "tick" }), None, 1008),
        (json!("x".repeat(64 * 1024)), None, 1009),
    ] {
        let mut socket = Socket::raw(&harness, &[]).await.unwrap();
        let shown: String = frame.to_string().chars().take(120).collect();
        socket.say(frame.to_string()).await;
        if let Some(code) = code {
            let answer = socket.answer("1").await;
            assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
        }
        assert_eq!(socket.end().await, End::Code(end), "{shown}");
    }
}

#[tokio::test]
async fn who_says_nothing_is_let_go_after_fifteen_seconds() {
    let harness = Harness::open().await;
    let mut socket = Socket::raw(&harness, &[]).await.unwrap();
    socket.event("connect.challenge").await;
    tokio::time::pause(); // the rest of it takes no real time
    assert_eq!(socket.end().await, End::Code(1008));
}

#[tokio::test]
async fn before_it_is_ready_a_connection_is_asked_to_come_again() {
    let harness = Harness::open().await;
    harness.ready.send_replace(false);
    let mut socket = Socket::raw(&harness, &[]).await.unwrap();
    let answer = socket.call("connect", connect(json!({}))).await;
    assert_eq!((&answer["error"]["code"], &answer["error"]["retryable"]), (&json!("UNAVAILABLE"), &json!(true)));
}
