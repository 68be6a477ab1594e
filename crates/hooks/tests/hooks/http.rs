//! Hooks that are addresses.

use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// What the server was told: the header of authorisation and the body.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

/// A server with an address for each behaviour.
struct Server {
    address: String,
    heard: Heard,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let heard = Heard::default();
        let note = heard.clone();
        let listen = move |headers: HeaderMap, body: Bytes| async move {
            let header = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
            let body = String::from_utf8_lossy(&body).into_owned();
            note.lock().expect("no panic").push((header.to_owned(), body));
            StatusCode::NO_CONTENT
        };
        let routes = Router::new()
            .route("/listen", post(listen))
            .route("/continue", post(|| async { r#"{"continue":true}"# }))
            .route("/change", post(|| async { r#"{"change":{"arguments":{}}}"# }))
            .route("/refuse", post(|| async { r#"{"refuse":"closed"}"# }))
            .route("/garbage", post(|| async { "<html>" }))
            .route("/huge", post(|| async { "x".repeat(65_537) }))
            .route("/broken", post(|| async { (StatusCode::INTERNAL_SERVER_ERROR, "oh").into_response() }))
            .route("/elsewhere", post(|| async { Redirect::temporary("/listen") }))
            .route("/slow", post(|| async { std::future::pending::<()>().await }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.expect("it serves") });
        Self { address, heard, _serving: serving }
    }

    fn hook(&self, path: &str) -> Arc<dyn Hook> {
        at(&format!("{}{path}", self.address))
    }

    fn heard(&self) -> Vec<(String, String)> {
        self.heard.lock().expect("no panic").clone()
    }
}

fn at(url: &str) -> Arc<dyn Hook> {
    hook(&set(&format!("[[hooks]]\nname = 'a'\non = 'before_tool_call'\nurl = '{url}'\ntoken_env = 'TOKEN'")))
}

#[tokio::test]
async fn what_an_address_answers_becomes_the_answer_or_a_failure() {
    let server = Server::start().await;
    let failure = |part: &str| Err(part.to_owned());
    for (path, expected) in [
        ("/listen", Ok(HookAnswer::Continue)),
        ("/continue", Ok(HookAnswer::Continue)),
        ("/change", Ok(changed(json!({"arguments": {}})))),
        ("/refuse", Ok(HookAnswer::Refuse("closed".into()))),
        ("/garbage", failure("its answer is not one JSON object")),
        ("/huge", failure("its answer is longer than 65536 bytes")),
        ("/broken", failure("it answered 500 Internal Server Error")),
        ("/elsewhere", failure("it answered 307 Temporary Redirect, and redirects are not followed")),
        ("/nowhere", failure("it answered 404 Not Found")),
    ] {
        match (ask(&server.hook(path)).await, expected) {
            (Err(found), Err(part)) => assert!(found.starts_with(&part), "{path}: {found}"),
            (found, expected) => assert_eq!(found, expected, "{path}"),
        }
    }
    assert_eq!(server.heard().len(), 1, "a redirect is not followed");
}

#[tokio::test]
async fn an_address_is_told_the_event_with_its_token() {
    let server = Server::start().await;
    assert_eq!(ask(&server.hook("/listen")).await, Ok(HookAnswer::Continue));
    let body = r#"{"hook":"before_tool_call","at":"1970-01-01T00:00:00.000Z","data":{"arguments":{"times":3},"tool":"ring_bell"}}"#;
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let heard: Vec<_> = server.heard().into_iter().map(|(token, body)| (token, json(&body))).collect();
    assert_eq!(heard, [("Bearer s3cret".to_owned(), json(body))]);
}

#[tokio::test]
async fn nobody_at_an_address_is_a_failure_that_does_not_show_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let failure = ask(&at(&format!("http://{address}/?key=k3y"))).await.expect_err("nobody is there");
    assert!(failure.starts_with("no answer: "), "{failure}");
    assert!(!failure.contains("k3y"), "{failure}");
}

#[tokio::test]
async fn one_that_never_answers_can_be_given_up_and_asked_again() {
    let server = Server::start().await;
    let slow = server.hook("/slow");
    // More often than there are places: each one that is given up makes room.
    for _ in 0..10 {
        let event = event(json!({}));
        assert!(timeout(Duration::from_millis(100), slow.call(&event)).await.is_err());
    }
}
